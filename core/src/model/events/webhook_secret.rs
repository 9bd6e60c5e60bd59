//! Webhooks' signing secrets. They are derived from one installation key, so that the
//! database holds none, and sign deliveries as Standard Webhooks describes.

use std::str::FromStr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::model::error::{Error, Result};
use crate::model::ids::{EventId, WebhookId};

/// The key's smallest length, in bytes.
const KEY_MIN: usize = 32;

/// Secret length, in bytes.
const SECRET_LENGTH: usize = 32;

/// The last characters of a secret that the webhook shows.
const HINT_LENGTH: usize = 4;

/// The installation's key from which all webhooks' secrets are derived. It is never
/// logged, so it has no `Debug`.
#[derive(Clone)]
pub struct WebhookKey(Arc<[u8]>);

impl WebhookKey {
    /// Returns a webhook's secret. Each rotation increases the generation.
    ///
    /// It is HKDF-SHA256 (RFC 5869) over the key, without salt; the info is the id followed by the
    /// generation as 4 bytes, the highest first.
    pub fn secret(&self, webhook_id: &WebhookId, generation: i32) -> Result<WebhookSecret> {
        let mut secret = [0; SECRET_LENGTH];
        let info = [webhook_id.as_str().as_bytes(), &generation.to_be_bytes()];
        Hkdf::<Sha256>::new(None, &self.0)
            .expand_multi_info(&info, &mut secret)
            .map_err(|error| Error::internal(error.to_string()))?;
        Ok(WebhookSecret(secret))
    }
}

impl FromStr for WebhookKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let key = STANDARD.decode(text).unwrap_or_default();
        match key.len() {
            KEY_MIN.. => Ok(Self(key.into())),
            _ => Err(format!(
                "must be at least {KEY_MIN} bytes in base64, such as those of `openssl rand -base64 32`"
            )),
        }
    }
}

/// A webhook's secret, which signs its deliveries. It has no `Debug`.
pub struct WebhookSecret([u8; SECRET_LENGTH]);

impl WebhookSecret {
    /// Returns the secret as its receiver stores it: `whsec_` and 44 base64 characters.
    pub fn text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }

    /// Returns the secret's last characters, for recognition.
    pub fn hint(&self) -> String {
        let text = self.text();
        text[text.len() - HINT_LENGTH..].to_owned()
    }

    /// Returns a delivery's signature at a time in seconds since 1970: `v1,` and the HMAC-SHA256 over
    /// id, time and body in base64.
    pub fn sign(&self, event_id: &EventId, seconds: i64, body: &[u8]) -> Result<String> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .map_err(|error| Error::internal(error.to_string()))?;
        mac.update(format!("{event_id}.{seconds}.").as_bytes());
        mac.update(body);
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        Ok(format!("v1,{signature}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> WebhookKey {
        STANDARD.encode([7; 32]).parse().unwrap()
    }

    #[test]
    fn secrets_differ_by_key_webhook_and_generation() {
        let id: WebhookId = "whk_1".parse().unwrap();
        let other_key: WebhookKey = STANDARD.encode([8; 32]).parse().unwrap();
        let texts = [
            key().secret(&id, 1),
            key().secret(&id, 2),
            key().secret(&"whk_11".parse().unwrap(), 1),
            other_key.secret(&id, 1),
        ]
        .map(|secret| secret.unwrap().text());
        for (index, text) in texts.iter().enumerate() {
            assert_eq!(text.len(), "whsec_".len() + 44);
            assert!(!texts[..index].contains(text));
        }
        assert_eq!(texts[0], key().secret(&id, 1).unwrap().text());
    }

    // Computed with Python's `hmac` and `hashlib`, by the RFC 5869 and Standard Webhooks
    // formulas.
    #[test]
    fn secret_and_signature_have_their_golden_values() {
        let secret = key().secret(&"whk_1".parse().unwrap(), 1).unwrap();
        assert_eq!(secret.text(), GOLDEN_SECRET);
        assert_eq!(secret.hint(), GOLDEN_SECRET[GOLDEN_SECRET.len() - 4..]);
        let signature = secret.sign(&"evt_1".parse().unwrap(), 1_700_000_000, b"{\"a\":1}");
        assert_eq!(signature.unwrap(), GOLDEN_SIGNATURE);
    }

    #[test]
    fn short_key_is_refused() {
        for bad in ["", "secret", &STANDARD.encode([1; 31])] {
            assert!(bad.parse::<WebhookKey>().is_err());
        }
    }

    const GOLDEN_SECRET: &str = "whsec_xn7OCureTBizdM+Ln5vJqNmrRNnDyLpjWFIJMajcAtM=";
    const GOLDEN_SIGNATURE: &str = "v1,sh3vRbefDr4E77TnfIWHWTGX0qhWkPj3yWE/a/zGYfE=";
}
