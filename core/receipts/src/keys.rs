//! The receipts' public keys as a JWK set (RFC 7517), with the time and the index until which each
//! is valid.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::VerifyingKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::place::LogPlace;

/// Returns an Ed25519 key's thumbprint (RFC 7638, RFC 8037): the SHA-256 over its required fields as
/// canonical JSON, in base64url.
pub fn thumbprint(public_key: &[u8; 32]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public_key);
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!(
        r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#
    )))
}

/// A public Ed25519 key.
#[derive(Debug, Clone)]
pub struct PublicKey(VerifyingKey);

impl PublicKey {
    /// Creates a key from its 32 bytes. `None` if they are not a point on the curve.
    pub fn from_bytes(bytes: &[u8; 32]) -> Option<Self> {
        VerifyingKey::from_bytes(bytes).ok().map(Self)
    }

    pub(crate) const fn verifying_key(&self) -> &VerifyingKey {
        &self.0
    }
}

/// A key's signed change, and its place in the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoggedChange {
    /// The statement as a compact JSON Web Signature.
    pub jws: String,
    /// Its place in the log.
    pub log: LogPlace,
}

/// A receipt key in the JWK set.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Jwk {
    /// The key type, `OKP`.
    pub kty: String,
    /// The curve, `Ed25519`.
    pub crv: String,
    /// The 32 bytes of the key in base64url.
    pub x: String,
    /// The key's id: its thumbprint.
    pub kid: String,
    /// The algorithm, `EdDSA`. RFC 7517, section 4.4, makes it optional.
    #[serde(default = "algorithm")]
    pub alg: String,
    /// The use of the key, `sig`.
    pub r#use: String,
    /// The time from which the key is valid.
    pub valid_from: String,
    /// The time until which the key is valid, if another one has replaced it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<String>,
    /// The log index from which the key is not valid, if it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revoked_at_index: Option<u64>,
    /// The statement that introduces the key. Absent until a checkpoint of the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub introduction: Option<LoggedChange>,
    /// The statement that revokes the key. Absent until a checkpoint of the log has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revocation: Option<LoggedChange>,
}

fn algorithm() -> String {
    "EdDSA".into()
}

impl Jwk {
    /// Creates a key's entry in the set. The times are in RFC 3339.
    pub fn new(
        public_key: &[u8; 32],
        valid_from: String,
        valid_until: Option<String>,
        revoked_at_index: Option<u64>,
    ) -> Self {
        Self {
            kty: "OKP".into(),
            crv: "Ed25519".into(),
            x: URL_SAFE_NO_PAD.encode(public_key),
            kid: thumbprint(public_key),
            alg: algorithm(),
            r#use: "sig".into(),
            valid_from,
            valid_until,
            revoked_at_index,
            introduction: None,
            revocation: None,
        }
    }

    /// Returns the key, or the reason why it cannot verify receipts.
    fn public_key(&self) -> Result<PublicKey, String> {
        if (self.kty.as_str(), self.crv.as_str(), self.alg.as_str()) != ("OKP", "Ed25519", "EdDSA")
        {
            return Err(format!(
                "the key {} is not an Ed25519 key for EdDSA",
                self.kid
            ));
        }
        let bytes = URL_SAFE_NO_PAD
            .decode(&self.x)
            .ok()
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .ok_or_else(|| format!("x of the key {} is not 32 bytes in base64url", self.kid))?;
        if thumbprint(&bytes) != self.kid {
            return Err(format!("{} is not the thumbprint of its key", self.kid));
        }
        PublicKey::from_bytes(&bytes)
            .ok_or_else(|| format!("x of the key {} is not a point of the curve", self.kid))
    }

    /// Checks that the key was valid at this time (RFC 3339), and at this index in the log; `None`
    /// for a statement that is not in the log.
    ///
    /// # Errors
    /// The reason why it was not.
    pub fn check_validity(&self, at: &str, index: Option<u64>) -> Result<(), String> {
        let at = parse_time(at)?;
        if at < parse_time(&self.valid_from)? {
            return Err(format!("the key is valid only from {}", self.valid_from));
        }
        if let Some(until) = &self.valid_until
            && at >= parse_time(until)?
        {
            return Err(format!("the key was valid only until {until}"));
        }
        match (self.revoked_at_index, index) {
            (Some(revoked), None) => Err(format!(
                "the key is revoked from index {revoked} of the log, and the statement has no index"
            )),
            (Some(revoked), Some(index)) if index >= revoked => Err(format!(
                "the key is revoked from index {revoked} of the log, and the statement has index {index}"
            )),
            _ => Ok(()),
        }
    }
}

fn parse_time(text: &str) -> Result<OffsetDateTime, String> {
    OffsetDateTime::parse(text, &Rfc3339).map_err(|_| format!("{text:?} is not a time"))
}

/// The receipt key set.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct JwkSet {
    /// All keys that have signed receipts.
    pub keys: Vec<Jwk>,
}

impl JwkSet {
    /// Reads a set.
    ///
    /// # Errors
    /// If the text is not a JWK set with receipt keys.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(json)
            .map_err(|error| format!("the keys are not a JWK set of receipt keys: {error}"))
    }

    /// Returns the key with this id.
    ///
    /// # Errors
    /// If the set has no such key or several, or if it is not a valid Ed25519 key.
    pub fn find(&self, kid: &str) -> Result<(&Jwk, PublicKey), String> {
        let mut found = self.keys.iter().filter(|key| key.kid == kid);
        let key = found
            .next()
            .ok_or_else(|| format!("the keys do not contain {kid}"))?;
        if found.next().is_some() {
            return Err(format!("the keys contain {kid} twice"));
        }
        Ok((key, key.public_key()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jws::ReceiptKey;

    fn jwk() -> Jwk {
        let key = ReceiptKey::from_secret(&[1; 32]);
        Jwk::new(
            &key.public_key(),
            "2026-01-01T00:00:00.000000Z".into(),
            Some("2027-01-01T00:00:00.000000Z".into()),
            Some(10),
        )
    }

    #[test]
    fn key_is_valid_in_its_time_and_before_its_revocation() {
        let jwk = jwk();
        let check = |at, index| jwk.check_validity(at, index).err().unwrap_or_default();
        assert_eq!(check("2026-01-01T00:00:00.000000Z", Some(9)), "");
        assert_eq!(check("2026-12-31T23:59:59.999999Z", Some(9)), "");
        for (at, index, reason) in [
            ("2025-12-31T23:59:59.999999Z", Some(9), "only from"),
            ("2027-01-01T00:00:00.000000Z", Some(9), "only until"),
            ("2026-06-01T00:00:00.000000Z", Some(10), "has index 10"),
            ("2026-06-01T00:00:00.000000Z", None, "has no index"),
            ("yesterday", Some(9), "not a time"),
        ] {
            assert!(check(at, index).contains(reason), "{}", check(at, index));
        }
    }

    #[test]
    fn algorithm_of_a_key_may_be_absent() {
        let mut sent = serde_json::to_value(jwk()).unwrap();
        sent.as_object_mut().unwrap().remove("alg");
        let key: Jwk = serde_json::from_value(sent).unwrap();
        assert_eq!(key.public_key().err(), None);
    }

    #[test]
    fn unsuitable_keys_are_rejected() {
        let good = jwk();
        let find = |change: &dyn Fn(&mut Jwk)| {
            let mut key = good.clone();
            change(&mut key);
            let set = JwkSet {
                keys: vec![key.clone()],
            };
            set.find(&key.kid).map(drop).err().unwrap_or_default()
        };
        assert_eq!(find(&|_| ()), "");
        let other = ReceiptKey::from_secret(&[2; 32]);
        for reason in [
            find(&|key| key.kty = "RSA".into()),
            find(&|key| key.crv = "Ed448".into()),
            find(&|key| key.alg = "ES256".into()),
            find(&|key| key.x = URL_SAFE_NO_PAD.encode(other.public_key())),
            find(&|key| key.x.push('=')),
            find(&|key| key.kid = other.kid().into()),
        ] {
            assert_ne!(reason, "");
        }
        let twice = JwkSet {
            keys: vec![good.clone(), good.clone()],
        };
        assert!(twice.find(&good.kid).unwrap_err().contains("twice"));
        assert!(
            JwkSet::default()
                .find("a")
                .unwrap_err()
                .contains("do not contain")
        );
    }
}
