//! The process: what it begins with, the layers around both wires, and the way down when it is told to end.

use std::time::Duration;

use assay_core::runtime::process;
use assay_core::runtime::resource_metrics::ResourceMetrics;
use assay_core::runtime::settings::{ADMIN_LISTEN, LISTEN};
use assay_core::store::{self, PoolProfile, migrations};
use assay_core::{BestEffort as _, Error, Result};
use axum::Router;
use axum::handler::Handler as _;
use axum::middleware::{from_fn, from_fn_with_state};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;

use crate::app::App;
use crate::background::{cleanup, dispatcher, domain_checks, mail, reconciliation};
use crate::http::connections::Connections;
use crate::http::not_found;
use crate::layers::{auth, cors, deadline, memory, observe, syntax};
use crate::rest::{self, sign_in_page};
use crate::settings::Settings;
use crate::{grpc, openapi};

/// Serves until the process is told to end (SIGTERM or SIGINT), then finishes what it has begun.
/// `metrics` is what operators are shown.
pub async fn serve(settings: Settings, metrics: PrometheusHandle) -> Result<()> {
    let listener = process::bind(&LISTEN, settings.listen).await?;
    let admin_listener = process::bind(&ADMIN_LISTEN, settings.common.admin_listen).await?;
    let (stop, stopped) = watch::channel(false);
    let (mailer, delivery) = mail::open(&settings.mail)?;
    let app = App::new(settings.clone(), mailer, stopped.clone()).await?;
    process::ensure_schema_is_current(&app.db).await?;
    refuse_to_read_answers(&app).await?;
    // The first request should not be the one that waits for the connection.
    app.limits.address("").await;
    // A connection of its own: requests that take all others must not make a process that is alive unready.
    let readiness = store::pool(
        &settings.common.database_url,
        1,
        "assay-readiness",
        PoolProfile::REQUESTS,
    )?;
    let admin = tokio::spawn(process::serve_admin(
        admin_listener,
        metrics,
        readiness,
        stopped.clone(),
    ));
    let resource_metrics = ResourceMetrics::new(
        &settings.common,
        [("jobs", &app.jobs_db), ("requests", &app.db)],
    )?;
    let resource_metrics = tokio::spawn(resource_metrics.sample(Some(app.jobs_db.clone())));
    let mut dispatcher = tokio::spawn(dispatcher::run(app.clone(), stopped.clone()));
    let cleanup = tokio::spawn(cleanup::run(app.clone(), stopped.clone()));
    let reconciliation = tokio::spawn(reconciliation::run(app.clone(), stopped.clone()));
    let telling = app.clone();
    let telling = tokio::spawn(async move {
        dispatcher::notify_dispatchers(telling.db.clone(), &telling.submitted).await;
    });
    let changes = tokio::spawn(
        app.job_updates
            .clone()
            .forward_notifications(app.db.clone()),
    );
    let delivery = tokio::spawn(delivery.run());
    let domain_checks = tokio::spawn(domain_checks::run(app.clone()));
    let limits = app.clone();
    let processes =
        tokio::spawn(async move { limits.limits.keep_counting_processes(&limits.jobs_db).await });
    let (counting, until) = (app.clone(), stopped);
    let requests =
        tokio::spawn(async move { counting.usage.flush_periodically(&counting.db, until).await });
    tracing::info!(listen = %settings.listen, admin = %settings.common.admin_listen, env = settings.env, git_sha = settings.common.git_sha, "serving");

    let router = router(app.clone()).await?;
    let connections = Connections::new(&settings, app.memory.clone())?;
    tokio::select! {
        accepted = connections.accept(listener, router) => accepted?,
        // Without it, jobs would wait for ever: rather no process than half a one.
        ended = &mut dispatcher => return Err(Error::internal(format!("the dispatcher ended: {ended:?}"))),
    };
    // What comes after this line happens on the way down.
    stop.send_replace(true);
    tracing::info!("told to end: finishing what was begun");
    if tokio::time::timeout(settings.common.drain, connections.end())
        .await
        .is_err()
    {
        tracing::warn!("some requests did not end in time and were cut off");
    }
    // What those requests wrote to people still goes out; a mail server that does not answer must not keep the process.
    app.mailer.close();
    tokio::time::timeout(Duration::from_secs(5), delivery)
        .await
        .best_effort("sending the last mails");
    // A query that hangs must not keep the process.
    tokio::time::timeout(Duration::from_secs(2), dispatcher)
        .await
        .best_effort("ending the dispatcher");
    // They may be dropped anywhere; the next process continues.
    cleanup.abort();
    reconciliation.abort();
    admin.abort();
    changes.abort();
    domain_checks.abort();
    telling.abort();
    processes.abort();
    requests.await.map_err(Error::internal)?;
    // What was answered while the connections ended.
    app.usage
        .flush(&app.db)
        .await
        .best_effort("adding up the last requests");
    resource_metrics.abort();
    app.spans.clone().close().await;
    process::close(&app.db).await;
    Ok(())
}

/// By construction the api cannot read answers: it does not serve with a role that could.
async fn refuse_to_read_answers(app: &App) -> Result<()> {
    if migrations::can_read_answers(&app.db).await? {
        let told = "the role in ASSAY_DATABASE_URL can read the answers of suites, and the api must not: give it a login role that is \
                    a member of assay_api and of nothing else, such as: create role assay_api_1 login password '…' in role assay_api";
        return Err(Error::internal(told));
    }
    Ok(())
}

/// Both wires under the layers that every request goes through.
async fn router(app: App) -> Result<Router> {
    let unrouted = || from_fn_with_state(app.clone(), auth::count_unrouted);
    let pages = rest::routes(&app)
        .merge(sign_in_page::routes())
        .merge(openapi::routes());
    let pages = pages.method_not_allowed_fallback(not_found::method_not_allowed.layer(unrouted()));
    let routes = pages
        .merge(grpc::routes(&app).await?)
        .fallback(fallback.layer(unrouted()));
    let rules = cors::rules(&app.settings.cors_origins);
    let routes = routes.layer(from_fn(syntax::check_syntax));
    let bounded = routes
        .layer(from_fn_with_state(rules, cors::cors))
        .layer(from_fn(deadline::deadline));
    let held = bounded.layer(from_fn_with_state(app.clone(), memory::hold));
    Ok(held
        .layer(from_fn_with_state(app.clone(), observe::observe))
        .with_state(app))
}

/// Nothing is there: `UNIMPLEMENTED` for gRPC, 404 for the rest.
async fn fallback(request: axum::extract::Request) -> axum::response::Response {
    use axum::response::IntoResponse as _;

    match crate::http::protocol::Protocol::of(request.headers()) {
        crate::http::protocol::Protocol::Rest => not_found::not_found().await.into_response(),
        _ => tonic::Status::unimplemented("There is no such service or method.").into_http(),
    }
}
