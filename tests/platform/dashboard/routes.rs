//! All pages and forms of the dashboard, and resources for their paths. Tests iterate over them.

use std::collections::{BTreeMap, BTreeSet};

use assay_tests::client::Client;
use assay_tests::demo_suite;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};

use super::visitor::Fields;
use crate::domains::claim_verified;
use crate::harness::{Org, World, one_prediction, operations_in, string, world_with};
use crate::name_server::NameServer;
use crate::{boards, device, models, uploads};

/// A page, as an owner sees it.
#[derive(Debug)]
pub struct PageRoute {
    /// The route's path.
    pub route: &'static str,
    /// The title.
    pub title: &'static str,
    /// A part of the content.
    pub text: &'static str,
}

const fn page(route: &'static str, title: &'static str, text: &'static str) -> PageRoute {
    PageRoute { route, title, text }
}

/// The pages.
pub const PAGES: [PageRoute; 33] = [
    page("/", "Acme", "Last jobs"),
    page(
        "/choose",
        "Choose an organization",
        "Every page acts for one organization.",
    ),
    page(
        "/orgs/new",
        "Create an organization",
        "You become its owner",
    ),
    page("/settings", "Settings", "Use of your submissions"),
    page("/terms", "Terms", "2026-01"),
    page("/keys", "API keys", "Create a key"),
    page(
        "/keys/{key_id}/revoke",
        "Revoke second",
        "This cannot be undone.",
    ),
    page(
        "/keys/{key_id}/rotate",
        "Rotate second",
        "Hours for which this key keeps working",
    ),
    page("/members", "Members", "Invite a user"),
    page(
        "/members/{user_id}/remove",
        "Remove colleague@{domain}",
        "The user can no longer open the organization.",
    ),
    page("/domains", "Domains", "Verified domains"),
    page(
        "/domains/{domain}/release",
        "Release {domain}",
        "Another organization can claim the domain.",
    ),
    page("/suites", "Suites", "{suite_id}"),
    page("/suites/{suite_id}", "{suite_id}", "Your best score"),
    page(
        "/suites/{suite_id}/items",
        "Items of {suite_id}",
        "400 items.",
    ),
    page(
        "/suites/{suite_id}/history",
        "History of {suite_id}",
        "History",
    ),
    page(
        "/suites/{suite_id}/board",
        "Board of {suite_id}",
        "Your entries",
    ),
    page(
        "/jobs/{job_id}/board",
        "Enter a board",
        "At most three jobs can enter",
    ),
    page(
        "/entries/{entry_id}/withdraw",
        "Withdraw an entry",
        "the job cannot enter again",
    ),
    page(
        "/suites/{suite_id}/submit",
        "Submit to {suite_id}",
        "File with predictions",
    ),
    page(
        "/suites/{suite_id}/submissions/{upload_id}",
        "Submit to {suite_id}",
        "The file is checked",
    ),
    page(
        "/submit",
        "Submit predictions",
        "Uploads that are not submitted",
    ),
    page("/jobs", "Jobs", "Compare the two selected"),
    page("/jobs/{job_id}", "{job_id}", "Details"),
    page(
        "/jobs/{job_id}/cancel",
        "Cancel a job",
        "The job gets no result.",
    ),
    page("/compare", "Compare", "The id of a job that has succeeded."),
    page("/usage", "Usage", "By day"),
    page("/search", "Search", "The search takes the id"),
    page("/device", "Connect a program", "Enter the code"),
    page("/models", "Models", "{model_id}"),
    page("/models/{model_id}", "{model_id}", "Trained on"),
    page("/account", "Account", "You are signed in as"),
    page("/sign-in", "Sign in", "You get a link"),
];

/// The files to store, by their route paths, with their media types.
pub const FILES: [(&str, &str); 5] = [
    ("/jobs.csv", "text/csv; charset=utf-8"),
    ("/usage.csv", "text/csv; charset=utf-8"),
    ("/jobs/{job_id}/job.json", "application/json"),
    ("/jobs/{job_id}/trace.json", "application/json"),
    ("/jobs/{job_id}/receipt.json", "application/json"),
];

/// The routes that send the browser to a provider and receive it back. They are no pages.
pub const REDIRECTS: [&str; 2] = [
    "/sign-in/oidc/{provider}",
    "/sign-in/oidc/{provider}/callback",
];

/// The least role that may send a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A user without a session.
    Anybody,
    /// A user with a session.
    User,
    /// A member or an owner of the organization.
    Member,
    /// An owner of the organization.
    Owner,
}

/// A form, with values that the product accepts from an owner.
#[derive(Debug)]
pub struct Form {
    /// The route's path.
    pub route: &'static str,
    /// The fields that the user fills in.
    pub fields: &'static [(&'static str, &'static str)],
    /// The least role that may send it.
    pub sender: Sender,
    /// `true` if it changes stored state, and not only what the browser shows.
    pub is_change: bool,
}

const fn form(
    route: &'static str,
    sender: Sender,
    fields: &'static [(&'static str, &'static str)],
) -> Form {
    Form {
        route,
        fields,
        sender,
        is_change: true,
    }
}

/// The form that sends a file. It is the only one of another media type.
pub const UPLOAD: &str = "/suites/{suite_id}/submissions";

/// The forms, in an order in which an owner can send all. The last ones end the session.
pub const FORMS: [Form; 30] = [
    form("/terms", Sender::Owner, &[("version", "2026-01")]),
    Form {
        is_change: false,
        ..form("/account/theme", Sender::User, &[("theme", "dark")])
    },
    form("/account/mails", Sender::User, &[("jobs", "failed")]),
    Form {
        // The user has no account of a provider.
        is_change: false,
        ..form(
            "/account/unlink",
            Sender::User,
            &[("issuer", "https://login.example.edu"), ("subject", "1")],
        )
    },
    Form {
        is_change: false,
        ..form("/choose", Sender::User, &[("next", "/jobs")])
    },
    form("/orgs/new", Sender::User, &[("name", "Another")]),
    form(
        "/settings",
        Sender::Owner,
        &[("name", "Renamed"), ("data_use", "aggregate_research")],
    ),
    form("/keys", Sender::Member, &[("name", "created")]),
    form(
        "/keys/{key_id}/rotate",
        Sender::Member,
        &[("overlap_hours", "1")],
    ),
    form("/keys/{key_id}/revoke", Sender::Member, &[]),
    form(
        "/members/{user_id}/role",
        Sender::Owner,
        &[("role", "viewer")],
    ),
    form("/members/{user_id}/remove", Sender::Owner, &[]),
    form(
        "/invites",
        Sender::Owner,
        &[("email", "new@example.org"), ("role", "member")],
    ),
    form("/invites/{invite_id}/revoke", Sender::Owner, &[]),
    form("/domains", Sender::Owner, &[("domain", "new.example")]),
    Form {
        // The domain is verified already.
        is_change: false,
        ..form("/domains/{domain}/verify", Sender::Owner, &[])
    },
    form("/domains/{domain}", Sender::Owner, &[("auto_join", "true")]),
    form("/domains/{domain}/release", Sender::Owner, &[]),
    form(UPLOAD, Sender::Member, &[("label", "uploaded")]),
    form(
        "/suites/{suite_id}/submissions/{upload_id}",
        Sender::Member,
        &[("label", "submitted")],
    ),
    form("/uploads/{upload_id}/delete", Sender::Member, &[]),
    form(
        "/jobs/{job_id}/board",
        Sender::Member,
        &[("name", "mixer"), ("url", "https://lab.example/mixer")],
    ),
    form("/entries/{entry_id}/withdraw", Sender::Member, &[]),
    form("/jobs/{job_id}/cancel", Sender::Member, &[]),
    form(
        "/device",
        Sender::Member,
        &[
            ("code", "{code}"),
            ("name", "node-7"),
            ("decision", "approve"),
        ],
    ),
    form("/sign-in", Sender::Anybody, &[("email", "ada@example.org")]),
    form("/sign-in/link", Sender::Anybody, &[("token", "{token}")]),
    form("/account/sessions/{session_id}/end", Sender::User, &[]),
    form("/account/sessions/end", Sender::User, &[]),
    form("/sign-out", Sender::User, &[]),
];

/// The operations that the dashboard routes, such as `GET /jobs`.
fn routed() -> BTreeSet<String> {
    let source = include_str!("../../../api/src/dashboard/mod.rs");
    let compact: String = source.split_whitespace().collect();
    let [all, readable] = [".route(", ".route(\""].map(|text| compact.matches(text).count());
    assert_eq!(all, readable, "a route whose path is no literal");
    operations_in(source)
}

#[test]
fn tables_list_every_page_and_form() {
    let pages = PAGES.iter().map(|page| page.route);
    let pages = pages.chain(FILES.map(|(route, _)| route)).chain(REDIRECTS);
    let pages = pages.map(|route| format!("GET {route}"));
    let forms = FORMS.iter().map(|form| format!("POST {}", form.route));
    let listed: Vec<String> = pages.chain(forms).collect();
    assert_eq!(
        listed.len(),
        listed.iter().collect::<BTreeSet<_>>().len(),
        "a route is listed twice"
    );
    assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), routed());
}

/// Starts a world in which no limit is reached. The name server has the records of verified
/// domains. Without workers, jobs stay queued.
pub async fn world(workers: usize, has_terms: bool) -> (World, NameServer) {
    let name_server = NameServer::start().await;
    let mut env = vec![
        ("ASSAY_DNS_SERVER", name_server.address.to_string()),
        ("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000".to_owned()),
        ("ASSAY_AUTH_FAILURES_PER_MINUTE", "1000".to_owned()),
        ("ASSAY_DEVICE_LOGINS_PER_MINUTE", "1000".to_owned()),
    ];
    if has_terms {
        let url = "https://example.org/terms".to_owned();
        env.push(("ASSAY_TERMS_VERSION", "2026-01".to_owned()));
        env.push(("ASSAY_TERMS_URL", url));
    }
    let env = env
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    let world = world_with(StackSize {
        workers,
        env: env.collect(),
        ..StackSize::default()
    })
    .await;
    world.widen_plans().await;
    (world, name_server)
}

/// One organization's resources, by the names of path parameters and fields.
pub struct Resources(BTreeMap<&'static str, String>);

async fn created(client: &Client, path: &str, body: &Value) -> Value {
    let response = client.post(path, body).await.unwrap();
    assert!(
        matches!(response.status, 200..=202),
        "{path}: {}",
        response.body
    );
    response.body
}

/// Creates another session for an organization's owner, and returns its token.
pub async fn new_session(world: &World, org: &Org) -> String {
    let session = ["session", "create", "--email", &org.email, "--org", &org.id];
    string(&world.stack.operate(&session).await.unwrap()["token"])
}

/// Uploads one prediction, and returns the upload's id.
async fn upload(client: &Client) -> String {
    let line = format!("{}\n", one_prediction()[0]);
    uploads::uploaded(client, json!({"kind": "predictions"}), line.as_bytes()).await
}

impl Resources {
    /// Creates one resource per kind, in a world with terms.
    pub async fn create(world: &World, org: &Org, name_server: &NameServer, domain: &str) -> Self {
        let (owner, key) = (world.client(&org.session), world.client(&org.key));
        created(&owner, "/v1/terms/accept", &json!({"version": "2026-01"})).await;
        let email = format!("colleague@{domain}");
        let invited = json!({"email": email, "role": "member"});
        created(&owner, "/v1/invites", &invited).await;
        world.sign_in(&email).await;
        let members = owner.get("/v1/members").await.unwrap().body;
        let member = members["members"].as_array().unwrap().last().unwrap();
        assert_eq!(member["email"], email);
        claim_verified(&owner, name_server, domain).await;
        let session = new_session(world, org).await;
        let sessions = world.client(&session).get("/v1/sessions").await.unwrap();
        let sessions = sessions.body["sessions"].as_array().unwrap().clone();
        let current = sessions.iter().find(|session| session["current"] == true);
        let eval = json!({"suite_id": demo_suite::SUITE_ID, "predictions": one_prediction()});
        let login = device::start(world, "assay on node-7").await;
        let _ = models::publish(world, &models::file()).await;
        let job_id = string(&created(&key, "/v1/evals", &eval).await["id"]);
        let scored = boards::enter_copies(world, &job_id).await;
        let invited = json!({"email": format!("invited@{domain}")});
        Self(BTreeMap::from([
            ("suite_id", demo_suite::SUITE_ID.to_owned()),
            ("model_id", "next-1".to_owned()),
            ("user_id", string(&member["user_id"])),
            (
                "invite_id",
                string(&created(&owner, "/v1/invites", &invited).await["id"]),
            ),
            (
                "key_id",
                string(&created(&owner, "/v1/keys", &json!({"name": "second"})).await["id"]),
            ),
            ("domain", domain.to_owned()),
            ("upload_id", upload(&key).await),
            ("spare_upload_id", upload(&key).await),
            ("job_id", job_id),
            ("scored_job_id", scored.job_id),
            ("entry_id", scored.entry_id),
            ("session_id", string(&current.unwrap()["id"])),
            ("code", string(&login["user_code"])),
            ("token", world.sign_in_link(&org.email).await),
        ]))
    }

    /// Returns a resource's id.
    pub fn id(&self, name: &str) -> &str {
        &self.0[name]
    }

    /// Fills in the parameters in a path, or in a field's value.
    pub fn fill(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        // An upload that was submitted is not deleted.
        if text.starts_with("/uploads/") {
            filled = filled.replace("{upload_id}", "{spare_upload_id}");
        }
        // Only a job that has succeeded can enter a board, and has a receipt.
        if text.ends_with("/board") || text.ends_with("/receipt.json") {
            filled = filled.replace("{job_id}", "{scored_job_id}");
        }
        for (name, value) in &self.0 {
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        assert!(!filled.contains('{'), "{filled}");
        filled
    }

    /// Returns the form fields that the user fills in.
    pub fn fields(&self, form: &Form) -> Fields {
        let fields = form.fields.iter();
        fields
            .map(|(name, value)| ((*name).to_owned(), self.fill(value)))
            .collect()
    }
}

/// Returns what forms can change, as far as nothing else changes it.
pub async fn stored_state(world: &World) -> Value {
    let columns = [
        ("audit_entries", "count(*)"),
        ("orgs", "json_agg(t order by id)"),
        ("users", "json_agg(t order by id)"),
        ("memberships", "json_agg(t order by org_id, user_id)"),
        ("invites", "json_agg(t order by id)"),
        (
            "api_keys",
            "json_agg(json_build_array(id, name, revoked_at, expires_at) order by id)",
        ),
        (
            "sessions",
            "json_agg(json_build_array(id, org_id, ended_at) order by id)",
        ),
        (
            "sign_in_links",
            "json_agg(json_build_array(email, used_at) order by token_hash)",
        ),
        (
            "device_logins",
            "json_agg(json_build_array(id, denied_at, approved_at) order by id)",
        ),
        (
            "mail_preferences",
            "json_agg(json_build_array(user_id, job_mails, thresholds) order by user_id)",
        ),
        ("domain_claims", "json_agg(t order by org_id, domain)"),
        ("terms_acceptances", "json_agg(t order by org_id)"),
        (
            "uploads",
            "json_agg(json_build_array(id, status, deleted_at) order by id)",
        ),
        (
            "jobs",
            "json_agg(json_build_array(id, status, label) order by id)",
        ),
        (
            "board_entries",
            "json_agg(json_build_array(id, name, withdrawn_at) order by id)",
        ),
    ];
    let parts =
        columns.map(|(table, columns)| format!("'{table}', (select {columns} from {table} t)"));
    let select = format!("select json_build_object({})", parts.join(", "));
    sqlx::query_scalar(sqlx::AssertSqlSafe(select))
        .fetch_one(&mut world.database().await)
        .await
        .unwrap()
}
