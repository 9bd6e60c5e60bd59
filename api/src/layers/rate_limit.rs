//! Rate limit: consumes one request from the organization's allowance, or returns 429. Counts
//! admitted requests for the usage, then applies the concurrency limit.

use assay_core::model::permissions::{Credential, Principal};
use assay_core::runtime::prometheus;
use assay_core::{Error, Result};
use assay_proto::operations::Rate;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::operation;
use super::traffic_class::traffic_class;
use super::{auth, concurrency, memory};
use crate::app::App;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::limits::address::counting_prefixes;
use crate::limits::{Allowance, Verdict};

/// Requests per minute for a user without an organization, and for an address without a credential,
/// as on the plan `free`.
const LIMIT_WITHOUT_ORG: u32 = 60;

/// Limits a request as its operation declares. Must run after authentication.
pub async fn limit(State(app): State<App>, request: Request, next: Next) -> Response {
    match operation::find(&request).map_or(Rate::Org, |operation| operation.rate) {
        Rate::Org => limit_org(app, request, next).await,
        Rate::Public if request.extensions().get::<Credential>().is_some() => {
            limit_org(app, request, next).await
        }
        Rate::Public => limit_address(&app, "public", LIMIT_WITHOUT_ORG, request, next).await,
        Rate::Open => limit_address(&app, "open", OPEN_LIMIT, request, next).await,
        Rate::Mail => limit_mail(State(app), request, next).await,
        Rate::Device => {
            let limit = app.settings.device_logins_per_minute;
            limit_address(&app, "device", limit, request, next).await
        }
        Rate::Codes => limit_codes(State(app), request, next).await,
        Rate::None => next.run(request).await,
    }
}

/// Limits the requests of an organization, or of a user without one.
async fn limit_org(app: App, request: Request, next: Next) -> Response {
    let Some(credential) = request.extensions().get::<Credential>() else {
        return Failure::from(Error::internal("the rate limit runs before authentication"))
            .into_response();
    };
    let (caller, limit) = caller_limit(credential);
    let admit = app.limits.rate.admit(caller, limit);
    let verdict = match request.extensions().get::<RequestContext>() {
        Some(context) => context.in_span(&app.spans, "limit", admit).await,
        None => admit.await,
    };
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(error) => return Failure::from(error).into_response(),
    };
    let mut permit = None;
    if let (None, Some(membership)) = (verdict.refused_for, &credential.membership) {
        let org_id = &membership.org.id;
        app.usage.count(org_id);
        let class = traffic_class(&request);
        let memory = memory::reservation(request.extensions());
        match concurrency::acquire(&app, org_id, class, memory).await {
            Ok(acquired) => permit = acquired,
            Err(error) => {
                record_decision(credential, "saturated");
                return attach_allowance(verdict.allowance, Failure::from(error).into_response());
            }
        }
    }
    record_decision(
        credential,
        if verdict.refused_for.is_none() {
            "admitted"
        } else {
            "refused"
        },
    );
    if let (Some(_), Some(caller)) = (verdict.refused_for, auth::caller(request.headers())) {
        app.limits.rejections.record_refusal(caller, verdict);
    }
    let response = run_if_admitted(verdict, request, next).await;
    drop(permit);
    response
}

/// Returns the id that the requests are counted for, and their limit per minute.
fn caller_limit(credential: &Credential) -> (&str, u32) {
    match (&credential.membership, &credential.principal) {
        (Some(membership), _) => (
            membership.org.id.as_str(),
            membership.plan.requests_per_minute,
        ),
        (None, Principal::Session { user_id, .. }) => (user_id.as_str(), LIMIT_WITHOUT_ORG),
        (None, Principal::ApiKey { key_id, .. }) => (key_id.as_str(), LIMIT_WITHOUT_ORG),
    }
}

fn record_decision(credential: &Credential, decision: &'static str) {
    let plan = auth::plan(credential).to_owned();
    metrics::counter!(prometheus::RATELIMIT_DECISIONS, "plan" => plan, "decision" => decision)
        .increment(1);
}

/// Requests per minute and client address for what needs no credential and is not a board.
const OPEN_LIMIT: u32 = 600;

/// Requests per minute and client address for the receipt log's files: a mirror reads one for
/// every 256 entries.
const FILES_LIMIT: u32 = 6_000;

/// Limits the requests for the receipt log's public files, by the client's address.
pub async fn limit_files(State(app): State<App>, request: Request, next: Next) -> Response {
    limit_address(&app, "files", FILES_LIMIT, request, next).await
}

/// Limits the requests that send email and need no credential, by the client's address and its
/// wider prefixes.
pub async fn limit_mail(State(app): State<App>, request: Request, next: Next) -> Response {
    let limit = app.settings.sign_in_mails_per_minute;
    limit_address(&app, "mail", limit, request, next).await
}

/// Limits the callbacks from sign-ins with a provider. Each can make this process call the
/// provider, as [`limit_mail`] does.
pub async fn limit_callbacks(State(app): State<App>, request: Request, next: Next) -> Response {
    let limit = app.settings.sign_in_mails_per_minute;
    limit_address(&app, "callback", limit, request, next).await
}

/// Limits the requests that present a one-time code by the client's address. The headers of an admitted
/// one show how many failed authentications the address has left.
pub async fn limit_codes(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(context) = request.extensions().get::<RequestContext>() else {
        return Failure::from(Error::internal("a request has no context")).into_response();
    };
    match admit_address(&app, "codes", OPEN_LIMIT, &context.address).await {
        Ok(Some(verdict)) if verdict.refused_for.is_some() => {
            run_if_admitted(verdict, request, next).await
        }
        Ok(_) => memory::run_reserved(request, next).await,
        Err(error) => Failure::from(error).into_response(),
    }
}

/// Limits one kind of requests by the client's address and its wider prefixes.
async fn limit_address(
    app: &App,
    kind: &str,
    limit: u32,
    request: Request,
    next: Next,
) -> Response {
    let Some(context) = request.extensions().get::<RequestContext>() else {
        return Failure::from(Error::internal("a request has no context")).into_response();
    };
    match admit_address(app, kind, limit, &context.address).await {
        Ok(Some(verdict)) => run_if_admitted(verdict, request, next).await,
        Ok(None) => memory::run_reserved(request, next).await,
        Err(error) => Failure::from(error).into_response(),
    }
}

/// Counts a request for each address prefix, until one refuses it. The allowance is the address's
/// own, unless a wider prefix refuses the request.
async fn admit_address(
    app: &App,
    kind: &str,
    limit: u32,
    address: &str,
) -> Result<Option<Verdict>> {
    let mut verdict = None;
    for (prefix, multiple) in counting_prefixes(address) {
        let limit = limit.saturating_mul(multiple);
        let prefix_verdict = app
            .limits
            .rate
            .admit(&format!("{kind}.{prefix}"), limit)
            .await?;
        if prefix_verdict.refused_for.is_some() {
            return Ok(Some(prefix_verdict));
        }
        verdict = verdict.or(Some(prefix_verdict));
    }
    Ok(verdict)
}

async fn run_if_admitted(verdict: Verdict, request: Request, next: Next) -> Response {
    let response = match verdict.refused_for {
        None => memory::run_reserved(request, next).await,
        Some(_) => Failure::from(verdict.rate_limited()).into_response(),
    };
    attach_allowance(verdict.allowance, response)
}

/// Stores the allowance in the response's extensions, from which the outermost layer sets the
/// headers.
fn attach_allowance(allowance: Allowance, mut response: Response) -> Response {
    response.extensions_mut().insert(allowance);
    response
}
