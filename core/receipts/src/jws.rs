//! Statements as compact JSON Web Signatures (RFC 7515) with Ed25519 (RFC 8037).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Signer as _, SigningKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::keys::{PublicKey, thumbprint};

/// A signed statement's media type.
const TYPE: &str = "application/vnd.in-toto+json";

/// The only accepted algorithm: EdDSA with the curve Ed25519.
const ALGORITHM: &str = "EdDSA";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    alg: String,
    kid: String,
    typ: String,
}

/// A private key that signs receipts.
#[derive(Clone)]
pub struct ReceiptKey {
    key: SigningKey,
    kid: String,
}

impl ReceiptKey {
    /// Creates the key from these 32 secret bytes.
    pub fn from_secret(secret: &[u8; 32]) -> Self {
        let key = SigningKey::from_bytes(secret);
        let kid = thumbprint(key.verifying_key().as_bytes());
        Self { key, kid }
    }

    /// Returns the key's id: the RFC 7638 thumbprint.
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Returns the public key's 32 bytes.
    pub fn public_key(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// Returns `true` if this key has signed this compact statement.
    pub fn has_signed(&self, jws: &str) -> bool {
        let key = PublicKey::from_bytes(&self.public_key());
        key.is_some_and(|key| {
            Jws::parse(jws).is_ok_and(|jws| jws.kid == self.kid && jws.is_by(&key))
        })
    }

    /// Signs a payload. The same payload always has the same signature.
    pub fn sign(&self, payload: &[u8]) -> Signed {
        let mut jws = signed_part(&self.kid, payload);
        let signature = self.key.sign(jws.as_bytes()).to_bytes();
        push_signature(&mut jws, &signature);
        Signed { signature, jws }
    }
}

/// A signed payload.
pub struct Signed {
    /// The Ed25519 signature over the header and the payload.
    pub signature: [u8; Signature::BYTE_SIZE],
    /// The compact form.
    pub jws: String,
}

/// Returns the compact form for a payload, its signature and the key id that made it.
pub fn compact(kid: &str, payload: &[u8], signature: &[u8]) -> String {
    let mut jws = signed_part(kid, payload);
    push_signature(&mut jws, signature);
    jws
}

/// Returns the compact form's part that is signed. Signatures are stored without it, so the
/// header that belongs to a key never changes.
fn signed_part(kid: &str, payload: &[u8]) -> String {
    let header = Header {
        alg: ALGORITHM.into(),
        kid: kid.to_owned(),
        typ: TYPE.into(),
    };
    // A string structure is always valid JSON.
    let header = serde_json::to_vec(&header).unwrap_or_default();
    let mut signed = URL_SAFE_NO_PAD.encode(header);
    signed.push('.');
    URL_SAFE_NO_PAD.encode_string(payload, &mut signed);
    signed
}

fn push_signature(signed: &mut String, signature: &[u8]) {
    signed.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, signed);
}

/// Returns a signed statement's entry in the log: the compact form's SHA-256.
pub fn log_entry(jws: &str) -> [u8; 32] {
    Sha256::digest(jws).into()
}

/// A parsed signature, not verified yet.
#[derive(Debug)]
pub struct Jws<'a> {
    /// The key id that signed it.
    pub kid: String,
    /// The signed payload.
    pub payload: Vec<u8>,
    signed: &'a str,
    signature: Signature,
}

impl<'a> Jws<'a> {
    /// Parses the compact form. Rejects other algorithms and types, unknown and repeated header
    /// fields, and base64 that is not canonical.
    ///
    /// # Errors
    /// The reason, for a receipt's reader.
    pub fn parse(compact: &'a str) -> Result<Self, String> {
        let parts = || -> Option<(&'a str, &'a str)> { compact.rsplit_once('.') };
        let (signed, signature) = parts().ok_or("the signature does not have three parts")?;
        let (header, payload) = signed
            .split_once('.')
            .ok_or("the signature does not have three parts")?;
        let decode = |part: &str, name: &str| {
            URL_SAFE_NO_PAD
                .decode(part)
                .map_err(|_| format!("the {name} is not canonical base64url"))
        };
        let header: Header = serde_json::from_slice(&decode(header, "header")?)
            .map_err(|error| format!("the header is invalid: {error}"))?;
        if header.alg != ALGORITHM {
            return Err(format!("the algorithm is {:?}, not EdDSA", header.alg));
        }
        if header.typ != TYPE {
            return Err(format!("the type is {:?}, not {TYPE}", header.typ));
        }
        let payload = decode(payload, "payload")?;
        let signature = Signature::from_slice(&decode(signature, "signature")?)
            .map_err(|_| "the signature does not have 64 bytes")?;
        Ok(Self {
            kid: header.kid,
            payload,
            signed,
            signature,
        })
    }

    /// Returns `true` if this key made the signature.
    pub fn is_by(&self, key: &PublicKey) -> bool {
        key.verifying_key()
            .verify_strict(self.signed.as_bytes(), &self.signature)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key and the signature in RFC 8037, appendix A, whose thumbprint is in A.3.
    #[test]
    fn key_has_the_thumbprint_of_rfc_8037() {
        let secret = URL_SAFE_NO_PAD
            .decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")
            .unwrap();
        let key = ReceiptKey::from_secret(&secret.try_into().unwrap());
        assert_eq!(key.kid(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        assert_eq!(
            URL_SAFE_NO_PAD.encode(key.public_key()),
            "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
        );
    }

    #[test]
    fn each_changed_byte_is_detected() {
        let key = ReceiptKey::from_secret(&[7; 32]);
        let public = PublicKey::from_bytes(&key.public_key()).unwrap();
        let payload = b"{\"a\":1}";
        let Signed { signature, jws } = key.sign(payload);
        assert!(Jws::parse(&jws).unwrap().is_by(&public));
        assert_eq!(compact(key.kid(), payload, &signature), jws);
        for at in 0..jws.len() {
            for byte in [b'A', b'B', b'.', b'='] {
                let mut changed = jws.clone().into_bytes();
                if changed[at] == byte {
                    continue;
                }
                changed[at] = byte;
                let changed = String::from_utf8(changed).unwrap();
                let accepted = Jws::parse(&changed)
                    .is_ok_and(|jws| jws.kid == key.kid() && jws.is_by(&public));
                assert!(!accepted, "{at}: {changed}");
            }
        }
    }

    #[test]
    fn other_headers_are_rejected() {
        let key = ReceiptKey::from_secret(&[7; 32]);
        let encode = |header: &str| {
            let signed = format!("{}.e30", URL_SAFE_NO_PAD.encode(header));
            let signature = key.key.sign(signed.as_bytes()).to_bytes();
            format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
        };
        let kid = key.kid();
        for (header, reason) in [
            (
                format!(r#"{{"alg":"none","kid":"{kid}","typ":"{TYPE}"}}"#),
                "the algorithm is \"none\"",
            ),
            (
                format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"JWT"}}"#),
                "the type is \"JWT\"",
            ),
            (
                format!(r#"{{"alg":"EdDSA","alg":"EdDSA","kid":"{kid}","typ":"{TYPE}"}}"#),
                "duplicate field `alg`",
            ),
            (
                format!(r#"{{"alg":"EdDSA","kid":"{kid}","typ":"{TYPE}","crit":[]}}"#),
                "unknown field `crit`",
            ),
        ] {
            let error = Jws::parse(&encode(&header)).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        for text in ["", ".", "..", "a.b", "a.b.c.d"] {
            Jws::parse(text).unwrap_err();
        }
    }
}
