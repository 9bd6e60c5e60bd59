//! How often: one request of the organization's allowance, or 429.

use assay_core::model::permissions::{Credential, Principal};
use assay_core::runtime::prometheus;
use assay_core::{Code, Error};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::traffic_class::TrafficClass;
use super::{auth, memory};
use crate::app::App;
use crate::http::client_address;
use crate::http::error_response::Failure;
use crate::http::request_context::RequestContext;
use crate::limits::{Allowance, Verdict};

/// What a person without an organization may ask, as on the plan `free`.
const WITHOUT_ORG: u32 = 60;

/// The layer. It stands behind authentication.
pub async fn limit(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(credential) = request.extensions().get::<Credential>() else {
        return Failure::from(Error::internal(
            "the limit stands before the authentication",
        ))
        .into_response();
    };
    let (who, limit) = match (&credential.membership, &credential.principal) {
        (Some(membership), _) => (
            membership.org.id.as_str(),
            membership.plan.requests_per_minute,
        ),
        (None, Principal::Session { user_id, .. }) => (user_id.as_str(), WITHOUT_ORG),
        (None, Principal::ApiKey { key_id }) => (key_id.as_str(), WITHOUT_ORG),
    };
    let admit = app.limits.admit(who, limit);
    let verdict = match request.extensions().get::<RequestContext>() {
        Some(call) => call.during(&app.spans, "limit", admit).await,
        None => admit.await,
    };
    let verdict = match verdict {
        Ok(verdict) => verdict,
        Err(error) => return Failure::from(error).into_response(),
    };
    let mut permit = None;
    if let (None, Some(membership)) = (verdict.refused_for, &credential.membership) {
        app.usage.count(&membership.org.id);
        let taken = match TrafficClass::of(&request) {
            TrafficClass::Ordinary => app
                .requests_in_progress
                .acquire(membership.org.id.as_str())
                .await
                .map(Some)
                .map_err(saturated),
            TrafficClass::Jobs | TrafficClass::Submission | TrafficClass::Large => Ok(None),
        };
        let held = memory::held(request.extensions());
        let admitted = async {
            permit = taken?;
            // From here on the organization holds the memory of the request.
            held?.move_to(who).await
        };
        if let Err(error) = admitted.await {
            record_decision(credential, "saturated");
            return attach_allowance(verdict.allowance, Failure::from(error).into_response());
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
        app.lookups.refused(caller, verdict);
    }
    let response = run_if_admitted(verdict, request, next).await;
    drop(permit);
    response
}

fn record_decision(credential: &Credential, decision: &'static str) {
    let plan = auth::plan(credential).to_owned();
    metrics::counter!(prometheus::RATELIMIT_DECISIONS, "plan" => plan, "decision" => decision)
        .increment(1);
}

/// One organization asks for very much at the same time, and what was begun for it does not end.
fn saturated(error: Error) -> Error {
    let message = "Too many requests of your organization are under way at once. Let some of them end, and retry with backoff.";
    Error {
        message: message.into(),
        ..error
    }
}

/// The layer of what sends mail and asks for no credential: it is limited by the client's address, and by the networks around it.
pub async fn limit_mail(State(app): State<App>, request: Request, next: Next) -> Response {
    let Some(call) = request.extensions().get::<RequestContext>() else {
        return Failure::from(Error::internal("a request without an address")).into_response();
    };
    let mut verdict = None;
    for (prefix, multiple) in client_address::counting_prefixes(&call.address) {
        let limit = app
            .settings
            .sign_in_mails_per_minute
            .saturating_mul(multiple);
        match app.limits.admit(&format!("mail.{prefix}"), limit).await {
            Err(error) => return Failure::from(error).into_response(),
            Ok(refused) if refused.refused_for.is_some() => {
                verdict = Some(refused);
                break;
            }
            // Callers see the allowance of their own address, unless a wider network has none left.
            Ok(admitted) => verdict = verdict.or(Some(admitted)),
        }
    }
    match verdict {
        Some(verdict) => run_if_admitted(verdict, request, next).await,
        None => next.run(request).await,
    }
}

async fn run_if_admitted(verdict: Verdict, request: Request, next: Next) -> Response {
    let Verdict {
        refused_for,
        allowance,
    } = verdict;
    let response = match refused_for {
        None => next.run(request).await,
        Some(_) => Failure::from(refusal(verdict)).into_response(),
    };
    attach_allowance(allowance, response)
}

/// The error of a request beyond the limit.
pub fn refusal(
    Verdict {
        refused_for,
        allowance,
    }: Verdict,
) -> Error {
    let seconds = refused_for.unwrap_or(1);
    let message = format!(
        "More than {} requests in a minute. Wait {seconds} s.",
        allowance.limit
    );
    Error {
        retry_after: Some(seconds),
        ..Error::new(Code::RateLimited, message)
    }
}

fn attach_allowance(allowance: Allowance, mut response: Response) -> Response {
    response.extensions_mut().insert(allowance);
    response
}
