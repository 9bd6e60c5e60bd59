//! The dashboard: pages for people, rendered by the server. It is a third adapter next to REST and
//! gRPC, and calls the same operations.
//!
//! Every page works without scripts. `browser` guards all: sessions in a cookie, forms with
//! a token, and the content security policy.

mod browser;
mod charts;
mod csv;
mod filters;
mod form;
mod pages;
mod response;
mod resubmission;
mod score;
mod section;
mod snippets;
mod visitor;
mod waterfall;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};

use crate::app::App;
use crate::http::assets;
use crate::layers;

use pages::{
    account, boards, compare, device, domains, home, jobs, keys, members, models, orgs, provider,
    search, sign_in, submit, suites, terms, usage,
};

/// Returns all pages' routes.
pub fn routes(app: &App) -> Router<App> {
    let signed_in = Router::new()
        .route("/", get(home::show))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/choose", get(orgs::choose).post(orgs::chosen))
        .route("/orgs/new", get(orgs::new).post(orgs::create))
        .route("/settings", get(orgs::settings).post(orgs::update))
        .route("/terms", get(terms::show).post(terms::accept))
        .route("/keys", get(keys::list).post(keys::create))
        .route(
            "/keys/{key_id}/revoke",
            get(keys::confirm_revocation).post(keys::revoke),
        )
        .route(
            "/keys/{key_id}/rotate",
            get(keys::confirm_rotation).post(keys::rotate),
        )
        .route("/members", get(members::list))
        .route("/members/{user_id}/role", post(members::set_role))
        .route(
            "/members/{user_id}/remove",
            get(members::confirm_removal).post(members::remove),
        )
        .route("/invites", post(members::invite))
        .route("/invites/{invite_id}/revoke", post(members::revoke_invite))
        .route("/domains", get(domains::list).post(domains::claim))
        .route("/domains/{domain}", post(domains::update))
        .route("/domains/{domain}/verify", post(domains::verify))
        .route(
            "/domains/{domain}/release",
            get(domains::confirm_release).post(domains::release),
        )
        .route("/suites", get(suites::list))
        .route("/suites/{suite_id}", get(suites::show))
        .route("/suites/{suite_id}/items", get(suites::items))
        .route("/suites/{suite_id}/history", get(suites::history))
        .route("/suites/{suite_id}/board", get(boards::show))
        .route("/jobs/{job_id}/board", get(boards::new).post(boards::enter))
        .route(
            "/entries/{entry_id}/withdraw",
            get(boards::confirm_withdrawal).post(boards::withdraw),
        )
        .route("/suites/{suite_id}/submit", get(submit::show))
        .route(
            "/suites/{suite_id}/submissions",
            post(submit::upload).layer(DefaultBodyLimit::disable()),
        )
        .route(
            "/suites/{suite_id}/submissions/{upload_id}",
            get(submit::check).post(submit::submit),
        )
        .route("/submit", get(submit::choose))
        .route("/uploads/{upload_id}/delete", post(submit::delete))
        .route("/jobs", get(jobs::list))
        .route("/jobs.csv", get(jobs::export))
        .route("/jobs/{job_id}", get(jobs::show))
        .route("/jobs/{job_id}/job.json", get(jobs::json))
        .route("/jobs/{job_id}/trace.json", get(jobs::trace_json))
        .route("/jobs/{job_id}/receipt.json", get(jobs::receipt_json))
        .route(
            "/jobs/{job_id}/cancel",
            get(jobs::confirm_cancellation).post(jobs::cancel),
        )
        .route("/compare", get(compare::show))
        .route("/usage", get(usage::show))
        .route("/usage.csv", get(usage::export))
        .route("/search", get(search::show))
        .route("/device", get(device::show).post(device::decide))
        .route("/models", get(models::list))
        .route("/models/{model_id}", get(models::get))
        .route("/account", get(account::show))
        .route("/account/theme", post(account::set_theme))
        .route("/account/mails", post(account::set_mails))
        .route("/account/unlink", post(account::unlink))
        .route("/account/sessions/end", post(account::end_all_sessions))
        .route(
            "/account/sessions/{session_id}/end",
            post(account::end_session),
        )
        .route_layer((
            from_fn_with_state(app.clone(), layers::auth::authenticate),
            from_fn_with_state(app.clone(), layers::rate_limit::limit),
        ));
    let callbacks = Router::new()
        .route("/sign-in/oidc/{provider}/callback", get(provider::finish))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_callbacks,
        ));
    let mail = Router::new()
        .route("/sign-in", post(sign_in::request))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_mail,
        ));
    let codes = Router::new()
        .route("/sign-in", get(sign_in::show))
        .route("/sign-in/link", post(sign_in::verify))
        .route("/sign-in/oidc/{provider}", get(provider::start))
        .route_layer(from_fn_with_state(
            app.clone(),
            layers::rate_limit::limit_codes,
        ));
    signed_in
        .merge(mail)
        .merge(codes)
        .merge(callbacks)
        .route_layer(from_fn_with_state(app.clone(), browser::serve))
        .merge(assets::routes())
}
