//! Who calls: from the `Authorization` header to a credential, or 401. What it may do is decided later.

use std::time::Duration;

use assay_core::principal::{Credential, Principal};
use assay_core::secret::{self, SecretKind};
use assay_core::store;
use assay_core::store::credential::{self, FoundKey};
use assay_core::{CanFail as _, Code, Error, OrgId, Result, telemetry};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::Call;
use super::lane::Lane;
use crate::app::App;
use crate::render::Failure;

/// How long the look-up may take.
const LOOK_UP: Duration = Duration::from_millis(1800);

/// The layer. Behind it every request has a [`Credential`].
pub async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let (lane, headers, call) = (Lane::of(&request), request.headers(), request.extensions().get::<Call>());
    let look_up = async {
        // A database that does not even answer is away; what waits for it would only pile up.
        let found = tokio::time::timeout(LOOK_UP, credential(&app, lane, headers, call)).await;
        found.unwrap_or_else(|late| Err(Error::unavailable(late)))
    };
    let found = match call {
        Some(call) => call.during(&app.spans, "authenticate", look_up).await,
        None => look_up.await,
    };
    match found {
        Ok(credential) => {
            decided(plan(&credential), "accepted");
            request.extensions_mut().insert(credential);
            next.run(request).await
        }
        Err(error) => refused(&app, call, error).await,
    }
}

/// The plan that a caller is on, for the metrics.
pub fn plan(credential: &Credential) -> &str {
    credential.membership.as_ref().map_or("none", |membership| &membership.org.plan)
}

fn decided(plan: &str, decision: &'static str) {
    metrics::counter!(telemetry::AUTH_DECISIONS, "plan" => plan.to_owned(), "decision" => decision).increment(1);
}

async fn credential(app: &App, lane: Lane, headers: &HeaderMap, call: Option<&Call>) -> Result<Credential> {
    let token = bearer(headers)?;
    let invalid = || Error::new(Code::InvalidToken, "The key or session token is not valid.");
    let (kind, hash) = secret::read(token).ok_or_else(invalid)?;
    let [look_ups_for_jobs, other_look_ups] = &app.look_ups;
    let (pool, look_ups) = if lane == Lane::Jobs { (&app.jobs_db, look_ups_for_jobs) } else { (&app.db, other_look_ups) };
    // One address that asks very often leaves connections for the others.
    let _turn = look_ups.take(call.map_or("unknown", |call| &call.address)).await?;
    // One connection for all of it: who holds one and waits for another stands in everybody's way.
    let mut db = store::soon(pool, app.settings.pool_wait).await?;
    match kind {
        // It signs in; it is not a credential.
        SecretKind::Link => Err(invalid()),
        SecretKind::ApiKey => match credential::key(&mut *db, &hash, &app.settings.terms).await? {
            None => Err(invalid()),
            Some(FoundKey::Revoked) => Err(Error::new(Code::KeyRevoked, "This key was revoked. Create another one.")),
            Some(FoundKey::Live { credential, stale }) => {
                if let (true, Principal::ApiKey { key_id }, Some(membership)) = (stale, &credential.principal, &credential.membership) {
                    credential::touch_key(&mut *db, &membership.org.id, key_id).await.can_fail("noting that a key was used");
                }
                Ok(asking(*credential, &Asked::of(headers)))
            }
        },
        SecretKind::Session => {
            let asked = Asked::of(headers);
            let org_id = asked.org_id();
            let found = credential::session(&mut *db, &hash, org_id, &app.settings.terms).await?.ok_or_else(invalid)?;
            let mut credential = found.credential;
            credential.asked_for_org = asked.is_some();
            if matches!(asked, Asked::Malformed) {
                credential.membership = None;
            }
            if let (true, Principal::Session { session_id, .. }) = (found.stale, &credential.principal) {
                let chosen = org_id.filter(|_| credential.membership.is_some());
                credential::touch_session(&mut *db, chosen, session_id).await.can_fail("noting that a session was used");
            }
            Ok(credential)
        }
    }
}

/// A key has one organization: to it, any other that the caller asks for does not exist.
fn asking(mut credential: Credential, asked: &Asked) -> Credential {
    let own = credential.membership.as_ref().map(|membership| &membership.org.id);
    if asked.is_some() && asked.org_id() != own {
        credential.asked_for_org = true;
        credential.membership = None;
    }
    credential
}

/// The organization that the caller asks for by the header `X-Org-Id`.
pub enum Asked {
    /// The header is not there.
    None,
    /// This one.
    Org(OrgId),
    /// None that there could be.
    Malformed,
}

impl Asked {
    /// Reads the header.
    pub fn of(headers: &HeaderMap) -> Self {
        match headers.get("x-org-id") {
            None => Self::None,
            Some(value) => value.to_str().ok().and_then(|text| text.parse().ok()).map_or(Self::Malformed, Self::Org),
        }
    }

    const fn is_some(&self) -> bool {
        !matches!(self, Self::None)
    }

    const fn org_id(&self) -> Option<&OrgId> {
        match self {
            Self::Org(org_id) => Some(org_id),
            Self::None | Self::Malformed => None,
        }
    }
}

/// The token in the header `Authorization`.
pub fn bearer(headers: &HeaderMap) -> Result<&str> {
    let missing = || Error::new(Code::Unauthenticated, "Send an API key or a session token: Authorization: Bearer <TOKEN>");
    let value = headers.get(AUTHORIZATION).ok_or_else(missing)?;
    // A header that is there but is not a bearer token is a credential that is not valid.
    let invalid = || Error::new(Code::InvalidToken, "The Authorization header must be: Bearer <TOKEN>");
    let (scheme, token) = value.to_str().ok().and_then(|text| text.trim().split_once(' ')).ok_or_else(invalid)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(token.trim()) } else { Err(invalid()) }
}

/// The refusal. A credential that was presented and did not hold is counted against the address that it came from.
async fn refused(app: &App, call: Option<&Call>, error: Error) -> Response {
    let failed = matches!(error.code, Code::InvalidToken | Code::KeyRevoked);
    let Some(call) = call.filter(|_| failed) else {
        decided("none", if error.code == Code::Unauthenticated { "unauthenticated" } else { "unavailable" });
        return Failure::from(error).into_response();
    };
    let (error, allowance) = app.limits.failed(&call.address, error).await;
    decided("none", if error.code == Code::RateLimited { "throttled" } else { error.code.as_str() });
    let mut response = Failure::from(error).into_response();
    response.extensions_mut().insert(allowance);
    response
}
