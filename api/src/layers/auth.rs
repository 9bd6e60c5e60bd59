//! Who calls: from the `Authorization` header to a credential, or 401. What it may do is decided later.

use std::time::Duration;

use assay_core::model::permissions::{Credential, Principal};
use assay_core::model::secret::{self, SecretHash, SecretKind};
use assay_core::runtime::prometheus;
use assay_core::store;
use assay_core::store::credential::{self, FoundKey};
use assay_core::{BestEffort as _, Code, Error, OrgId, Result};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::rate_limit;
use super::traffic_class::TrafficClass;
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::limits::Allowance;
use crate::limits::rejections::Caller;

/// How long the look-up may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1800);

/// The layer. After it every request has a [`Credential`].
pub async fn authenticate(State(app): State<App>, mut request: Request, next: Next) -> Response {
    match identify(
        &app,
        TrafficClass::of(&request),
        request.headers(),
        request.extensions().get(),
    )
    .await
    {
        Ok(credential) => {
            request.extensions_mut().insert(credential);
            next.run(request).await
        }
        Err(refusal) => refused(&app, request.extensions().get(), refusal).await,
    }
}

/// The layer of unknown paths and of methods that a path does not take. Everybody gets the same 404 or 405, but a request with
/// a valid credential is one of its organization's: it is counted, and shows the organization's limit.
pub async fn count_unrouted(State(app): State<App>, mut request: Request, next: Next) -> Response {
    if !request.headers().contains_key(AUTHORIZATION) {
        return next.run(request).await;
    }
    match identify(
        &app,
        TrafficClass::of(&request),
        request.headers(),
        request.extensions().get(),
    )
    .await
    {
        Ok(credential) => {
            request.extensions_mut().insert(credential);
            rate_limit::limit(State(app), request, next).await
        }
        Err(refusal) => {
            let allowance = refused(&app, request.extensions().get(), refusal)
                .await
                .extensions()
                .get::<Allowance>()
                .copied();
            let mut response = next.run(request).await;
            allowance.map(|allowance| response.extensions_mut().insert(allowance));
            response
        }
    }
}

/// Why a request is not authenticated, or not even looked at.
struct Refusal {
    error: Error,
    /// What is left, where it is known already and nothing is to be counted.
    allowance: Option<Allowance>,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self {
            error,
            allowance: None,
        }
    }
}

/// The caller's credential, or the refusal. It takes parts of a request, because threads cannot share a body.
async fn identify(
    app: &App,
    traffic_class: TrafficClass,
    headers: &HeaderMap,
    call: Option<&RequestContext>,
) -> Result<Credential, Refusal> {
    let (kind, hash) = secret::read(bearer(headers)?).ok_or_else(invalid)?;
    if let Some(verdict) = caller(headers).and_then(|caller| app.lookups.refusal(&caller)) {
        return Err(Refusal {
            error: rate_limit::refusal(verdict),
            allowance: Some(verdict.allowance),
        });
    }
    if let Some(code) = app.lookups.rejection(&hash) {
        return Err(rejection(code).into());
    }
    if let Some((call, (error, allowance))) =
        call.and_then(|call| Some((call, app.limits.throttled(&call.address)?)))
        && !app.lookups.may_look_up(&hash, &call.address)
    {
        return Err(Refusal {
            error,
            allowance: Some(allowance),
        });
    }
    let look_up = async {
        // A database that does not even answer is away; what waits for it would only pile up.
        // One address that asks very often leaves connections for the others.
        let [of_jobs, others] = &app.credential_lookups;
        let limit = if traffic_class == TrafficClass::Jobs {
            of_jobs
        } else {
            others
        };
        let _permit = limit
            .acquire(call.map_or("unknown", |call| &call.address))
            .await?;
        let found = tokio::time::timeout(
            LOOKUP_TIMEOUT,
            credential(app, traffic_class, headers, kind, &hash, call),
        )
        .await;
        let found = found.unwrap_or_else(|late| Err(Error::unavailable(late)));
        if let (Ok(_), Some(call)) = (&found, call) {
            call.trace.join();
        }
        found
    };
    let found = match call {
        Some(call) => call.during(&app.spans, "authenticate", look_up).await,
        None => look_up.await,
    };
    match &found {
        Ok(credential) => {
            app.lookups.accepted(hash);
            record_decision(plan(credential), "accepted");
        }
        Err(error) if matches!(error.code, Code::InvalidToken | Code::KeyRevoked) => {
            app.lookups.rejected(hash, error.code);
        }
        Err(_) => {}
    }
    Ok(found?)
}

/// The caller as the headers name it.
pub fn caller(headers: &HeaderMap) -> Option<Caller> {
    let (_, hash) = secret::read(bearer(headers).ok()?)?;
    Some((
        hash,
        headers
            .get("x-org-id")
            .and_then(|org_id| org_id.to_str().ok())
            .map(Box::from),
    ))
}

fn invalid() -> Error {
    rejection(Code::InvalidToken)
}

/// The error of a credential that does not hold.
fn rejection(code: Code) -> Error {
    let message = match code {
        Code::KeyRevoked => "This key was revoked. Create another one.",
        _ => "The key or session token is not valid.",
    };
    Error::new(code, message)
}

/// The plan that a caller is on, for the metrics.
pub fn plan(credential: &Credential) -> &str {
    credential
        .membership
        .as_ref()
        .map_or("none", |membership| &membership.org.plan)
}

fn record_decision(plan: &str, decision: &'static str) {
    metrics::counter!(prometheus::AUTH_DECISIONS, "plan" => plan.to_owned(), "decision" => decision).increment(1);
}

async fn credential(
    app: &App,
    traffic_class: TrafficClass,
    headers: &HeaderMap,
    kind: SecretKind,
    hash: &SecretHash,
    call: Option<&RequestContext>,
) -> Result<Credential> {
    let pool = if traffic_class == TrafficClass::Jobs {
        &app.jobs_db
    } else {
        &app.db
    };
    // One connection for all of it: who holds one and waits for another stands in everybody's way.
    let mut db = store::acquire_within(pool, app.settings.pool_wait).await?;
    match kind {
        // It signs in; it is not a credential.
        SecretKind::Link => Err(invalid()),
        SecretKind::ApiKey => match credential::key(&mut *db, hash, &app.settings.terms).await? {
            None => Err(invalid()),
            Some(FoundKey::Revoked) => Err(rejection(Code::KeyRevoked)),
            Some(FoundKey::Live { credential, stale }) => {
                if let (true, Principal::ApiKey { key_id }, Some(membership)) =
                    (stale, &credential.principal, &credential.membership)
                {
                    credential::touch_key(&mut *db, &membership.org.id, key_id)
                        .await
                        .best_effort("noting that a key was used");
                }
                Ok(restrict_to_requested_org(
                    *credential,
                    &RequestedOrg::of(headers),
                ))
            }
        },
        SecretKind::Session => {
            let asked = RequestedOrg::of(headers);
            let org_id = asked.org_id();
            let found = credential::session(&mut db, hash, org_id, &app.settings.terms)
                .await?
                .ok_or_else(invalid)?;
            let mut credential = found.credential;
            credential.asked_for_org = asked.is_some();
            if matches!(asked, RequestedOrg::Malformed) {
                credential.membership = None;
            }
            if let (true, Some(call), Principal::Session { session_id, .. }) =
                (found.stale, call, &credential.principal)
            {
                let chosen = org_id.filter(|_| credential.membership.is_some());
                store::session::touch(&mut *db, session_id, chosen, call.origin())
                    .await
                    .best_effort("noting that a session was used");
            }
            Ok(credential)
        }
    }
}

/// A key has one organization: to it, any other that the caller asks for does not exist.
fn restrict_to_requested_org(mut credential: Credential, asked: &RequestedOrg) -> Credential {
    let own = credential
        .membership
        .as_ref()
        .map(|membership| &membership.org.id);
    if asked.is_some() && asked.org_id() != own {
        credential.asked_for_org = true;
        credential.membership = None;
    }
    credential
}

/// The organization that the caller asks for by the header `X-Org-Id`.
pub enum RequestedOrg {
    /// The header is not there.
    None,
    /// This one.
    Org(OrgId),
    /// None that there could be.
    Malformed,
}

impl RequestedOrg {
    /// Reads the header.
    pub fn of(headers: &HeaderMap) -> Self {
        match headers.get("x-org-id") {
            None => Self::None,
            Some(value) => value
                .to_str()
                .ok()
                .and_then(|text| text.parse().ok())
                .map_or(Self::Malformed, Self::Org),
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
    let missing = || {
        Error::new(
            Code::Unauthenticated,
            "Send an API key or a session token: Authorization: Bearer <TOKEN>",
        )
    };
    let value = headers.get(AUTHORIZATION).ok_or_else(missing)?;
    // A header that is there but is not a bearer token is a credential that is not valid.
    let invalid = || {
        Error::new(
            Code::InvalidToken,
            "The Authorization header must be: Bearer <TOKEN>",
        )
    };
    let (scheme, token) = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().split_once(' '))
        .ok_or_else(invalid)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(token.trim())
    } else {
        Err(invalid())
    }
}

/// The response to a refusal. A credential that was presented and did not hold is counted against the address that it came from.
async fn refused(
    app: &App,
    call: Option<&RequestContext>,
    Refusal { error, allowance }: Refusal,
) -> Response {
    let failed = matches!(error.code, Code::InvalidToken | Code::KeyRevoked);
    let (error, allowance) = match call.filter(|_| failed) {
        Some(call) => {
            let (error, allowance) = app.limits.failed(&call.address, error).await;
            (error, Some(allowance))
        }
        None => (error, allowance),
    };
    record_decision(
        "none",
        match error.code {
            Code::RateLimited => "throttled",
            Code::Unauthenticated | Code::InvalidToken | Code::KeyRevoked => error.code.as_str(),
            _ => "unavailable",
        },
    );
    let mut response = Failure::from(error).into_response();
    allowance.map(|allowance| response.extensions_mut().insert(allowance));
    response
}
