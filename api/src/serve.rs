//! The listener: from sockets to the layers, and the way down when the process is told to end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use assay_core::process;
use assay_core::settings::{ADMIN_LISTEN, LISTEN};
use assay_core::store::schema;
use assay_core::{CanFail as _, Error, Result, telemetry};
use axum::Router;
use axum::body::Body;
use axum::middleware::{from_fn, from_fn_with_state};
use http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt as _;

use crate::app::App;
use crate::layers::{Peer, cors, deadline, observe};
use crate::settings::Settings;
use crate::{dispatcher, grpc, mail, openapi, page, rest};

/// How long a request's head may take to arrive.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How often an idle HTTP/2 connection is asked whether it is still there, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// How many requests one HTTP/2 connection may have open.
const STREAMS: u32 = 250;

/// Serves until the process is told to end (SIGTERM or SIGINT), then finishes what it has begun.
pub async fn serve(settings: Settings) -> Result<()> {
    let metrics = telemetry::metrics(&settings.common.git_sha)?;
    let listener = process::bind(&LISTEN, settings.listen).await?;
    let admin_listener = process::bind(&ADMIN_LISTEN, settings.common.admin_listen).await?;
    let (stop, stopped) = watch::channel(false);
    let (post, carrier) = mail::open(&settings.mail)?;
    let app = App::new(settings.clone(), post, stopped.clone()).await?;
    process::refuse_old_schema(&app.db).await?;
    refuse_to_read_answers(&app).await?;
    // The first request should not be the one that waits for the connection.
    app.limits.address("").await;
    let admin = tokio::spawn(process::serve_operators(admin_listener, metrics, app.db.clone(), stopped.clone()));
    let mut dispatcher = tokio::spawn(dispatcher::run(app.db.clone(), app.artifacts.clone(), settings.clone(), stopped.clone()));
    let changes = tokio::spawn(app.changes.clone().pass_on(app.db.clone()));
    let carrier = tokio::spawn(carrier.run());
    let (counting, until) = (app.clone(), stopped);
    let requests = tokio::spawn(async move { counting.requests.keep_adding(&counting.db, until).await });
    tracing::info!(listen = %settings.listen, admin = %settings.common.admin_listen, env = settings.env, git_sha = settings.common.git_sha, "serving");

    let router = router(app.clone()).await?;
    let connections = tokio::select! {
        accepted = accept(listener, router) => accepted?,
        // Without it, jobs would wait for ever: rather no process than half a one.
        ended = &mut dispatcher => return Err(Error::internal(format!("the dispatcher ended: {ended:?}"))),
    };
    // What comes after this line happens on the way down.
    stop.send_replace(true);
    tracing::info!("told to end: finishing what was begun");
    if tokio::time::timeout(settings.common.drain, connections.shutdown()).await.is_err() {
        tracing::warn!("some requests did not end in time and were cut off");
    }
    // What those requests wrote to people still goes out; a mail server that does not answer must not keep the process.
    app.post.close();
    tokio::time::timeout(Duration::from_secs(5), carrier).await.can_fail("sending the last mails");
    // A query that hangs must not keep the process.
    tokio::time::timeout(Duration::from_secs(2), dispatcher).await.can_fail("ending the dispatcher");
    admin.abort();
    changes.abort();
    requests.await.map_err(Error::internal)?;
    // What was answered while the connections ended.
    app.requests.add_up(&app.db).await.can_fail("adding up the last requests");
    process::close(&app.db).await;
    Ok(())
}

/// By construction the api cannot read answers: it does not serve with a role that could.
async fn refuse_to_read_answers(app: &App) -> Result<()> {
    if schema::can_read_answers(&app.db).await? {
        let told = "the role in ASSAY_DATABASE_URL can read the answers of suites, and the api must not: give it a login role that is \
                    a member of assay_api and of nothing else, such as: create role assay_api_1 login password '…' in role assay_api";
        return Err(Error::internal(told));
    }
    Ok(())
}

/// Both wires under the layers that every request goes through.
async fn router(app: App) -> Result<Router> {
    let pages = rest::routes(&app).merge(page::routes()).merge(openapi::routes()).method_not_allowed_fallback(rest::method_not_allowed);
    let routes = pages.merge(grpc::routes(&app).await?).fallback(fallback);
    let rules = cors::rules(&app.settings.cors_origins);
    let bounded = routes.layer(from_fn_with_state(rules, cors::cors)).layer(from_fn(deadline::deadline));
    Ok(bounded.layer(from_fn_with_state(app.clone(), observe::observe)).with_state(app))
}

/// Nothing is there: `UNIMPLEMENTED` for gRPC, 404 for the rest.
async fn fallback(request: axum::extract::Request) -> axum::response::Response {
    use axum::response::IntoResponse as _;

    match crate::render::Wire::of(request.headers()) {
        crate::render::Wire::Rest => rest::not_found().await.into_response(),
        _ => tonic::Status::unimplemented("There is no such service or method.").into_http(),
    }
}

/// Accepts connections until the process is told to end.
async fn accept(listener: TcpListener, router: Router) -> Result<GracefulShutdown> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_PATIENCE).keep_alive(true);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING.0).keep_alive_timeout(PING.1).max_concurrent_streams(STREAMS);
    let builder = Arc::new(builder);
    let connections = GracefulShutdown::new();
    let mut end = std::pin::pin!(process::told_to_end());
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Too many open files, most likely: what is open must first end.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
            ended = &mut end => return ended.map(|()| connections),
        };
        connection(&builder, connections.watcher(), stream, peer, router.clone());
    }
}

/// How HTTP/2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Waits until a connection has shown which HTTP it speaks. The server's own patience begins only after that.
async fn speaks(stream: &TcpStream) -> bool {
    let shown = async {
        let mut head = [0; PREFACE.len()];
        loop {
            match stream.peek(&mut head).await {
                Ok(0) | Err(_) => return false,
                Ok(n) if n < PREFACE.len() && PREFACE.starts_with(&head[..n]) => tokio::time::sleep(Duration::from_millis(20)).await,
                Ok(_) => return true,
            }
        }
    };
    tokio::time::timeout(HEAD_PATIENCE, shown).await.unwrap_or(false)
}

fn connection(builder: &Arc<auto::Builder<TokioExecutor>>, watcher: Watcher, stream: TcpStream, peer: SocketAddr, router: Router) {
    stream.set_nodelay(true).can_fail("sending small answers at once");
    let builder = Arc::clone(builder);
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer.ip()));
        router.clone().oneshot(request)
    });
    tokio::spawn(async move {
        if !speaks(&stream).await {
            return;
        }
        let connection = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended");
        }
    });
}
