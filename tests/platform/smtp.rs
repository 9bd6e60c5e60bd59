//! Mails through a real mail server.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use assay_tests::databases;
use assay_tests::stack::Plan;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::clients::{made, python_with, sources};
use crate::harness::{World, ground, scrape, text, until, world_of};
use crate::mail::Mail;

const PATIENCE: Duration = Duration::from_secs(30);

/// The server. Dropping it ends it.
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
        server.ports = server.said().await;
        server
    }

    /// The next thing that it says.
    async fn said(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line
            .unwrap_or_else(|_| panic!("the mail server says nothing"))
            .unwrap();
        serde_json::from_str(&line.unwrap_or_else(|| panic!("the mail server ended"))).unwrap()
    }
}

async fn ask(world: &World, email: &str) {
    let asked = world
        .anonymous()
        .post("/v1/auth/email", &json!({"email": email}))
        .await
        .unwrap();
    assert_eq!(asked.status, 202, "{}", asked.body);
}

async fn metrics(world: &World) -> String {
    scrape(&world.stack.apis[0]).await
}

fn world_with(env: &[(&str, &str)]) -> impl Future<Output = World> {
    let env = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    world_of(Plan {
        workers: 0,
        env,
        ..Plan::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn mails_go_through_a_mail_server_with_a_few_tries() {
    let Some(python) = made(|| python_with("smtp", &sources().join("smtp/requirements.txt"))).await
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
    let mut world = world_with(&[
        ("ASSAY_SMTP_URL", &url),
        ("ASSAY_MAIL_FROM", "Ässay <assay@example.org>"),
    ])
    .await;

    ask(&world, "ada@bücher.example").await;
    let said = server.said().await;
    assert_eq!(
        json!([said["from"], said["to"], said["tls"]]),
        json!(["assay@example.org", ["ada@xn--bcher-kva.example"], false])
    );
    let mail = Mail::read(text(&said["mail"]).as_bytes());
    let token = mail.token().unwrap();
    let signed_in = world
        .anonymous()
        .post("/v1/auth/email/verify", &json!({"token": token}))
        .await
        .unwrap();
    assert_eq!(signed_in.status, 201, "{}", signed_in.body);
    assert!(mail.html.contains(&token), "{}", mail.html);

    // What is put off is tried again; what is refused for good is not, and is counted.
    ask(&world, "later@example.org").await;
    assert_eq!(server.said().await["to"], json!(["later@example.org"]));
    ask(&world, "never@example.org").await;
    assert_eq!(server.said().await, json!({"refused": "never@example.org"}));
    let failed = "assay_mails_total{outcome=\"failed\"} 1";
    until("the failure's count", PATIENCE, async || {
        metrics(&world).await.contains(failed)
    })
    .await;
    let metrics = metrics(&world).await;
    assert!(
        metrics.contains("assay_mails_total{outcome=\"sent\"} 2"),
        "{metrics}"
    );

    // A letter that was put into the post is carried off, though the process is told to end at once.
    let owner = world.owner();
    let invited = owner
        .post("/v1/invites", &json!({"email": "bob@example.org"}))
        .await
        .unwrap();
    assert_eq!(invited.status, 201);
    let log = world.stack.apis[0].log.clone();
    world.stack.stop();
    assert_eq!(server.said().await["to"], json!(["bob@example.org"]));
    let log = std::fs::read_to_string(log).unwrap();
    assert!(
        log.contains("a mail could not be sent") && !log.contains(&token[..20]),
        "{log}"
    );
    assert!(
        !world.stack.mail_folder().exists(),
        "nothing is written to a folder"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_is_believed_by_its_certificate_only_and_given_the_password() {
    let Some(python) = made(|| python_with("smtp", &sources().join("smtp/requirements.txt"))).await
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
    let (secret, authority) = (
        secret.to_str().unwrap().to_owned(),
        folder.join("authority.pem").to_str().unwrap().to_owned(),
    );
    let settings = [
        ("ASSAY_SMTP_URL_FILE", secret.as_str()),
        ("ASSAY_MAIL_FROM", "assay@example.org"),
        ("SSL_CERT_FILE", authority.as_str()),
    ];

    let world = world_with(&settings).await;
    ask(&world, "ada@example.org").await;
    let said = server.said().await;
    assert_eq!(
        json!([said["to"], said["tls"], said["user"]]),
        json!([["ada@example.org"], true, "assay"])
    );

    // Without knowing the authority: nothing is sent, and what went wrong is logged without the password.
    let distrusting = world_with(&settings[..2]).await;
    ask(&distrusting, "eve@example.org").await;
    let log = &distrusting.stack.apis[0].log;
    let told = || std::fs::read_to_string(log).unwrap();
    until("the refusal", PATIENCE, async || {
        told().contains("a mail could not be sent")
    })
    .await;
    assert!(
        !told().contains("p@ss") && !told().contains("p%40ss"),
        "{}",
        told()
    );
}
