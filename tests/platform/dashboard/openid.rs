//! Sign-in with an OpenID Connect provider, a real one from an npm package.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::{play, tools};
use crate::clients::prepare;
use crate::harness::{Expect, long_test, org, string, world_with};
use crate::mail::mails;

const CLIENT_ID: &str = "assay";
const CLIENT_SECRET: &str = "secret of the client";

/// A provider. Dropping it stops it.
struct Provider {
    _process: Child,
    /// The provider ends when it cannot write any more.
    _stdout: Lines<BufReader<ChildStdout>>,
    issuer: String,
}

impl Provider {
    async fn start(folder: &Path) -> Self {
        let mut process = Command::new("node")
            .arg(folder.join("provider.mjs"))
            .args([CLIENT_ID, CLIENT_SECRET, "/sign-in/oidc/uni/callback"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap();
        let started: Value = serde_json::from_str(&line.unwrap()).unwrap();
        Self {
            _process: process,
            _stdout: lines,
            issuer: string(&started["issuer"]),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_signs_in_with_provider() {
    long_test!("starts a provider and a browser");
    let Some(tools) = prepare(tools).await else {
        return;
    };
    let provider = Provider::start(&tools.folder).await;
    let settings = json!([{
        "name": "uni",
        "title": "Example University",
        "issuer": provider.issuer,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
    }]);
    let env = [
        ("ASSAY_OIDC_ISSUERS", settings.to_string()),
        ("ASSAY_SIGN_UP", "invited".to_owned()),
        ("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000".to_owned()),
        ("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000".to_owned()),
    ];
    let world = world_with(StackSize {
        workers: 0,
        env: BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value))),
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    let invited = "colleague@example.org";
    let invite = json!({"email": invited, "role": "viewer"});
    world
        .owner()
        .post("/v1/invites", &invite)
        .await
        .expect_status(201);
    let input = json!({"issuer": provider.issuer, "owner": world.org.email, "invited": invited});
    play(
        &world,
        "openid.mjs",
        input,
        async |question, _| match question {
            "invite" => {
                let other = org(&world.stack, "team").await;
                let invite = json!({"email": world.org.email, "role": "viewer"});
                let inviter = world.client(&other.session);
                inviter
                    .post("/v1/invites", &invite)
                    .await
                    .expect_status(201);
                Value::Null
            }
            _ => panic!("unexpected question: {question}"),
        },
    )
    .await;
    let notices = mails(&world, &world.org.email);
    let linked = notices
        .iter()
        .filter(|mail| mail.subject == "An account can now sign you in to Assay");
    assert_eq!(linked.count(), 1, "{notices:?}");
    let linked: Vec<(String, String)> = sqlx::query_as(
        "select i.subject, u.email from identities i join users u on u.id = i.user_id order by 1",
    )
    .fetch_all(&mut world.database().await)
    .await
    .unwrap();
    // The owner has removed their account.
    let expected = [("invited", invited)];
    let expected = expected.map(|(subject, email)| (subject.to_owned(), email.to_owned()));
    assert_eq!(linked, expected);
}
