//! Each client address's connection count.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;

use crate::http::client_address;
use crate::limits::address::counting_address;

type Counts = Arc<Mutex<HashMap<Arc<str>, u32>>>;

/// Each client address's open connections; of IPv6 the first 64 bits count. Trusted proxies carry
/// many clients' connections and are not counted.
pub(super) struct Addresses {
    max: u32,
    trusted: Vec<IpNet>,
    counts: Counts,
}

/// A connection that is counted for its address until it is dropped.
pub(super) struct AddressSlot {
    address: Option<Arc<str>>,
    counts: Counts,
}

impl Addresses {
    pub(super) fn new(max: u32, trusted: Vec<IpNet>) -> Self {
        Self {
            max,
            trusted,
            counts: Arc::default(),
        }
    }

    /// Counts a connection. Returns `None` if its address has the maximal connection count
    /// already.
    pub(super) fn enter(&self, peer: IpAddr) -> Option<AddressSlot> {
        let shared_counts = Arc::clone(&self.counts);
        if client_address::is_within(&self.trusted, peer) {
            return Some(AddressSlot {
                address: None,
                counts: shared_counts,
            });
        }
        let address = counting_address(peer);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(Arc::clone(&address)).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(AddressSlot {
            address: Some(address),
            counts: shared_counts,
        })
    }
}

impl AddressSlot {
    /// Returns `true` if the peer is a client, `false` if it is a trusted proxy.
    pub(super) const fn is_client(&self) -> bool {
        self.address.is_some()
    }
}

impl Drop for AddressSlot {
    fn drop(&mut self) {
        let Some(address) = &self.address else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(address);
            }
        }
    }
}
