//! A table of all routes: permitted callers, the resource in the path, and a valid request. Tests
//! iterate over it.

use assay_core::model::scope::Scope;
use assay_proto::OPERATIONS;
use assay_proto::operations::{Access, Operation, Rate};
use assay_tests::client::Client;
use assay_tests::stack::StackSize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;

use crate::harness::{
    Expect, Org, World, declared_operations, one_prediction, string, with_setting, world_with,
};
use crate::name_server::NameServer;

/// The callers that a route permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Any caller, also without a credential.
    Open,
    /// Any credential of an organization.
    Any,
    /// A caller without a credential, a key with this scope, or any session of an organization: the resource is
    /// public.
    Public(Scope),
    /// A key with this scope, or any session of an organization.
    Reader(Scope),
    /// A key with this scope, or the session of a member or owner.
    Submitter(Scope),
    /// Any session of an organization.
    Session,
    /// The session of a member or owner.
    Member,
    /// An owner's session.
    Owner,
    /// Any session, also of a user without an organization.
    Person,
}

/// A kind of caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A caller without a credential.
    Nobody,
    /// A malformed token.
    Malformed,
    /// A revoked API key.
    Revoked,
    /// A valid API key.
    Key,
    /// The session of a viewer.
    Viewer,
    /// A member's session.
    Member,
    /// An owner's session.
    Owner,
    /// The session of a user without an organization.
    UserWithoutOrg,
}

impl Who {
    pub const ALL: [Self; 8] = [
        Self::Nobody,
        Self::Malformed,
        Self::Revoked,
        Self::Key,
        Self::Viewer,
        Self::Member,
        Self::Owner,
        Self::UserWithoutOrg,
    ];
}

impl Class {
    /// Returns the scope that a key must have.
    pub const fn scope(self) -> Option<Scope> {
        match self {
            Self::Public(scope) | Self::Reader(scope) | Self::Submitter(scope) => Some(scope),
            Self::Open | Self::Any | Self::Session | Self::Member | Self::Owner | Self::Person => {
                None
            }
        }
    }

    /// Returns `Ok` if the caller is permitted, otherwise the status and code of the error.
    pub fn verdict(self, who: Who) -> Result<(), (u16, &'static str)> {
        let is_session = matches!(
            self,
            Self::Session | Self::Member | Self::Owner | Self::Person
        );
        match who {
            _ if self == Self::Open => Ok(()),
            Who::Nobody if matches!(self, Self::Public(_)) => Ok(()),
            Who::Nobody => Err((401, "unauthenticated")),
            Who::Malformed => Err((401, "invalid_token")),
            Who::Revoked => Err((401, "key_revoked")),
            Who::Key if is_session => Err((403, "session_required")),
            Who::UserWithoutOrg if self == Self::Person => Ok(()),
            Who::UserWithoutOrg => Err((403, "org_required")),
            Who::Viewer if matches!(self, Self::Submitter(_) | Self::Member | Self::Owner) => {
                Err((403, "forbidden"))
            }
            Who::Member if self == Self::Owner => Err((403, "forbidden")),
            Who::Key | Who::Viewer | Who::Member | Who::Owner => Ok(()),
        }
    }
}

/// The resource that a path parameter identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource {
    /// The path has no parameter.
    None,
    Key,
    Member,
    /// A queued job.
    Job,
    /// A job that has succeeded.
    Scored,
    /// A succeeded job of a suite with per-item feedback.
    ScoredWithFeedback,
    /// A succeeded job of a suite with sealed items; always the same one, because few jobs can be
    /// final.
    ScoredWithSealed,
    /// A suite with a live board.
    Board,
    /// An entry of that board; always the same one, because few jobs can enter.
    Entry,
    /// A succeeded job's receipt.
    Receipt,
    /// A retired suite's file. Its id is `suite:…/opening/….ndjson`.
    OpenedFile,
    /// A succeeded prediction job.
    Predicted,
    /// The session's current organization.
    Org,
    Invite,
    /// A domain whose claim is pending.
    Claim,
    /// A verified domain of the organization.
    Domain,
    /// An upload with its first part.
    Upload,
    /// A draft with the first part of a file.
    Draft,
    /// A draft that can be published, with the content of `suite:lunch`.
    CheckedDraft,
    /// A private suite of the organization, without items.
    OwnSuite,
    /// A grant of that suite.
    Grant,
    /// An entry on that suite's board, for a job of the organization.
    OwnEntry,
    /// Such an entry after it was removed.
    RemovedEntry,
    /// A webhook whose receiver cannot be reached.
    Webhook,
    /// A delivery of such a webhook. Its id is `whk_…/deliveries/dlv_…`.
    Delivery,
    /// An id that no caller's session has: sessions are visible to their user only.
    Session,
    /// A published resource, which belongs to no organization.
    Suite,
    Model,
    /// A model that an engine serves.
    ServedModel,
}

impl Resource {
    /// Returns a well-formed id of no resource, and a malformed id.
    pub const fn unknown(self) -> [&'static str; 2] {
        match self {
            Self::None => ["", ""],
            Self::Key => ["key_0", "nonsense"],
            Self::Member => ["usr_0", "nonsense"],
            Self::Org => ["org_0", "nonsense"],
            Self::Session => ["ses_0", "nonsense"],
            Self::Invite => ["inv_0", "nonsense"],
            Self::Claim | Self::Domain => ["unclaimed.example", "nonsense"],
            Self::Job
            | Self::Scored
            | Self::ScoredWithFeedback
            | Self::ScoredWithSealed
            | Self::Predicted => ["job_0", "nonsense"],
            Self::Upload => ["upl_0", "nonsense"],
            Self::Draft | Self::CheckedDraft => ["dft_0", "nonsense"],
            Self::Webhook => ["whk_0", "nonsense"],
            Self::Delivery => ["whk_0/deliveries/dlv_0", "nonsense/deliveries/nonsense"],
            Self::Suite | Self::OwnSuite | Self::Board => ["suite:none", "nonsense"],
            Self::Grant => ["grt_0", "nonsense"],
            Self::Entry | Self::OwnEntry | Self::RemovedEntry => ["ent_0", "nonsense"],
            Self::Receipt => ["rcp_0", "nonsense"],
            Self::OpenedFile => [
                "suite:lunch/opening/items.ndjson",
                "nonsense/opening/nonsense",
            ],
            Self::Model | Self::ServedModel => ["none", "%00"],
        }
    }

    /// Returns `true` if the resource belongs to an organization.
    pub const fn is_owned(self) -> bool {
        !matches!(
            self,
            Self::None
                | Self::Session
                | Self::Suite
                | Self::Board
                | Self::OpenedFile
                | Self::Model
                | Self::ServedModel
        )
    }
}

/// One operation of the API, with a request that the tests send.
pub struct Route {
    pub method: &'static str,
    /// The router's path pattern.
    pub path: &'static str,
    pub resource: Resource,
    /// The body of a valid request.
    pub body: fn() -> Value,
    /// The status of the response, if it is not a success.
    refusal: Option<u16>,
}

fn no_body() -> Value {
    Value::Null
}

const fn read(path: &'static str, resource: Resource) -> Route {
    call("GET", path, resource, no_body)
}

const fn call(
    method: &'static str,
    path: &'static str,
    resource: Resource,
    body: fn() -> Value,
) -> Route {
    Route {
        method,
        path,
        resource,
        body,
        refusal: None,
    }
}

const fn refused(
    method: &'static str,
    path: &'static str,
    resource: Resource,
    body: fn() -> Value,
    status: u16,
) -> Route {
    Route {
        refusal: Some(status),
        ..call(method, path, resource, body)
    }
}

/// All routes of the API. A test compares the table with the declared operations.
pub static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    let reads = OPERATIONS
        .iter()
        .filter(|one| one.method == "GET" && !one.path.contains('{'))
        .map(|one| read(one.path, Resource::None));
    reads.chain(with_request()).collect()
});

/// Returns the routes that need a body or a resource.
fn with_request() -> Vec<Route> {
    vec![
        call(
            "POST",
            "/v1/keys",
            Resource::None,
            || json!({"name": "made"}),
        ),
        call(
            "PATCH",
            "/v1/keys/{key_id}",
            Resource::Key,
            || json!({"name": "renamed"}),
        ),
        call(
            "POST",
            "/v1/keys/{key_id}/rotate",
            Resource::Key,
            || json!({"overlap_hours": 1}),
        ),
        call("DELETE", "/v1/keys/{key_id}", Resource::Key, no_body),
        read("/v1/suites/{suite_id}", Resource::Suite),
        read("/v1/suites/{suite_id}/items", Resource::Suite),
        call(
            "PATCH",
            "/v1/members/{user_id}",
            Resource::Member,
            || json!({"role": "member"}),
        ),
        call("DELETE", "/v1/members/{user_id}", Resource::Member, no_body),
        call(
            "POST",
            "/v1/orgs",
            Resource::None,
            || json!({"name": "One more"}),
        ),
        call(
            "PATCH",
            "/v1/orgs/{org_id}",
            Resource::Org,
            || json!({"name": "Renamed"}),
        ),
        call(
            "POST",
            "/v1/invites",
            Resource::None,
            || json!({"email": fresh("invited", "@example.org")}),
        ),
        call(
            "DELETE",
            "/v1/invites/{invite_id}",
            Resource::Invite,
            no_body,
        ),
        call(
            "POST",
            "/v1/terms/accept",
            Resource::None,
            || json!({"version": TERMS.0}),
        ),
        call(
            "POST",
            "/v1/domains",
            Resource::None,
            || json!({"domain": fresh("made", ".example")}),
        ),
        call(
            "POST",
            "/v1/domains/{domain}/verify",
            Resource::Claim,
            no_body,
        ),
        call(
            "PATCH",
            "/v1/domains/{domain}",
            Resource::Domain,
            || json!({"auto_join": true}),
        ),
        call("DELETE", "/v1/domains/{domain}", Resource::Domain, no_body),
        call(
            "POST",
            "/v1/auth/email",
            Resource::None,
            || json!({"email": fresh("comes", "@example.org")}),
        ),
        // A valid link works only once, so this one is invalid.
        refused(
            "POST",
            "/v1/auth/email/verify",
            Resource::None,
            || json!({"token": "svc_link_none"}),
            401,
        ),
        call(
            "POST",
            "/v1/auth/device",
            Resource::None,
            || json!({"client_name": "assay"}),
        ),
        // A valid code is polled at most once in 5 seconds, so this one is invalid.
        refused(
            "POST",
            "/v1/auth/device/token",
            Resource::None,
            || json!({"device_code": "svc_devc_none"}),
            401,
        ),
        read("/v1/models/{model_id}", Resource::Model),
        call(
            "POST",
            "/v1/models/{model_id}/predict",
            Resource::ServedModel,
            sequences,
        ),
        call(
            "POST",
            "/v1/models/{model_id}/generate",
            Resource::ServedModel,
            sequences,
        ),
        call(
            "POST",
            "/v1/models/{model_id}/embed",
            Resource::ServedModel,
            sequences,
        ),
        call("POST", "/v1/predictions", Resource::None, prediction),
        read("/v1/jobs/{job_id}/events", Resource::Scored),
        read("/v1/jobs/{job_id}/output", Resource::Predicted),
        // Few jobs can enter a board, so this one is of a suite without a board.
        refused(
            "POST",
            "/v1/jobs/{job_id}/board",
            Resource::Scored,
            || json!({"name": "entry"}),
            409,
        ),
        call("DELETE", "/v1/entries/{entry_id}", Resource::Entry, no_body),
        read("/v1/suites/{suite_id}/board", Resource::Board),
        read("/v1/jobs/{job_id}/receipt", Resource::Scored),
        read("/v1/jobs/{job_id}/receipt/opening", Resource::Scored),
        read("/v1/receipts/{receipt_id}", Resource::Receipt),
        read("/v1/suites/{suite_id}/commitment", Resource::Suite),
        read("/v1/suites/{suite_id}/opening/{file}", Resource::OpenedFile),
        call("POST", "/v1/uploads", Resource::None, upload),
        read("/v1/uploads/{upload_id}", Resource::Upload),
        call(
            "PUT",
            "/v1/uploads/{upload_id}/parts/{number}",
            Resource::Upload,
            part,
        ),
        call(
            "POST",
            "/v1/uploads/{upload_id}/complete",
            Resource::Upload,
            no_body,
        ),
        call(
            "DELETE",
            "/v1/uploads/{upload_id}",
            Resource::Upload,
            no_body,
        ),
        // The organization has no handle.
        refused("POST", "/v1/drafts", Resource::None, draft, 409),
        read("/v1/drafts/{draft_id}", Resource::Draft),
        call(
            "PUT",
            "/v1/drafts/{draft_id}/files/{name}/{number}",
            Resource::Draft,
            part,
        ),
        call(
            "POST",
            "/v1/drafts/{draft_id}/check",
            Resource::Draft,
            no_body,
        ),
        read("/v1/drafts/{draft_id}/items", Resource::CheckedDraft),
        call(
            "POST",
            "/v1/drafts/{draft_id}/publish",
            Resource::CheckedDraft,
            no_body,
        ),
        call("DELETE", "/v1/drafts/{draft_id}", Resource::Draft, no_body),
        call(
            "PATCH",
            "/v1/suites/{suite_id}",
            Resource::OwnSuite,
            || json!({"title": "Votes"}),
        ),
        read("/v1/suites/{suite_id}/versions", Resource::Suite),
        call(
            "POST",
            "/v1/suites/{suite_id}/errata",
            Resource::OwnSuite,
            || json!({"version": "1", "note": "Item 7 is ambiguous."}),
        ),
        read("/v1/suites/{suite_id}/grants", Resource::OwnSuite),
        call(
            "POST",
            "/v1/suites/{suite_id}/grants",
            Resource::OwnSuite,
            || json!({"domain": "lab.example"}),
        ),
        call("DELETE", "/v1/grants/{grant_id}", Resource::Grant, no_body),
        read("/v1/suites/{suite_id}/submitters", Resource::OwnSuite),
        call(
            "POST",
            "/v1/suites/{suite_id}/retire",
            Resource::OwnSuite,
            || json!({"version": "1", "confirm": true}),
        ),
        call(
            "POST",
            "/v1/entries/{entry_id}/remove",
            Resource::OwnEntry,
            || json!({"reason": "Copied answers."}),
        ),
        call(
            "POST",
            "/v1/entries/{entry_id}/restore",
            Resource::RemovedEntry,
            || json!({"reason": "Not copied."}),
        ),
        // A valid link works for few organizations, so this one is invalid.
        refused(
            "POST",
            "/v1/grants/accept",
            Resource::None,
            || json!({"token": "svc_grnt_none"}),
            404,
        ),
        call("POST", "/v1/evals", Resource::None, eval),
        call("POST", "/v1/comparisons", Resource::Scored, comparison),
        read("/v1/jobs/{job_id}", Resource::Job),
        call("POST", "/v1/jobs/{job_id}/cancel", Resource::Job, no_body),
        call(
            "POST",
            "/v1/jobs/{job_id}/final",
            Resource::ScoredWithSealed,
            no_body,
        ),
        read("/v1/jobs/{job_id}/items", Resource::ScoredWithFeedback),
        read("/v1/jobs/{job_id}/trace", Resource::Scored),
        call("POST", "/v1/webhooks", Resource::None, webhook),
        read("/v1/webhooks/{webhook_id}", Resource::Webhook),
        call(
            "PATCH",
            "/v1/webhooks/{webhook_id}",
            Resource::Webhook,
            || json!({"description": "changed"}),
        ),
        call(
            "DELETE",
            "/v1/webhooks/{webhook_id}",
            Resource::Webhook,
            no_body,
        ),
        call(
            "POST",
            "/v1/webhooks/{webhook_id}/rotate",
            Resource::Webhook,
            || json!({"overlap_hours": 1}),
        ),
        call(
            "POST",
            "/v1/webhooks/{webhook_id}/test",
            Resource::Webhook,
            || json!({"type": "ping"}),
        ),
        read("/v1/webhooks/{webhook_id}/deliveries", Resource::Webhook),
        call(
            "POST",
            "/v1/webhooks/{webhook_id}/deliveries/{delivery_id}/retry",
            Resource::Delivery,
            no_body,
        ),
        call(
            "POST",
            "/v1/webhooks/{webhook_id}/recover",
            Resource::Webhook,
            || json!({"since": assay_core::Timestamp::now()}),
        ),
        refused(
            "DELETE",
            "/v1/sessions/{session_id}",
            Resource::Session,
            no_body,
            404,
        ),
        call("DELETE", "/v1/sessions", Resource::None, no_body),
        // Last, because the caller has no session afterwards.
        call("DELETE", "/v1/session", Resource::None, no_body),
    ]
}

/// Version and URL of the terms that an installation needs for the table.
pub const TERMS: (&str, &str) = ("2026-01", "https://terms.example");

/// A function that returns an organization's private suite, a copy of `suite:lunch` without items, errata and grants, and creates it if needed.
const OWN_SUITE: &str = "
    create function own_suite(owner text) returns text language plpgsql as $$
    declare
        own text := 'suite:own.' || md5(owner);
    begin
        perform pg_advisory_xact_lock(hashtext(own));
        if not exists (select from suites where suite_id = own) then
            with content as (
                insert into suite_contents (n_items, bytes, content_sha256, version)
                select c.n_items, c.bytes, c.content_sha256, c.version
                from suite_contents c
                join suites s on s.content_id = c.id
                where s.suite_id = 'suite:lunch'
                limit 1
                returning id
            )
            insert into suites
            select v.*
            from suites s
            cross join content c
            cross join lateral jsonb_populate_record(s, jsonb_build_object('suite_id', own, 'version', '1', 'content_id', c.id)) v
            where s.suite_id = 'suite:lunch'
            limit 1;
            insert into suite_commitments
            select v.*
            from suite_commitments c
            cross join lateral jsonb_populate_record(c, jsonb_build_object(
                'suite_id', own, 'suite_version', '1', 'kid', null, 'signature', null, 'log_index', null
            )) v
            where c.suite_id = 'suite:lunch'
            limit 1;
            insert into suite_owners (suite_id, org_id, visibility, access) values (own, owner, 'private', 'everyone');
            -- A publisher has a handle.
            update orgs set handle = 'o' || left(md5(owner), 20) where id = owner and handle is null;
        end if;
        update suite_owners set errata = '[]' where suite_id = own;
        update suite_commitments set retired_at = null where suite_id = own;
        delete from suite_grants where suite_id = own and created_at < now() - interval '1 minute';
        return own;
    end $$
";

/// A placeholder in a body for the resource's id, if the path does not contain it.
const RESOURCE_ID_PLACEHOLDER: &str = "the resource";

/// Returns the body with the resource's id in place of the placeholder.
pub fn with_resource_id(mut body: Value, id: &str) -> Value {
    for (_, value) in body
        .as_object_mut()
        .into_iter()
        .flatten()
        .filter(|(_, value)| **value == RESOURCE_ID_PLACEHOLDER)
    {
        *value = id.into();
    }
    body
}

/// Returns a unique string.
fn fresh(begin: &str, end: &str) -> String {
    format!(
        "{}{end}",
        assay_tests::databases::fresh_name(begin)
            .replace('_', "-")
            .to_lowercase()
    )
}

fn eval() -> Value {
    json!({"suite_id": "suite:lunch", "predictions": one_prediction()})
}

/// Returns the body for comparing a job with itself.
fn comparison() -> Value {
    json!({"job_a": RESOURCE_ID_PLACEHOLDER, "job_b": RESOURCE_ID_PLACEHOLDER})
}

/// Returns a serving request's body.
fn sequences() -> Value {
    json!({"sequences": [{"sequence_id": "p", "events": [{"item_id": "dish-01"}]}]})
}

fn prediction() -> Value {
    let mut body = sequences();
    body["model_id"] = json!("embedded");
    body
}

fn upload() -> Value {
    json!({"kind": "predictions"})
}

fn draft() -> Value {
    json!({"suite_toml": "suite_id = \"suite:routes.votes\"\nversion = \"1\"\nmetric = \"accuracy\"\n"})
}

/// Returns a webhook's body. Its receiver's name does not exist.
fn webhook() -> Value {
    json!({"url": "https://receiver.invalid/", "events": ["ping"]})
}

/// Returns a part's content: one line of predictions.
fn part() -> Value {
    one_prediction()[0].clone()
}

impl Route {
    /// Returns the operation as it is declared.
    pub fn operation(&self) -> &'static Operation {
        let is_same = |one: &&Operation| one.method == self.method && one.path == self.path;
        let found = OPERATIONS.iter().find(is_same);
        found.unwrap_or_else(|| panic!("{} {} is not declared", self.method, self.path))
    }

    /// Returns the callers that the operation admits.
    pub fn class(&self) -> Class {
        let scope = |name: &str| name.parse().unwrap();
        match self.operation().access {
            Access::Anyone => Class::Open,
            Access::Any => Class::Any,
            // The suites of the tests are listed, so their commitments are public.
            Access::Public(name) if self.operation().rate == Rate::Open => {
                Class::Public(scope(name))
            }
            Access::Public(name) | Access::Reader(name) => Class::Reader(scope(name)),
            Access::Submitter(name) => Class::Submitter(scope(name)),
            Access::Session => Class::Session,
            Access::Member => Class::Member,
            Access::Owner => Class::Owner,
            Access::User => Class::Person,
        }
    }

    /// Returns the status of the response to the request.
    pub fn status(&self) -> u16 {
        self.refusal.unwrap_or(self.operation().success)
    }

    /// Returns `true` if a response to the request has this status. Without a worker, a retirement waits.
    pub fn has_status(&self, status: u16) -> bool {
        status == self.status() || (status == 202 && self.path.ends_with("/retire"))
    }

    /// Returns the path with this id; a part is the first one of `a.csv`.
    pub fn path_of(&self, id: &str) -> String {
        let path = self.path.replace("{number}", "1");
        let path = path.replace("{name}", "a.csv");
        // A delivery's id begins with its webhook's.
        match (path.find('{'), path.rfind('}')) {
            (Some(from), Some(to)) => format!("{}{id}{}", &path[..from], &path[to + 1..]),
            _ => path,
        }
    }

    /// Returns the body of a valid request for the resource with this id.
    pub fn body_of(&self, id: &str) -> Value {
        with_resource_id((self.body)(), id)
    }

    /// Builds a request of this client with a valid body and the given id.
    pub fn request(&self, client: &Client, id: &str) -> reqwest::RequestBuilder {
        self.request_with(client, id, &self.body_of(id))
    }

    /// Builds a request of this client with the given id and body.
    pub fn request_with(&self, client: &Client, id: &str, body: &Value) -> reqwest::RequestBuilder {
        let request = client.request(self.method, &self.path_of(id));
        if body.is_null() {
            request
        } else {
            request.json(body)
        }
    }
}

/// Clients for every kind of caller, for one organization.
pub struct Callers(pub Vec<(Who, Client)>);

impl Callers {
    pub async fn of(world: &World) -> Self {
        let made = world
            .owner()
            .post("/v1/keys", &json!({"name": "old"}))
            .await
            .unwrap();
        let revoke = world
            .owner()
            .request("DELETE", &format!("/v1/keys/{}", string(&made.body["id"])));
        world.owner().send(revoke).await.expect_status(200);
        let mut callers = Vec::new();
        for who in Who::ALL {
            let client = match who {
                Who::Nobody => world.anonymous(),
                Who::Malformed => world.client("svc_live_nonsense"),
                Who::Revoked => world.client(&string(&made.body["key"])),
                Who::Key => world.key(),
                Who::Viewer => world.member("viewer").await,
                Who::Member => world.member("member").await,
                Who::Owner => world.owner(),
                Who::UserWithoutOrg => world.user_without_org("homeless").await,
            };
            callers.push((who, client));
        }
        Self(callers)
    }

    pub fn replace(&mut self, who: Who, client: Client) {
        self.0.retain(|(other, _)| *other != who);
        self.0.push((who, client));
    }
}

/// Failed authentications per minute of a [`world_for_routes`] stack, too many to reach.
pub const FAILURES: u64 = 1_000_000;
pub const REQUESTS: u64 = 100_000;
pub const MAILS: u64 = 1_000;

/// Starts a world in which every route can succeed: it has accepted terms, a name server, models, an
/// engine, and a suite with per-item feedback.
pub async fn world_for_routes() -> (World, NameServer) {
    world_for_routes_from(world_with).await
}

/// As [`world_for_routes`], in the world that `start` returns for a plan.
pub async fn world_for_routes_from(
    start: impl AsyncFnOnce(StackSize) -> World,
) -> (World, NameServer) {
    let name_server = NameServer::start().await;
    let mut plan = with_setting("ASSAY_AUTH_FAILURES_PER_MINUTE", &FAILURES.to_string());
    let further = [
        ("ASSAY_TERMS_VERSION", TERMS.0.to_owned()),
        ("ASSAY_TERMS_URL", TERMS.1.to_owned()),
        ("ASSAY_DNS_SERVER", name_server.address.to_string()),
        ("ASSAY_SIGN_IN_MAILS_PER_MINUTE", MAILS.to_string()),
        ("ASSAY_DEVICE_LOGINS_PER_MINUTE", MAILS.to_string()),
        // An attempt between two calls would change the second response.
        ("ASSAY_WEBHOOK_DELIVERY", "false".to_owned()),
        // Tests call as a thousand organizations, each with its own client address.
        ("ASSAY_CONNECTIONS_PER_ADDRESS", "5000".to_owned()),
    ];
    plan.env
        .extend(further.map(|(name, value)| (name.to_owned(), value)));
    plan.engines = 1;
    let world = start(plan).await;
    let plans = format!(
        "update plans set requests_per_minute = {REQUESTS}, concurrent_jobs = 1000 where plan = 'team'"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(plans))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    sqlx::raw_sql(OWN_SUITE)
        .execute(&mut world.database().await)
        .await
        .unwrap();
    crate::models::publish(&world, &crate::models::file())
        .await
        .unwrap();
    let package = crate::serving::package("embedded");
    crate::packages::publish(&world, &package, None)
        .await
        .unwrap();
    crate::feedback::publish(&world, "1").await;
    crate::sealed::publish(&world).await;
    crate::boards::publish(&world).await;
    crate::receipts::publish_retired(&world).await;
    world.accept_terms(&world.org).await;
    (world, name_server)
}

impl World {
    /// Accepts the terms for an organization.
    pub async fn accept_terms(&self, org: &Org) {
        self.client(&org.session)
            .post("/v1/terms/accept", &json!({"version": TERMS.0}))
            .await
            .expect_status(200);
    }

    /// Returns the client of a new user without an organization.
    pub async fn user_without_org(&self, name: &str) -> Client {
        self.client(&self.sign_in(&format!("{name}@example.org")).await)
    }

    /// Creates a resource in an organization and returns its id.
    pub async fn create_resource(&self, org: &Org, resource: Resource) -> String {
        let owner = self.client(&org.session);
        let key = self.client(&org.key);
        match resource {
            Resource::None => String::new(),
            Resource::Session => "ses_00".into(),
            Resource::Suite => "suite:lunch".into(),
            Resource::Model => "next-1".into(),
            Resource::ServedModel => "embedded".into(),
            Resource::Key => string(
                &owner
                    .post("/v1/keys", &json!({"name": "resource"}))
                    .await
                    .unwrap()
                    .body["id"],
            ),
            Resource::Job => string(&key.post("/v1/evals", &eval()).await.unwrap().body["id"]),
            Resource::Scored => {
                let id = string(&key.post("/v1/evals", &eval()).await.unwrap().body["id"]);
                let job = key.wait_until_finished(&id, &|_| {}).await.unwrap();
                assert_eq!(job["status"], "succeeded");
                id
            }
            Resource::Predicted => {
                let made = key.post("/v1/predictions", &prediction()).await.unwrap();
                let id = string(&made.body["id"]);
                let job = key.wait_until_finished(&id, &|_| {}).await.unwrap();
                assert_eq!(job["status"], "succeeded");
                id
            }
            Resource::ScoredWithFeedback => {
                let job = crate::feedback::submit_and_wait(self, &org.key, &one_prediction()).await;
                assert_eq!(job["status"], "succeeded");
                string(&job["id"])
            }
            Resource::ScoredWithSealed => crate::sealed::job(self, &key).await,
            Resource::Receipt => {
                let job_id = Box::pin(self.create_resource(org, Resource::Scored)).await;
                let path = format!("/v1/jobs/{job_id}/receipt");
                string(&key.get(&path).await.unwrap().body["id"])
            }
            Resource::OpenedFile => crate::receipts::OPENED_FILE.into(),
            Resource::Board => "suite:board".into(),
            Resource::Entry => crate::boards::entry(&key).await,
            Resource::Upload => {
                let id = string(&key.post("/v1/uploads", &upload()).await.unwrap().body["id"]);
                key.send(
                    key.request("PUT", &format!("/v1/uploads/{id}/parts/1"))
                        .json(&part()),
                )
                .await
                .expect_status(200);
                id
            }
            Resource::Draft | Resource::CheckedDraft => {
                let id = assay_core::DraftId::random().unwrap().to_string();
                let mut database = self.database().await;
                // The limits of an organization are few drafts and checks.
                let sql = "update drafts
                           set check_requested_at = null,
                               status = case
                                   when status in ('checking', 'publishing')
                                       or id not in (select id from drafts where org_id = $1 order by created_at desc limit 8)
                                   then 'deleted' else status
                               end
                           where org_id = $1 and status <> 'published'";
                let delete = sqlx::query(sql).bind(&org.id);
                delete.execute(&mut database).await.unwrap();
                let is_checked = resource == Resource::CheckedDraft;
                let sql = "insert into drafts (id, org_id, status, suite_id, version, definition_hmac, created_by, expires_at, content_id)
                           select $1, $2, case when $3 then 'ready' else 'open' end, suite_id, version, '', '', now() + interval '1 day',
                               case when $3 then content_id end
                           from suites where suite_id = 'suite:lunch'";
                let insert = sqlx::query(sql).bind(&id).bind(&org.id).bind(is_checked);
                insert.execute(&mut database).await.unwrap();
                let sql = "insert into draft_parts (org_id, draft_id, name, number, part_id, bytes) values ($2, $1, 'a.csv', 1, $1, 1)";
                let insert = sqlx::query(sql).bind(&id).bind(&org.id);
                insert.execute(&mut database).await.unwrap();
                id
            }
            Resource::OwnSuite => {
                let mut database = self.database().await;
                let id: String = sqlx::query_scalar("select own_suite($1)")
                    .bind(&org.id)
                    .fetch_one(&mut database)
                    .await
                    .unwrap();
                id
            }
            Resource::Grant => {
                let suite_id = Box::pin(self.create_resource(org, Resource::OwnSuite)).await;
                let id = assay_core::GrantId::random().unwrap().to_string();
                let sql = "insert into suite_grants (id, suite_id, domain) values ($1, $2, $1 || '.example')";
                let insert = sqlx::query(sql).bind(&id).bind(&suite_id);
                insert.execute(&mut self.database().await).await.unwrap();
                id
            }
            Resource::OwnEntry | Resource::RemovedEntry => {
                let suite_id = Box::pin(self.create_resource(org, Resource::OwnSuite)).await;
                let job_id = Box::pin(self.create_resource(org, Resource::Job)).await;
                let is_removed = resource == Resource::RemovedEntry;
                crate::boards::insert_entry(self, &suite_id, &job_id, is_removed).await
            }
            Resource::Webhook => {
                // An organization has at most ten webhooks, and a test may need more in turn.
                let sql = "delete from webhooks where org_id = $1 and id not in \
                           (select id from webhooks where org_id = $1 order by created_at desc limit 5)";
                let delete = sqlx::query(sql);
                let delete = delete.bind(&org.id);
                delete.execute(&mut self.database().await).await.unwrap();
                let made = owner.post("/v1/webhooks", &webhook()).await.unwrap();
                string(&made.body["id"])
            }
            Resource::Delivery => {
                let id = Box::pin(self.create_resource(org, Resource::Webhook)).await;
                let test = owner.request("POST", &format!("/v1/webhooks/{id}/test"));
                let delivery = string(&owner.send(test).await.unwrap().body["id"]);
                format!("{id}/deliveries/{delivery}")
            }
            Resource::Org => org.id.clone(),
            Resource::Invite => string(
                &owner
                    .post(
                        "/v1/invites",
                        &json!({"email": fresh("resource", "@example.org")}),
                    )
                    .await
                    .unwrap()
                    .body["id"],
            ),
            Resource::Claim | Resource::Domain => {
                let claim = owner
                    .post(
                        "/v1/domains",
                        &json!({"domain": fresh("resource", ".example")}),
                    )
                    .await
                    .unwrap();
                let domain = string(&claim.body["domain"]);
                if resource == Resource::Domain {
                    let verified = "update domain_claims set verified_at = now() where domain = $1";
                    sqlx::query(verified)
                        .bind(&domain)
                        .execute(&mut self.database().await)
                        .await
                        .unwrap();
                }
                domain
            }
            Resource::Member => {
                let sql = "with person as (insert into users (id, email) values ($1, $2) returning id)
                           insert into memberships (org_id, user_id, role) select $3, id, 'viewer' from person";
                let user_id = assay_core::UserId::random().unwrap().to_string();
                let query = sqlx::query(sql)
                    .bind(&user_id)
                    .bind(format!("{}@example.org", user_id.to_lowercase()))
                    .bind(&org.id);
                query.execute(&mut self.database().await).await.unwrap();
                user_id
            }
        }
    }
}

#[test]
fn every_declared_operation_has_a_request() {
    let listed: BTreeSet<String> = ROUTES
        .iter()
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    assert_eq!(
        declared_operations(),
        listed,
        "the declared operations (left) and ROUTES in tests/platform/routes.rs (right) differ"
    );
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide.md"));
    let guide = guide.unwrap();
    for operation in listed {
        assert!(
            guide.contains(&format!("| `{operation}` |")),
            "the table of operations in docs/guide.md has no row {operation}"
        );
    }
}
