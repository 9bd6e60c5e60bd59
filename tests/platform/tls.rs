//! PostgreSQL and Redis over TLS, with certificates of a private authority.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use assay_tests::databases;
use assay_tests::stack::StackSize;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::harness::{World, one_prediction, org, own_ground};

/// PostgreSQL's `SSLRequest`, which a client sends before the TLS handshake.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Creates an authority. Returns its certificate's file, and a TLS acceptor with a certificate
/// for `localhost`.
pub fn authority(folder: &Path) -> (PathBuf, TlsAcceptor) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .unwrap()
        .signed_by(&key, &authority)
        .unwrap();
    let file = folder.join("ca.crt");
    std::fs::write(&file, authority.pem()).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    (file, TlsAcceptor::from(Arc::new(config)))
}

/// Starts a proxy that terminates TLS before a server's socket, and returns its port.
async fn tls_proxy(socket: &Path, acceptor: &TlsAcceptor, is_postgres: bool) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = socket.to_path_buf();
    let acceptor = acceptor.clone();
    tokio::spawn(async move {
        while let Ok((caller, _)) = listener.accept().await {
            let socket = socket.clone();
            let acceptor = acceptor.clone();
            tokio::spawn(async move { pass_on(caller, &socket, &acceptor, is_postgres).await });
        }
    });
    port
}

async fn pass_on(
    mut caller: TcpStream,
    socket: &Path,
    acceptor: &TlsAcceptor,
    is_postgres: bool,
) -> std::io::Result<()> {
    if is_postgres {
        let mut request = [0; 8];
        caller.read_exact(&mut request).await?;
        if request != SSL_REQUEST {
            return Ok(());
        }
        caller.write_all(b"S").await?;
    }
    let mut caller = acceptor.accept(caller).await?;
    let mut server = UnixStream::connect(socket).await?;
    tokio::io::copy_bidirectional(&mut caller, &mut server)
        .await
        .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_rejects_untrusted_server_certificates() {
    let Some(ground) = own_ground() else { return };
    let folder = ground.servers.folder().to_path_buf();
    let (ca, acceptor) = authority(&folder);
    let (_, stranger) = authority(&std::env::temp_dir());
    let mut stack = assay_tests::stack::Stack::start(
        &ground,
        StackSize {
            apis: 0,
            workers: 0,
            ..StackSize::default()
        },
    )
    .await
    .unwrap();
    let postgres = ground.servers.postgres_socket().unwrap();
    let redis = ground.servers.redis_socket().unwrap();
    let secured = |url: &str, port: u16| {
        let role = url.split("://").nth(1).unwrap().split('@').next().unwrap();
        let database = &stack.database.name;
        format!(
            "postgres://{role}@localhost:{port}/{database}?sslmode=verify-full&sslrootcert={}",
            ca.display()
        )
    };
    let port = tls_proxy(postgres, &acceptor, true).await;
    let database = &stack.database;
    let urls = [
        &database.api_url,
        &database.worker_url,
        &database.checker_url,
    ];
    let urls = urls.map(|url| secured(url, port));
    let strange = secured(
        &stack.database.api_url,
        tls_proxy(postgres, &stranger, true).await,
    );
    let database = &mut stack.database;
    [database.api_url, database.worker_url, database.checker_url] = urls;
    // All clients except PostgreSQL's use the system's certificates, which an environment variable
    // names.
    stack.set("SSL_CERT_FILE", ca.to_str().unwrap());
    stack.set(
        "ASSAY_REDIS_URL",
        &format!(
            "rediss://localhost:{}",
            tls_proxy(redis, &acceptor, false).await
        ),
    );
    stack.apis.push(stack.launch_api().unwrap());
    stack.workers.push(stack.launch_worker().unwrap());
    for process in stack.apis.iter().chain(&stack.workers) {
        process.ready().await.unwrap();
    }
    let lunch = folder.join("lunch");
    assay_tests::demo_suite::write(&lunch).unwrap();
    stack
        .operate(&["suite", "publish", lunch.to_str().unwrap()])
        .await
        .unwrap();
    let mut world = World {
        org: org(&stack, "team").await,
        stack,
    };
    assert_eq!(
        world.submit_and_wait(&one_prediction()).await["status"],
        "succeeded"
    );
    let mut used: Vec<String> =
        sqlx::query_scalar("select distinct application_name from pg_stat_activity where application_name like 'assay-%' order by 1")
            .fetch_all(&mut databases::connect(&world.stack.database.owner_url).await.unwrap())
            .await
            .unwrap();
    // The cleanup connects once a minute for a short time.
    used.retain(|name| name != "assay-cleanup");
    assert_eq!(
        used,
        [
            "assay-api",
            "assay-checker",
            "assay-log",
            "assay-readiness",
            "assay-worker"
        ]
    );
    let up = crate::telemetry::sum(&world.stack.apis[0], "assay_redis_up", &[]).await;
    assert_eq!(
        (
            up,
            crate::telemetry::sum(&world.stack.apis[0], "assay_ratelimit_degraded", &[]).await
        ),
        (1.0, 0.0)
    );

    // A certificate of another authority is rejected, for PostgreSQL and for Redis.
    world.stack.database.api_url = strange;
    let log_text = world
        .stack
        .launch_api()
        .unwrap()
        .ready()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        log_text.contains("invalid peer certificate") || log_text.contains("UnknownIssuer"),
        "{log_text}"
    );
    world.stack.database.api_url = world.stack.database.worker_url.clone();
    world.stack.set(
        "ASSAY_REDIS_URL",
        &format!(
            "rediss://localhost:{}",
            tls_proxy(redis, &stranger, false).await
        ),
    );
    let worker = world.stack.launch_worker().unwrap();
    worker.ready().await.unwrap();
    crate::harness::wait_until("a health check of Redis", async || {
        crate::telemetry::sum(&worker, "assay_database_up", &[]).await == 1.0
    })
    .await;
    assert_eq!(
        crate::telemetry::sum(&worker, "assay_redis_up", &[]).await,
        0.0
    );
}
