//! A submission's digest.

use sha2::{Digest as _, Sha256};

use super::value::{Prediction, Value};

/// The SHA-256 over a prediction sequence. Every string and list is preceded by its length, so
/// that no two sequences have the same encoding.
#[derive(Default)]
pub struct SubmissionDigest {
    hash: Sha256,
    encoded: Vec<u8>,
}

impl SubmissionDigest {
    /// Returns the digest over the predictions that were added.
    pub fn finish(self) -> [u8; 32] {
        self.hash.finalize().into()
    }

    /// Adds the next prediction.
    pub fn add(&mut self, prediction: &Prediction<'_, '_>) {
        self.encoded.clear();
        self.encode_string(&prediction.item_id);
        match prediction.value {
            Value::Label(label) => {
                self.encoded.push(0);
                self.encode_string(label);
            }
            Value::Ranking(ids) => {
                self.encoded.push(1);
                self.encoded.extend((ids.len() as u64).to_le_bytes());
                ids.iter().for_each(|id| self.encode_string(id));
            }
            Value::Number(number) => {
                self.encoded.push(2);
                self.encoded.extend(number.to_le_bytes());
            }
            Value::Probabilities(probabilities) => {
                self.encoded.push(3);
                self.encoded
                    .extend((probabilities.len() as u64).to_le_bytes());
                // A JSON object has no order, and a protobuf map does not keep one.
                let mut sorted: Vec<_> = probabilities.iter().collect();
                sorted.sort_by(|(one, _), (other, _)| one.cmp(other));
                for (label, probability) in sorted {
                    self.encode_string(label);
                    self.encoded.extend(probability.to_le_bytes());
                }
            }
            Value::Failed => self.encoded.push(4),
        }
        self.hash.update(&self.encoded);
    }

    fn encode_string(&mut self, string: &str) {
        self.encoded.extend((string.len() as u64).to_le_bytes());
        self.encoded.extend(string.as_bytes());
    }
}
