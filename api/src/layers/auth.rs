//! Authentication: looks the credential in the `Authorization` header up, or returns 401.
//! Permissions are checked later, by the operation.

use assay_core::model::permissions::{Credential, Principal};
use assay_core::model::secret::{self, SecretHash, SecretKind};
use assay_core::runtime::prometheus;
use assay_core::store;
use assay_core::store::combined_statements::LOOKUP_TIMEOUT;
use assay_core::store::credential::{self, FoundKey};
use assay_core::{BestEffort as _, Code, Error, OrgId, Result, Timestamp};
use assay_proto::operations::Access;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::operation;
use super::traffic_class::{TrafficClass, traffic_class};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::limits::Allowance;
use crate::limits::rejections::{Caller, Rejection};

/// The time at which the caller's key expires, in the response extensions for keys that expire
/// soon.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpiresSoonAt(pub(super) Timestamp);

/// Authenticates a request as its operation declares. Later layers and handlers find its [`Credential`] in
/// the extensions.
pub async fn authenticate(State(app): State<App>, request: Request, next: Next) -> Response {
    let access = operation::find(&request).map(|operation| operation.access);
    let may_do_without = match access {
        Some(Access::Anyone) => return next.run(request).await,
        Some(Access::Public(_)) => !request.headers().contains_key(AUTHORIZATION),
        _ => false,
    };
    if may_do_without {
        return next.run(request).await;
    }
    match identify(
        &app,
        traffic_class(&request),
        request.headers(),
        request.extensions().get(),
    )
    .await
    {
        Ok(credential) => {
            run_as(credential, request, async |request| next.run(request).await).await
        }
        Err(refusal) => refuse(&app, request.extensions().get(), refusal).await,
    }
}

/// Runs the remaining request with its credential, and announces a key's expiry in the response.
pub(super) async fn run_as(
    credential: Credential,
    mut request: Request,
    run: impl AsyncFnOnce(Request) -> Response,
) -> Response {
    let expires_soon_at = credential.expires_soon_at.map(ExpiresSoonAt);
    request.extensions_mut().insert(credential);
    let mut response = run(request).await;
    expires_soon_at.map(|expiry| response.extensions_mut().insert(expiry));
    response
}

/// The refusal of a request whose caller is not authenticated.
pub(super) struct Refusal {
    error: Error,
    /// The allowance, if it is known without counting the refusal.
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

/// Returns the caller's credential, or the refusal. Takes request parts, because a request's
/// body is not `Sync`.
pub(super) async fn identify(
    app: &App,
    traffic_class: TrafficClass,
    headers: &HeaderMap,
    context: Option<&RequestContext>,
) -> Result<Credential, Refusal> {
    let (kind, hash) = secret::read(bearer(headers)?).ok_or_else(invalid_token)?;
    if let Some(verdict) = caller(headers).and_then(|caller| app.limits.rejections.refusal(&caller))
    {
        return Err(Refusal {
            error: verdict.rate_limited(),
            allowance: Some(verdict.allowance),
        });
    }
    if let Some(rejection) = app.limits.rejections.rejection(&hash) {
        return Err(Error::from(rejection).into());
    }
    let mut queued = None;
    if let Some((context, (error, allowance))) =
        context.and_then(|context| Some((context, app.limits.rate.throttled(&context.address)?)))
        && !app
            .limits
            .rejections
            .is_looked_up_at_once(&hash, &context.address)
    {
        // The credential may be a valid one that this process has not seen yet. The queue protects the
        // database.
        let waited = app
            .concurrency
            .throttled_lookups
            .acquire(&context.address)
            .await;
        queued = Some(waited.map_err(|_| Refusal {
            error,
            allowance: Some(allowance),
        })?);
    }
    let look_up = async {
        // A database that takes longer counts as unavailable: requests that wait for it would only
        // accumulate.
        let found = tokio::time::timeout(
            LOOKUP_TIMEOUT,
            look_up_credential(app, traffic_class, headers, kind, &hash, context),
        )
        .await;
        let found = found.unwrap_or_else(|timeout| Err(Error::unavailable(timeout)));
        if let (Ok(_), Some(context)) = (&found, context) {
            context.trace.join();
        }
        found
    };
    let mut found = match context {
        Some(context) => context.in_span(&app.spans, "authenticate", look_up).await,
        None => look_up.await,
    };
    drop(queued);
    match &mut found {
        Ok(credential) => {
            credential.request = context.map(RequestContext::request_origin);
            app.limits.rejections.record_valid(hash);
            record_decision(plan(credential), "accepted");
        }
        Err(error) => {
            if let Some(rejection) = Rejection::of(error) {
                app.limits.rejections.record_rejection(hash, rejection);
            }
        }
    }
    Ok(found?)
}

/// Returns the caller by its headers, before it is authenticated.
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

fn invalid_token() -> Error {
    Rejection::InvalidToken.into()
}

/// Returns the caller organization's plan as a label for Prometheus metrics, or `none`.
pub fn plan(credential: &Credential) -> &str {
    credential
        .membership
        .as_ref()
        .map_or("none", |membership| &membership.org.plan)
}

fn record_decision(plan: &str, decision: &'static str) {
    metrics::counter!(prometheus::AUTH_DECISIONS, "plan" => plan.to_owned(), "decision" => decision).increment(1);
}

/// Looks a credential up in the database, and records its use.
async fn look_up_credential(
    app: &App,
    traffic_class: TrafficClass,
    headers: &HeaderMap,
    kind: SecretKind,
    hash: &SecretHash,
    context: Option<&RequestContext>,
) -> Result<Credential> {
    match kind {
        // A sign-in link creates a session, a device login a key, and the link of a suite a grant. They are no credentials.
        SecretKind::Link | SecretKind::Device | SecretKind::Grant => Err(invalid_token()),
        SecretKind::ApiKey => look_up_key(app, headers, hash, context).await,
        SecretKind::Session => look_up_session(app, traffic_class, headers, hash, context).await,
    }
}

async fn look_up_key(
    app: &App,
    headers: &HeaderMap,
    hash: &SecretHash,
    context: Option<&RequestContext>,
) -> Result<Credential> {
    match app.lookups.keys.execute(*hash).await? {
        None => Err(invalid_token()),
        Some(FoundKey::Revoked) => Err(Rejection::KeyRevoked.into()),
        Some(FoundKey::Expired { expired_at }) => Err(Rejection::KeyExpired { expired_at }.into()),
        Some(FoundKey::Live { credential, stale }) => {
            if let (true, Principal::ApiKey { key_id, .. }, Some(membership)) =
                (stale, &credential.principal, &credential.membership)
            {
                let address = context.map(|context| &*context.address);
                credential::touch_key(&app.db.jobs.get(), &membership.org.id, key_id, address)
                    .await
                    .best_effort("recording the use of a key");
            }
            Ok(restrict_to_requested_org(
                *credential,
                &RequestedOrg::of(headers),
            ))
        }
    }
}

async fn look_up_session(
    app: &App,
    traffic_class: TrafficClass,
    headers: &HeaderMap,
    hash: &SecretHash,
    context: Option<&RequestContext>,
) -> Result<Credential> {
    let is_for_job = traffic_class == TrafficClass::Jobs;
    let limits = &app.concurrency;
    let (limit, pool) = if is_for_job {
        (&limits.session_lookups_for_jobs, &app.db.jobs.get())
    } else {
        (&limits.session_lookups, &app.db.get())
    };
    // The limit keeps one busy address from taking all connections.
    let _permit = limit
        .acquire(context.map_or("unknown", |context| &context.address))
        .await?;
    // All statements use one connection: requests that hold one and wait for another could block
    // each other.
    let mut db = store::acquire_within(pool, app.settings.pool_wait).await?;
    let requested = RequestedOrg::of(headers);
    let org_id = requested.org_id();
    let found = credential::session(&mut db, hash, org_id, &app.settings.terms)
        .await?
        .ok_or_else(invalid_token)?;
    let mut credential = found.credential;
    credential.is_org_requested = requested.is_some();
    if matches!(requested, RequestedOrg::Malformed) {
        credential.membership = None;
    }
    if let (true, Some(context), Principal::Session { session_id, .. }) =
        (found.stale, context, &credential.principal)
    {
        let chosen = org_id.filter(|_| credential.membership.is_some());
        store::session::touch(&mut *db, session_id, chosen, context.origin())
            .await
            .best_effort("recording the use of a session");
    }
    Ok(credential)
}

/// Removes a key's membership if the caller requests another organization than the key's. For
/// a key, no other organization exists.
fn restrict_to_requested_org(mut credential: Credential, requested: &RequestedOrg) -> Credential {
    let own = credential
        .membership
        .as_ref()
        .map(|membership| &membership.org.id);
    if requested.is_some() && requested.org_id() != own {
        credential.is_org_requested = true;
        credential.membership = None;
    }
    credential
}

/// The organization that the caller requests with the header `X-Org-Id`.
pub enum RequestedOrg {
    /// The header is missing.
    None,
    /// The header holds a well-formed id.
    Org(OrgId),
    /// The header holds no id that an organization could have.
    Malformed,
}

impl RequestedOrg {
    /// Reads the header `X-Org-Id`.
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

/// Returns the `Authorization` header's token.
///
/// # Errors
/// `unauthenticated` if the header is missing, `invalid_token` if it is not a bearer token.
pub fn bearer(headers: &HeaderMap) -> Result<&str> {
    let missing = || {
        Error::new(
            Code::Unauthenticated,
            "Send an API key or a session token: Authorization: Bearer <TOKEN>",
        )
    };
    let value = headers.get(AUTHORIZATION).ok_or_else(missing)?;
    let malformed = || {
        Error::new(
            Code::InvalidToken,
            "The Authorization header must be: Bearer <TOKEN>",
        )
    };
    let (scheme, token) = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().split_once(' '))
        .ok_or_else(malformed)?;
    if scheme.eq_ignore_ascii_case("bearer") {
        Ok(token.trim())
    } else {
        Err(malformed())
    }
}

/// Returns the response to a refusal. Counts an invalid credential as a failed authentication by
/// the client's address.
pub(super) async fn refuse(
    app: &App,
    context: Option<&RequestContext>,
    Refusal { error, allowance }: Refusal,
) -> Response {
    let is_failure = matches!(error.code, Code::InvalidToken | Code::KeyRevoked);
    let (error, allowance) = match context.filter(|_| is_failure) {
        Some(context) => {
            let (error, allowance) = app
                .limits
                .rate
                .record_failure(&context.address, error)
                .await;
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
