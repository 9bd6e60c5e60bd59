//! Secrets: API keys, session tokens, and the tokens of sign-in links.
//!
//! Form: a prefix, 32 random base62 characters (190 bits) and a 6-character base62 CRC-32 of all that stands
//! before it. The checksum lets a typo be refused without a look-up; it protects nothing. Only the SHA-256 of a
//! secret is stored: 190 random bits cannot be guessed, so a slow hash would add cost and no safety.

use sha2::{Digest as _, Sha256};

use crate::model::error::Result;
use crate::model::random;

const KEY_PREFIX: &str = "svc_live_";
const SESSION_PREFIX: &str = "svc_sess_";
const LINK_PREFIX: &str = "svc_link_";
const RANDOM: usize = 32;
const CHECKSUM: usize = 6;

/// What kind of secret a token is, by its form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// `svc_live_…`
    ApiKey,
    /// `svc_sess_…`
    Session,
    /// `svc_link_…`: of a link to sign in with. It is not a credential.
    Link,
}

/// A freshly made secret. It is shown once and never logged: it has no `Debug`.
pub struct Secret(String);

impl Secret {
    /// A new secret of this kind.
    pub fn random(kind: SecretKind) -> Result<Self> {
        let mut text = String::from(match kind {
            SecretKind::ApiKey => KEY_PREFIX,
            SecretKind::Session => SESSION_PREFIX,
            SecretKind::Link => LINK_PREFIX,
        });
        text.push_str(&random::base62(RANDOM)?);
        let checksum = checksum(&text);
        text.push_str(&checksum);
        Ok(Self(text))
    }

    /// The leading characters, enough to recognize a key by and no help to guess it.
    pub fn prefix(&self) -> &str {
        &self.0[..KEY_PREFIX.len() + 4]
    }

    /// What is stored in place of the secret.
    pub fn hash(&self) -> SecretHash {
        SecretHash::of(&self.0)
    }

    /// The secret itself, for the one answer that shows it.
    pub fn into_text(self) -> String {
        self.0
    }
}

/// The SHA-256 of a secret: what is stored and looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SecretHash([u8; 32]);

impl SecretHash {
    fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// The bytes as they are stored.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Reads a token. `None` when its form or its checksum is not that of a secret of ours.
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
    let well_formed = token.len() == KEY_PREFIX.len() + RANDOM + CHECKSUM
        && token[KEY_PREFIX.len()..]
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric());
    if !well_formed {
        return None;
    }
    let (body, given) = token.split_at(token.len() - CHECKSUM);
    (checksum(body) == given).then(|| (kind, SecretHash::of(token)))
}

/// The CRC-32 (IEEE) of a text as 6 base62 digits, the highest first. 62⁶ > 2³², so it always fits.
fn checksum(text: &str) -> String {
    let mut rest = crc32fast::hash(text.as_bytes());
    let mut digits = [0_u8; CHECKSUM];
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
    fn a_secret_is_read_back_as_its_hash() {
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
    fn every_single_typo_is_refused() {
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
