//! Submitters: the organizations that submit to a suite, as its publisher sees them.

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use sha2::Sha256;
use utoipa::ToSchema;

use crate::model::cursor::Cursor;
use crate::model::error::{Error, Result};
use crate::model::ids::OrgId;
use crate::model::random::BASE62;
use crate::model::timestamp::Timestamp;

/// Number of base62 characters that 128 bits have.
const CHARACTERS: usize = 22;

/// An organization that has submitted to a suite. No figure of a job is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Submitter {
    /// A name for the organization that is the same for all its submissions to the suite, and another one for another
    /// suite.
    #[schema(min_length = 26, max_length = 26, pattern = "^sub_[0-9A-Za-z]{22}$")]
    pub submitter: String,
    /// The name of the organization. Null unless it is the publisher, has a grant, or has entered the board.
    pub org_name: Option<String>,
    /// True if the organization is the publisher, or shares a domain or its creator with it.
    pub by_publisher: bool,
    /// The number of submissions.
    #[schema(minimum = 1)]
    pub n_submissions: i64,
    /// The number of submissions that failed.
    #[schema(minimum = 0)]
    pub n_failed: i64,
    /// The number of entries on boards, with the withdrawn and removed ones.
    #[schema(minimum = 0)]
    pub n_entries: i64,
    /// The time of the first submission.
    pub first_at: Timestamp,
    /// The time of the last submission.
    pub last_at: Timestamp,
}

/// A page of the submitters of a suite, the newest submission first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Submitters {
    /// The submitters of the page.
    #[schema(max_items = 200)]
    pub submitters: Vec<Submitter>,
    /// The `cursor` of the next page. Null on the last page.
    pub next_cursor: Option<Cursor>,
}

/// Returns the name of an organization for a suite's publisher: `sub_` and the first 128 bits of
/// HMAC-SHA-256(key, id) as 22 base62 digits.
///
/// # Errors
/// If the key cannot be one.
pub fn pseudonym(key: &[u8], org_id: &OrgId) -> Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(Error::internal)?;
    mac.update(org_id.as_str().as_bytes());
    let hmac: [u8; 32] = mac.finalize().into_bytes().into();
    let bits = hmac.first_chunk().copied().map_or(0, u128::from_be_bytes);
    let digit = |place: u32| BASE62[(bits / 62_u128.pow(place) % 62) as usize];
    let digits = (0..CHARACTERS as u32).rev().map(digit);
    Ok(format!(
        "sub_{}",
        digits.map(char::from).collect::<String>()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudonym_is_that_of_another_implementation() {
        // Python: hmac.digest(bytes(range(32)), b"org_1", "sha256")[:16] as a number in base 62.
        let key: Vec<u8> = (0..32).collect();
        let name = pseudonym(&key, &"org_1".parse().unwrap()).unwrap();
        assert_eq!(name, "sub_7BIMNIwUrxDlDv2eSPlAyx");
    }
}
