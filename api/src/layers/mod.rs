//! What every request goes through on its way in and out, on both wires. One layer a file.

pub mod auth;
pub mod cors;
pub mod deadline;
pub mod lane;
pub mod limit;
pub mod observe;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use assay_core::RequestId;

use crate::traceparent::TraceParent;

/// What is known of a request before anything else is. In the extensions of every request.
#[derive(Debug, Clone)]
pub struct Call {
    /// Our own id of it.
    pub request_id: RequestId,
    /// When its head had arrived.
    pub began: Instant,
    /// The trace that it belongs to.
    pub trace: TraceParent,
    /// Whom failed authentication is counted for: the client's address, of IPv6 the first 64 bits.
    pub address: Arc<str>,
}

/// The address of the peer, set by the listener.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);
