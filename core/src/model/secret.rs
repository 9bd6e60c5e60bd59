//! Secrets: API keys, session tokens, and the tokens of sign-in links.
//!
//! A secret is a prefix, 32 random base62 characters (190 bits), and the CRC-32 of all characters
//! before it as 6 base62 characters. The checksum rejects typos without a database query; it is not
//! a protection. Only the SHA-256 of a secret is stored: 190 random bits cannot be guessed, so a
//! slow hash would add cost but no security.

use sha2::{Digest as _, Sha256};

use crate::model::random::{self, RandomError};

const KEY_PREFIX: &str = "svc_live_";
const SESSION_PREFIX: &str = "svc_sess_";
const LINK_PREFIX: &str = "svc_link_";
const RANDOM_LENGTH: usize = 32;
const CHECKSUM_LENGTH: usize = 6;

/// The kind of a secret, which its prefix shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// The secret of an API key, `svc_live_…`.
    ApiKey,
    /// The token of a session, `svc_sess_…`.
    Session,
    /// The token of a sign-in link, `svc_link_…`. It is not a credential.
    Link,
}

/// A new secret. It is returned once and never logged, so it has no `Debug`.
pub struct Secret(String);

impl Secret {
    /// Creates a random secret of this kind.
    pub fn random(kind: SecretKind) -> Result<Self, RandomError> {
        let mut text = String::from(match kind {
            SecretKind::ApiKey => KEY_PREFIX,
            SecretKind::Session => SESSION_PREFIX,
            SecretKind::Link => LINK_PREFIX,
        });
        text.push_str(&random::base62(RANDOM_LENGTH)?);
        let checksum = checksum(&text);
        text.push_str(&checksum);
        Ok(Self(text))
    }

    /// Returns the prefix and the first 4 random characters: enough to recognize a key, but no help
    /// to guess it.
    pub fn prefix(&self) -> &str {
        &self.0[..KEY_PREFIX.len() + 4]
    }

    /// Returns the hash that is stored instead of the secret.
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }

    /// Returns the secret itself, for the only response that contains it.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// The SHA-256 of a secret, by which it is stored and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns the 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Parses a token and returns its kind and hash, or `None` if its format or checksum is wrong.
pub fn read(token: &str) -> Option<(SecretKind, SecretHash)> {
    let kind = if token.starts_with(KEY_PREFIX) {
        SecretKind::ApiKey
    } else if token.starts_with(SESSION_PREFIX) {
        SecretKind::Session
    } else if token.starts_with(LINK_PREFIX) {
        SecretKind::Link
    } else {
        return None;
    };
    let is_well_formed = token.len() == KEY_PREFIX.len() + RANDOM_LENGTH + CHECKSUM_LENGTH
        && token[KEY_PREFIX.len()..]
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric());
    if !is_well_formed {
        return None;
    }
    let (body, given) = token.split_at(token.len() - CHECKSUM_LENGTH);
    (checksum(body) == given).then(|| (kind, SecretHash::of(token)))
}

/// Returns the CRC-32 (IEEE) of a string as 6 base62 digits, the highest first. They always
/// suffice, because 62⁶ > 2³².
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut digits = [0_u8; CHECKSUM_LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit = random::BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    digits.iter().copied().map(char::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_secret_has_same_hash() {
        for kind in [SecretKind::ApiKey, SecretKind::Session, SecretKind::Link] {
            let secret = Secret::random(kind).unwrap();
            let hash = secret.hash();
            assert_eq!(secret.prefix().len(), 13);
            let text = secret.into_text();
            assert_eq!(text.len(), 47);
            let (read_kind, read_hash) = read(&text).unwrap();
            assert!(read_kind == kind && read_hash == hash);
        }
    }

    #[test]
    fn secret_with_typo_is_rejected() {
        let text = Secret::random(SecretKind::ApiKey).unwrap().into_text();
        for at in 0..text.len() {
            let mut typo = text.clone().into_bytes();
            typo[at] = if typo[at] == b'x' { b'y' } else { b'x' };
            assert!(read(std::str::from_utf8(&typo).unwrap()).is_none());
        }
        for junk in [
            "",
            "svc_live_",
            "svc_live_ä",
            &text[..46],
            &format!("{text}0"),
            &text.replace("live", "sess"),
        ] {
            assert!(read(junk).is_none(), "{junk}");
        }
    }
}
