//! Secrets: API keys, session tokens, sign-in link tokens, and device login codes.
//!
//! A secret is a prefix, 32 random base62 characters (190 bits), and the CRC-32 over all characters
//! before it as 6 base62 characters. The checksum rejects typos without a database query; it is not
//! a protection. Only a secret's SHA-256 is stored: 190 random bits cannot be guessed, so a slow
//! hash would add cost but no security.

use hkdf::Hkdf;
use sha2::{Digest as _, Sha256};

use crate::model::error::{Error, Result};
use crate::model::random::{self, RandomError};

const KEY_PREFIX: &str = "svc_live_";
const SESSION_PREFIX: &str = "svc_sess_";
const LINK_PREFIX: &str = "svc_link_";
const DEVICE_PREFIX: &str = "svc_devc_";
const GRANT_PREFIX: &str = "svc_grnt_";
const RANDOM_LENGTH: usize = 32;
const CHECKSUM_LENGTH: usize = 6;

/// A secret's kind, which its prefix shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// An API key's secret, `svc_live_…`.
    ApiKey,
    /// A session's token, `svc_sess_…`.
    Session,
    /// A sign-in link's token, `svc_link_…`. It is not a credential.
    Link,
    /// The code with which a program polls its device login, `svc_devc_…`. It is not a credential.
    Device,
    /// The token of a link that gives a grant, `svc_grnt_…`. It is not a credential.
    Grant,
}

impl SecretKind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::ApiKey => KEY_PREFIX,
            Self::Session => SESSION_PREFIX,
            Self::Link => LINK_PREFIX,
            Self::Device => DEVICE_PREFIX,
            Self::Grant => GRANT_PREFIX,
        }
    }
}

/// Bytes from which a derived secret's characters are spelled: four times as many as
/// it has characters.
const DERIVED_BYTES: usize = 4 * RANDOM_LENGTH;

/// A new secret. It is returned once and never logged, so it has no `Debug`.
pub struct Secret(String);

impl Secret {
    /// Creates a random secret of this kind.
    pub fn random(kind: SecretKind) -> Result<Self, RandomError> {
        Ok(Self::spelled(kind, &random::base62(RANDOM_LENGTH)?))
    }

    /// Derives a secret of this kind from another one: the same for the same `info`.
    ///
    /// Its characters come from HKDF-SHA256 (RFC 5869) over the other secret's text, without salt:
    /// each byte below 248, modulo 62.
    pub fn derived(kind: SecretKind, from: &str, info: &str) -> Result<Self> {
        let mut bytes = [0; DERIVED_BYTES];
        Hkdf::<Sha256>::new(None, from.as_bytes())
            .expand(info.as_bytes(), &mut bytes)
            .map_err(|error| Error::internal(error.to_string()))?;
        let text: String = random::spell(random::BASE62, &bytes)
            .take(RANDOM_LENGTH)
            .collect();
        Ok(Self::spelled(kind, &text))
    }

    fn spelled(kind: SecretKind, characters: &str) -> Self {
        let mut text = format!("{}{characters}", kind.prefix());
        let checksum = checksum(&text);
        text.push_str(&checksum);
        Self(text)
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

/// A secret's SHA-256, by which it is stored and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    /// Returns a text's hash.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Returns the hash's 32 bytes.
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
    } else if token.starts_with(DEVICE_PREFIX) {
        SecretKind::Device
    } else if token.starts_with(GRANT_PREFIX) {
        SecretKind::Grant
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

/// Returns a string's CRC-32 (IEEE) as 6 base62 digits, the highest first. They always
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
        for kind in [
            SecretKind::ApiKey,
            SecretKind::Session,
            SecretKind::Link,
            SecretKind::Device,
        ] {
            let secret = Secret::random(kind).unwrap();
            let hash = secret.hash();
            assert_eq!(secret.prefix().len(), 13);
            let text = secret.into_text();
            assert_eq!(text.len(), 47);
            let (read_kind, read_hash) = read(&text).unwrap();
            assert!(read_kind == kind && read_hash == hash);
        }
    }

    // Computed with Python's `hmac`, `hashlib` and `zlib`, by the RFC 5869 formulas.
    #[test]
    fn derived_secret_has_its_golden_value() {
        let from = "svc_devc_000000000000000000000000000000002ptkue";
        let derive = |from: &str, info: &str| {
            let secret = Secret::derived(SecretKind::ApiKey, from, info).unwrap();
            secret.into_text()
        };
        let secret = derive(from, "dev_1");
        assert_eq!(secret, "svc_live_XnHrEbPDLvwBP0hjgq1E5y8ny15jSIYD3lk1lf");
        assert!(read(&secret).is_some_and(|(kind, _)| kind == SecretKind::ApiKey));
        for other in [derive(from, "dev_2"), derive(&from[1..], "dev_1")] {
            assert_ne!(secret, other);
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
