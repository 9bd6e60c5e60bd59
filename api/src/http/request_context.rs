//! What is known of a request before its route is: its id, its trace, its client.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use assay_core::model::session::Origin;
use assay_core::runtime::trace_export::{Span, Spans};
use assay_core::{RequestId, Timestamp};

use super::traceparent::Trace;

/// What is known of a request before anything else is. In the extensions of every request.
#[derive(Clone)]
pub struct RequestContext {
    /// Our own id of it.
    pub request_id: RequestId,
    /// When its head had arrived.
    pub began: Instant,
    /// The trace that it belongs to.
    pub trace: Trace,
    /// What was done for it so far, for operators.
    pub child_spans: ChildSpans,
    /// Whom failed authentication is counted for: the client's address, of IPv6 the first 64 bits.
    pub address: Arc<str>,
    /// The client's `User-Agent`, as its sessions show it.
    pub user_agent: Option<Arc<str>>,
}

/// ChildSpans of a request that have ended. They are told of after the whole, so that none is ever without it.
#[derive(Clone, Default)]
pub struct ChildSpans(Arc<Mutex<Vec<Span>>>);

impl ChildSpans {
    /// Adds one.
    pub fn push(&self, part: Span) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(part);
    }

    /// All of them, in the order in which they ended.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RequestContext {
    /// Where the request comes from.
    pub fn origin(&self) -> Origin<'_> {
        Origin {
            address: &self.address,
            user_agent: self.user_agent.as_deref(),
        }
    }

    /// Does a part of the work, and notes what it was if operators are told of it.
    pub async fn during<T>(
        &self,
        spans: &Spans,
        name: &'static str,
        work: impl Future<Output = T>,
    ) -> T {
        let began = Timestamp::now();
        let done = work.await;
        // Only now: authentication decides which trace it is.
        let span_context = self.trace.context().span_context;
        if spans.is_sampled(span_context.trace_id) {
            self.child_spans.push(Span::internal(
                span_context.child(),
                span_context.span_id,
                name,
                began,
                Timestamp::now(),
            ));
        }
        done
    }
}

/// The address of the peer, set by the listener.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);
