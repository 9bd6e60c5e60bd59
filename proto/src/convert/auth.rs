//! Messages of `AuthService`.

use assay_core::model::auth::{SignInRequested, SignedIn};
use assay_core::model::device::{DeviceLogin, DeviceLoginResult};

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

impl From<DeviceLogin> for v1::CreateDeviceLoginResponse {
    fn from(login: DeviceLogin) -> Self {
        let DeviceLogin {
            device_code,
            user_code,
            verification_url,
            verification_url_complete,
            interval,
            expires_at,
        } = login;
        Self {
            device_code,
            user_code,
            verification_url,
            verification_url_complete,
            interval,
            expires_at: Some(timestamp(expires_at)),
        }
    }
}

impl From<DeviceLoginResult> for v1::PollDeviceLoginResponse {
    fn from(result: DeviceLoginResult) -> Self {
        let DeviceLoginResult { status, api_key } = result;
        Self {
            status: status.to_string(),
            api_key: api_key.map(Into::into),
        }
    }
}
