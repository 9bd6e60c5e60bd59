//! A request's context: its id, its trace and its client, which are known before its route.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use assay_core::model::audit::RequestOrigin;
use assay_core::model::session::Origin;
use assay_core::runtime::trace_export::{Span, Spans};
use assay_core::{Error, RequestId, Result, Timestamp};
use http::Extensions;

use super::protocol::Protocol;
use super::theme::Theme;
use super::traceparent::Trace;

/// A request's context, stored in every request's extensions.
#[derive(Clone)]
pub struct RequestContext {
    /// The id that this API assigned to the request.
    pub request_id: RequestId,
    /// The request's protocol.
    pub protocol: Protocol,
    /// The time at which its headers had arrived.
    pub received_at: Instant,
    /// The trace that the request belongs to.
    pub trace: Trace,
    /// The request's finished child spans.
    pub child_spans: ChildSpans,
    /// The address that failed authentications count for: the client's, for IPv6 the first 64 bits.
    pub address: Arc<str>,
    /// The theme for pages about failures.
    pub theme: Theme,
    /// The client's `User-Agent`, stored in its sessions.
    pub user_agent: Option<Arc<str>>,
}

/// A request's finished child spans. They are exported after the request's own span, so that none
/// is exported without its parent. Clones share them.
#[derive(Clone, Default)]
pub struct ChildSpans(Arc<Mutex<Vec<Span>>>);

impl ChildSpans {
    /// Adds a finished span.
    pub fn push(&self, span: Span) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(span);
    }

    /// Removes and returns all spans, in the order in which they finished.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RequestContext {
    /// Returns the context of a request.
    ///
    /// # Errors
    /// 500 if the outer layers have not run.
    pub fn find(extensions: &Extensions) -> Result<Self> {
        let context = extensions.get().cloned();
        context.ok_or_else(|| Error::internal("a request has no context"))
    }

    /// Returns the request as the audit log names it.
    pub fn request_origin(&self) -> RequestOrigin {
        RequestOrigin {
            request_id: self.request_id.clone(),
            address: Arc::clone(&self.address),
        }
    }

    /// Returns the client's address and user agent, as sessions store them.
    pub fn origin(&self) -> Origin<'_> {
        Origin {
            request_id: &self.request_id,
            address: &self.address,
            user_agent: self.user_agent.as_deref(),
        }
    }

    /// Runs `work`, and records a child span if the trace is sampled.
    pub async fn in_span<T>(
        &self,
        spans: &Spans,
        name: &'static str,
        work: impl Future<Output = T>,
    ) -> T {
        let started_at = Timestamp::now();
        let result = work.await;
        // Read after the work: authentication decides which trace the request belongs to.
        let span_context = self.trace.context().span_context;
        if spans.is_sampled(span_context.trace_id) {
            self.child_spans.push(Span::internal(
                span_context.child(),
                span_context.span_id,
                name,
                started_at,
                Timestamp::now(),
            ));
        }
        result
    }
}

/// The connection peer's address, set by the listener in every request's extensions.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);
