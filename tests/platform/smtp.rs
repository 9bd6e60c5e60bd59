//! Emails through a real SMTP server.

use std::path::Path;
use std::process::Stdio;

use assay_tests::databases;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::clients::{prepare, python_with, sources};
use crate::harness::{Expect, World, ground, in_time, scrape, string, wait_until, world_with};
use crate::mail::Mail;

/// An SMTP server. Dropping it stops it.
struct MailServer {
    _process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    ports: Value,
}

impl MailServer {
    async fn start(python: &Path, folder: &Path) -> Self {
        let mut command = Command::new(python);
        command
            .arg(sources().join("smtp/mail_server.py"))
            .arg(folder)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut server = Self {
            _process: process,
            lines,
            ports: Value::Null,
        };
        server.ports = server.next_line().await;
        server
    }

    /// Returns the next JSON line that the server prints.
    async fn next_line(&mut self) -> Value {
        let line = in_time("a line of the mail server", self.lines.next_line())
            .await
            .unwrap();
        serde_json::from_str(&line.unwrap_or_else(|| panic!("the mail server exited"))).unwrap()
    }
}

async fn request_sign_in(world: &World, email: &str) {
    world
        .anonymous()
        .post("/v1/auth/email", &json!({"email": email}))
        .await
        .expect_status(202);
}

async fn metrics(world: &World) -> String {
    scrape(&world.stack.apis[0]).await
}

fn world_with_env(env: &[(&str, &str)]) -> impl Future<Output = World> {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    world_with(StackSize {
        workers: 0,
        env,
        ..StackSize::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn emails_are_retried_a_few_times() {
    let Some(python) =
        prepare(|| python_with("smtp", &sources().join("smtp/requirements.txt"))).await
    else {
        return;
    };
    let folder = ground()
        .servers
        .folder()
        .join(databases::fresh_name("smtp"));
    std::fs::create_dir(&folder).unwrap();
    let mut server = MailServer::start(&python, &folder).await;
    let url = format!("smtp://127.0.0.1:{}", server.ports["plain"]);
    let mut world = world_with_env(&[
        ("ASSAY_SMTP_URL", &url),
        ("ASSAY_MAIL_FROM", "Ässay <assay@example.org>"),
    ])
    .await;

    request_sign_in(&world, "ada@bücher.example").await;
    let said = server.next_line().await;
    assert_eq!(
        json!([said["from"], said["to"], said["tls"]]),
        json!(["assay@example.org", ["ada@xn--bcher-kva.example"], false])
    );
    let mail = Mail::read(string(&said["mail"]).as_bytes());
    let token = mail.token().unwrap();
    world
        .anonymous()
        .post("/v1/auth/email/verify", &json!({"token": token}))
        .await
        .expect_status(201);
    assert!(mail.html.contains(&token), "{}", mail.html);

    // A temporary rejection is retried; a permanent one is not, and is counted.
    request_sign_in(&world, "later@example.org").await;
    assert_eq!(server.next_line().await["to"], json!(["later@example.org"]));
    request_sign_in(&world, "never@example.org").await;
    assert_eq!(
        server.next_line().await,
        json!({"refused": "never@example.org"})
    );
    let failed = "assay_mails_total{outcome=\"failed\"} 1";
    wait_until("the failure counter", async || {
        metrics(&world).await.contains(failed)
    })
    .await;
    let metrics = metrics(&world).await;
    assert!(
        metrics.contains("assay_mails_total{outcome=\"sent\"} 2"),
        "{metrics}"
    );

    // A queued email is delivered although the process gets SIGTERM immediately afterwards.
    let owner = world.owner();
    owner
        .post("/v1/invites", &json!({"email": "bob@example.org"}))
        .await
        .expect_status(201);
    let log = world.stack.apis[0].log.clone();
    world.stack.stop();
    assert_eq!(server.next_line().await["to"], json!(["bob@example.org"]));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains("email not sent") && !log.contains(&token[..20]),
        "{log}"
    );
    assert!(
        !world.stack.mail_folder().exists(),
        "no email is written to a folder"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn smtp_requires_trusted_certificate() {
    let Some(python) =
        prepare(|| python_with("smtp", &sources().join("smtp/requirements.txt"))).await
    else {
        return;
    };
    let folder = ground()
        .servers
        .folder()
        .join(databases::fresh_name("smtps"));
    std::fs::create_dir(&folder).unwrap();
    let mut server = MailServer::start(&python, &folder).await;
    let url = format!(
        "smtps://assay:p%40ss%2Fword@localhost:{}",
        server.ports["tls"]
    );
    let secret = folder.join("url");
    std::fs::write(&secret, &url).unwrap();
    let secret = secret.to_str().unwrap().to_owned();
    let authority = folder.join("authority.pem").to_str().unwrap().to_owned();
    let settings = [
        ("ASSAY_SMTP_URL_FILE", secret.as_str()),
        ("ASSAY_MAIL_FROM", "assay@example.org"),
        ("SSL_CERT_FILE", authority.as_str()),
    ];

    let world = world_with_env(&settings).await;
    request_sign_in(&world, "ada@example.org").await;
    let said = server.next_line().await;
    assert_eq!(
        json!([said["to"], said["tls"], said["user"]]),
        json!([["ada@example.org"], true, "assay"])
    );

    // Without the authority's certificate nothing is sent, and the error is logged without the
    // password.
    let distrusting = world_with_env(&settings[..2]).await;
    request_sign_in(&distrusting, "eve@example.org").await;
    let log = &distrusting.stack.apis[0].log;
    let log_text = || std::fs::read_to_string(log).unwrap();
    wait_until("the rejection in the log", async || {
        log_text().contains("email not sent")
    })
    .await;
    assert!(
        !log_text().contains("p@ss") && !log_text().contains("p%40ss"),
        "{}",
        log_text()
    );
}
