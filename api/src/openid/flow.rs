//! A sign-in that a browser has started with a provider.

use openidconnect::{CsrfToken, Nonce, PkceCodeChallenge, PkceCodeVerifier};

/// The values that tie a sign-in to the browser that has started it. They are secret until the
/// sign-in ends.
pub struct Flow {
    /// The provider's name.
    pub provider: String,
    /// The value that the provider sends back to the browser: another browser cannot finish the
    /// sign-in.
    pub state: String,
    /// The value that the provider signs: another sign-in's token is not accepted.
    pub nonce: String,
    /// The secret without which nobody can redeem the code (RFC 7636).
    pub verifier: String,
}

impl Flow {
    /// Returns new random values, and the verifier's challenge.
    pub fn random(provider: &str) -> (Self, PkceCodeChallenge) {
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = Self {
            provider: provider.to_owned(),
            state: CsrfToken::new_random().into_secret(),
            nonce: Nonce::new_random().secret().clone(),
            verifier: verifier.into_secret(),
        };
        (flow, challenge)
    }

    /// Returns the text that the browser keeps.
    pub fn to_text(&self) -> String {
        let Self {
            provider,
            state,
            nonce,
            verifier,
        } = self;
        format!("{provider}.{state}.{nonce}.{verifier}")
    }

    /// Reads [`Flow::to_text`]'s text.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(str::to_owned);
        let flow = Self {
            provider: parts.next()?,
            state: parts.next()?,
            nonce: parts.next()?,
            verifier: parts.next()?,
        };
        parts.next().is_none().then_some(flow)
    }

    /// Returns the verifier in the library's type.
    pub fn pkce_verifier(&self) -> PkceCodeVerifier {
        PkceCodeVerifier::new(self.verifier.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_flow_is_read() {
        let (flow, _) = Flow::random("uni");
        let read = Flow::from_text(&flow.to_text()).unwrap();
        assert_eq!(read.to_text(), flow.to_text());
        assert!(flow.verifier.len() >= 43, "RFC 7636, section 4.1");
        for text in ["", "uni", "uni.a.b", "uni.a.b.c.d"] {
            assert!(Flow::from_text(text).is_none(), "{text}");
        }
    }
}
