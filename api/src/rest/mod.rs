//! The REST adapter, one file per resource: extracts the input, calls the operation, returns the
//! response. Decisions belong to the operations.

mod audit;
mod auth;
mod boards;
mod comparisons;
mod device;
mod domains;
mod evals;
mod events;
pub mod extract;
mod health;
pub mod input;
mod invites;
mod jobs;
mod keys;
mod me;
mod members;
mod models;
mod orgs;
mod predictions;
mod queue;
mod receipts;
mod serving;
mod sessions;
mod sse;
mod suites;
mod terms;
mod uploads;
mod usage;
mod webhooks;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, patch, post, put};

use crate::app::App;
use crate::layers;

pub use extract::Id;

/// Returns every route. Its layers run only if a route and its method match, so that an unknown
/// path is 404 and a wrong method 405 for every caller.
pub fn routes(app: &App) -> Router<App> {
    let v1 = Router::new()
        .route("/v1/me", get(me::get))
        .route("/v1/audit", get(audit::list))
        .route("/v1/events", get(events::list))
        .route("/v1/keys", get(keys::list).post(keys::create))
        .route(
            "/v1/keys/{key_id}",
            patch(keys::update).delete(keys::revoke),
        )
        .route("/v1/keys/{key_id}/rotate", post(keys::rotate))
        .route("/v1/entries", get(boards::list_entries))
        .route("/v1/entries/{entry_id}", delete(boards::withdraw))
        .route("/v1/suites", get(suites::list))
        .route("/v1/suites/{suite_id}", get(suites::get))
        .route("/v1/suites/{suite_id}/items", get(suites::items))
        .route("/v1/members", get(members::list))
        .route(
            "/v1/members/{user_id}",
            patch(members::set_role).delete(members::remove),
        )
        .route("/v1/models", get(models::list))
        .route("/v1/models/{model_id}", get(models::get))
        .route("/v1/queue", get(queue::get))
        .route("/v1/usage", get(usage::get))
        .route("/v1/usage/days", get(usage::days))
        .route("/v1/uploads", get(uploads::list).post(uploads::create))
        .route(
            "/v1/uploads/{upload_id}",
            get(uploads::get).delete(uploads::delete),
        )
        .route(
            "/v1/uploads/{upload_id}/parts/{number}",
            put(uploads::put_part),
        )
        .route("/v1/uploads/{upload_id}/complete", post(uploads::complete))
        .route("/v1/models/{model_id}/predict", post(serving::predict))
        .route("/v1/models/{model_id}/generate", post(serving::generate))
        .route("/v1/models/{model_id}/embed", post(serving::embed))
        .route("/v1/evals", post(evals::create))
        .route("/v1/predictions", post(predictions::create))
        .route("/v1/comparisons", post(comparisons::create))
        .route("/v1/jobs", get(jobs::list))
        .route("/v1/jobs/{job_id}", get(jobs::get))
        .route("/v1/jobs/{job_id}/board", post(boards::enter))
        .route("/v1/jobs/{job_id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{job_id}/events", get(jobs::events))
        .route("/v1/jobs/{job_id}/final", post(jobs::finalize))
        .route("/v1/jobs/{job_id}/items", get(jobs::items))
        .route("/v1/jobs/{job_id}/output", get(jobs::output))
        .route("/v1/jobs/{job_id}/receipt", get(receipts::of_job))
        .route("/v1/jobs/{job_id}/receipt/opening", get(receipts::opening))
        .route("/v1/jobs/{job_id}/trace", get(jobs::trace))
        .route("/v1/session", delete(sessions::end_current))
        .route(
            "/v1/sessions",
            get(sessions::list).delete(sessions::end_others),
        )
        .route("/v1/sessions/{session_id}", delete(sessions::end))
        .route("/v1/orgs", post(orgs::create))
        .route("/v1/orgs/{org_id}", patch(orgs::update))
        .route("/v1/invites", get(invites::list).post(invites::create))
        .route("/v1/invites/{invite_id}", delete(invites::revoke))
        .route("/v1/terms", get(terms::get))
        .route("/v1/terms/accept", post(terms::accept))
        .route("/v1/domains", get(domains::list).post(domains::claim))
        .route(
            "/v1/domains/{domain}",
            patch(domains::update).delete(domains::release),
        )
        .route("/v1/domains/{domain}/verify", post(domains::verify))
        .route("/v1/webhooks", get(webhooks::list).post(webhooks::create))
        .route(
            "/v1/webhooks/{webhook_id}",
            get(webhooks::get)
                .patch(webhooks::update)
                .delete(webhooks::delete),
        )
        .route("/v1/webhooks/{webhook_id}/rotate", post(webhooks::rotate))
        .route("/v1/webhooks/{webhook_id}/test", post(webhooks::test))
        .route(
            "/v1/webhooks/{webhook_id}/deliveries",
            get(webhooks::deliveries),
        )
        .route(
            "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/retry",
            post(webhooks::retry),
        )
        .route("/v1/webhooks/{webhook_id}/recover", post(webhooks::recover))
        .route_layer((
            from_fn_with_state(app.clone(), layers::auth::authenticate),
            from_fn_with_state(app.clone(), layers::rate_limit::limit),
        ));
    let public = Router::new()
        .route("/v1/suites/{suite_id}/board", get(boards::get))
        .route("/v1/receipts/{receipt_id}", get(receipts::by_id))
        .route_layer((
            from_fn_with_state(app.clone(), layers::auth::authenticate_if_given),
            from_fn_with_state(app.clone(), layers::rate_limit::limit_public),
        ));
    let commitments = Router::new()
        .route(
            "/v1/suites/{suite_id}/commitment",
            get(receipts::commitment),
        )
        .route(
            "/v1/suites/{suite_id}/opening/{file}",
            get(receipts::opened_file),
        )
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_open,
        ));
    let device = Router::new()
        .route("/v1/auth/device", post(device::create))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_device_logins,
        ));
    let codes = Router::new()
        .route("/v1/auth/device/token", post(device::poll))
        .route("/v1/auth/email/verify", post(auth::verify))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_codes,
        ));
    let open = Router::new()
        .route("/v1/auth/email", post(auth::request))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_mail,
        ))
        .route("/health", get(health::get));
    open.merge(device)
        .merge(codes)
        .merge(receipts::files(app))
        .merge(commitments)
        .merge(public)
        .merge(v1)
}

/// The OpenAPI description of every operation, as its handler defines it.
#[derive(utoipa::OpenApi)]
#[openapi(paths(
    health::get,
    me::get,
    audit::list,
    events::list,
    keys::list,
    keys::create,
    keys::update,
    keys::rotate,
    keys::revoke,
    suites::list,
    suites::get,
    suites::items,
    members::list,
    members::set_role,
    members::remove,
    models::list,
    models::get,
    serving::predict,
    serving::generate,
    serving::embed,
    queue::get,
    usage::get,
    usage::days,
    evals::create,
    predictions::create,
    comparisons::create,
    boards::enter,
    boards::withdraw,
    boards::list_entries,
    boards::get,
    receipts::of_job,
    receipts::opening,
    receipts::by_id,
    receipts::commitment,
    receipts::opened_file,
    jobs::list,
    jobs::get,
    jobs::cancel,
    jobs::events,
    jobs::finalize,
    jobs::items,
    jobs::output,
    jobs::trace,
    uploads::list,
    uploads::create,
    uploads::get,
    uploads::put_part,
    uploads::complete,
    uploads::delete,
    auth::request,
    auth::verify,
    device::create,
    device::poll,
    sessions::end_current,
    sessions::list,
    sessions::end,
    sessions::end_others,
    orgs::create,
    orgs::update,
    invites::list,
    invites::create,
    invites::revoke,
    domains::list,
    domains::claim,
    domains::verify,
    domains::update,
    domains::release,
    terms::get,
    terms::accept,
    webhooks::list,
    webhooks::create,
    webhooks::get,
    webhooks::update,
    webhooks::delete,
    webhooks::rotate,
    webhooks::test,
    webhooks::deliveries,
    webhooks::retry,
    webhooks::recover,
))]
pub struct Operations;
