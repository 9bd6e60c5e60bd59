//! Signed statements that are proven to be in the log.

use crate::jws::log_entry;
use crate::log::{Proof, SignedCheckpoint};
use crate::place::LogPlace;

/// A statement that is in the log.
pub(crate) struct Logged {
    pub(crate) index: u64,
    pub(crate) checkpoint: SignedCheckpoint,
}

impl Logged {
    /// Checks that the tree of the proof's checkpoint contains a signed statement.
    ///
    /// # Errors
    /// The reason why it does not.
    pub(crate) fn read(place: &LogPlace, jws: &str) -> Result<Self, String> {
        let proof = Proof::parse(&place.proof)?;
        if proof.index != place.index {
            return Err(format!(
                "index is {}, but the proof is for {}",
                place.index, proof.index
            ));
        }
        let checkpoint = SignedCheckpoint::parse(&proof.checkpoint)?;
        proof.check(&log_entry(jws), &checkpoint.tree)?;
        Ok(Self {
            index: proof.index,
            checkpoint,
        })
    }

    /// Checks that the pinned key signed the checkpoint, and that it comes from the log that the place names.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn check_checkpoint(&self, place: &LogPlace, log_key: &str) -> Result<(), String> {
        let origin = self.checkpoint.tree.origin();
        if place.origin != origin {
            return Err(format!(
                "origin is {:?}, but the checkpoint is of {origin:?}",
                place.origin
            ));
        }
        self.checkpoint.check_signature(log_key)
    }
}
