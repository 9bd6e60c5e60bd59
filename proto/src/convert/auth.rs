//! Messages of `AuthService`.

use assay_core::model::auth::{SignInRequested, SignedIn};

use super::timestamp;
use crate::v1;

impl From<SignInRequested> for v1::RequestSignInResponse {
    fn from(requested: SignInRequested) -> Self {
        let SignInRequested { email, expires_at } = requested;
        Self {
            email,
            expires_at: Some(timestamp(expires_at)),
        }
    }
}

impl From<SignedIn> for v1::VerifySignInResponse {
    fn from(signed_in: SignedIn) -> Self {
        let SignedIn {
            token,
            expires_at,
            user_id,
        } = signed_in;
        Self {
            token,
            expires_at: Some(timestamp(expires_at)),
            user_id: user_id.into(),
        }
    }
}
