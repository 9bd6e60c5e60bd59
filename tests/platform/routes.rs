//! Every route in one table: who may call it, what its path names, what a good call sends. Tests are made from it.

use assay_tests::client::Client;
use serde_json::{Value, json};
use std::collections::BTreeSet;

use crate::harness::{Org, World, one_prediction, routed_operations, text, with, world_of};
use crate::name_server::NameServer;

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Anybody, also without a credential.
    Open,
    /// Any credential of an organization.
    Any,
    /// A key, or the session of a member or owner.
    Submitter,
    /// Any session of an organization.
    Session,
    /// The session of a member or owner.
    Member,
    /// The session of an owner.
    Owner,
    /// Any session, also of a person without organization.
    Person,
}

/// Who calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// No credential.
    Nobody,
    /// A token that is none.
    Malformed,
    /// A key that was revoked.
    Revoked,
    /// A key.
    Key,
    /// The session of a viewer.
    Viewer,
    /// The session of a member.
    Member,
    /// The session of an owner.
    Owner,
    /// The session of a person without organization.
    Homeless,
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
        Self::Homeless,
    ];
}

impl Class {
    /// Whether one may call, or the refusal: status and code.
    pub fn verdict(self, who: Who) -> Result<(), (u16, &'static str)> {
        let is_session = matches!(
            self,
            Self::Session | Self::Member | Self::Owner | Self::Person
        );
        match who {
            _ if self == Self::Open => Ok(()),
            Who::Nobody => Err((401, "unauthenticated")),
            Who::Malformed => Err((401, "invalid_token")),
            Who::Revoked => Err((401, "key_revoked")),
            Who::Key if is_session => Err((403, "session_required")),
            Who::Homeless if self == Self::Person => Ok(()),
            Who::Homeless => Err((403, "org_required")),
            Who::Viewer if matches!(self, Self::Submitter | Self::Member | Self::Owner) => {
                Err((403, "forbidden"))
            }
            Who::Member if self == Self::Owner => Err((403, "forbidden")),
            Who::Key | Who::Viewer | Who::Member | Who::Owner => Ok(()),
        }
    }
}

/// What a path's parameter names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    /// The path has no parameter.
    None,
    Key,
    Member,
    /// A job that waits.
    Job,
    /// A job that has succeeded.
    Scored,
    /// The same, of a suite that gives feedback on single items.
    ScoredWithFeedback,
    /// The same, of a suite with sealed items; always the same one, because few jobs can be final.
    ScoredWithSealed,
    /// The organization that the session acts for.
    Org,
    Invite,
    /// A domain whose claim is pending.
    Claim,
    /// A domain that is the organization's.
    Domain,
    /// An upload that has its first part.
    Upload,
    /// One that the caller does not have: a session belongs to its user alone.
    Session,
    /// Published for everybody: there is no other organization's.
    Suite,
    Model,
}

impl Thing {
    /// Ids of this form that name nothing, and texts that are no id.
    pub const fn unknown(self) -> [&'static str; 2] {
        match self {
            Self::None => ["", ""],
            Self::Key => ["key_0", "nonsense"],
            Self::Member => ["usr_0", "nonsense"],
            Self::Org => ["org_0", "nonsense"],
            Self::Session => ["ses_0", "nonsense"],
            Self::Invite => ["inv_0", "nonsense"],
            Self::Claim | Self::Domain => ["unclaimed.example", "nonsense"],
            Self::Job | Self::Scored | Self::ScoredWithFeedback | Self::ScoredWithSealed => {
                ["job_0", "nonsense"]
            }
            Self::Upload => ["upl_0", "nonsense"],
            Self::Suite => ["suite:none", "nonsense"],
            Self::Model => ["none", "%00"],
        }
    }

    /// Whether it belongs to an organization.
    pub const fn is_owned(self) -> bool {
        !matches!(self, Self::None | Self::Session | Self::Suite | Self::Model)
    }
}

/// One operation.
pub struct Route {
    pub method: &'static str,
    /// As the router has it.
    pub path: &'static str,
    pub class: Class,
    pub thing: Thing,
    /// What a good call sends.
    pub body: fn() -> Value,
    /// What a good call is answered with.
    pub success: u16,
}

fn no_body() -> Value {
    Value::Null
}

const fn get(path: &'static str, class: Class, thing: Thing) -> Route {
    Route {
        method: "GET",
        path,
        class,
        thing,
        body: no_body,
        success: 200,
    }
}

const fn call(
    method: &'static str,
    path: &'static str,
    class: Class,
    thing: Thing,
    body: fn() -> Value,
    success: u16,
) -> Route {
    Route {
        method,
        path,
        class,
        thing,
        body,
        success,
    }
}

/// Every route. One that is missing fails a test.
pub const ROUTES: &[Route] = &[
    get("/health", Class::Open, Thing::None),
    get("/v1/me", Class::Any, Thing::None),
    get("/v1/keys", Class::Session, Thing::None),
    call(
        "POST",
        "/v1/keys",
        Class::Member,
        Thing::None,
        || json!({"name": "made"}),
        201,
    ),
    call(
        "DELETE",
        "/v1/keys/{key_id}",
        Class::Member,
        Thing::Key,
        no_body,
        200,
    ),
    get("/v1/suites", Class::Any, Thing::None),
    get("/v1/suites/{suite_id}/items", Class::Any, Thing::Suite),
    get("/v1/members", Class::Session, Thing::None),
    call(
        "PATCH",
        "/v1/members/{user_id}",
        Class::Owner,
        Thing::Member,
        || json!({"role": "member"}),
        200,
    ),
    call(
        "DELETE",
        "/v1/members/{user_id}",
        Class::Owner,
        Thing::Member,
        no_body,
        204,
    ),
    call(
        "POST",
        "/v1/orgs",
        Class::Person,
        Thing::None,
        || json!({"name": "One more"}),
        201,
    ),
    call(
        "PATCH",
        "/v1/orgs/{org_id}",
        Class::Owner,
        Thing::Org,
        || json!({"name": "Renamed"}),
        200,
    ),
    get("/v1/invites", Class::Owner, Thing::None),
    call(
        "POST",
        "/v1/invites",
        Class::Owner,
        Thing::None,
        || json!({"email": fresh("invited", "@example.org")}),
        201,
    ),
    call(
        "DELETE",
        "/v1/invites/{invite_id}",
        Class::Owner,
        Thing::Invite,
        no_body,
        200,
    ),
    get("/v1/terms", Class::Any, Thing::None),
    call(
        "POST",
        "/v1/terms/accept",
        Class::Owner,
        Thing::None,
        || json!({"version": TERMS.0}),
        200,
    ),
    get("/v1/domains", Class::Session, Thing::None),
    call(
        "POST",
        "/v1/domains",
        Class::Owner,
        Thing::None,
        || json!({"domain": fresh("made", ".example")}),
        201,
    ),
    call(
        "POST",
        "/v1/domains/{domain}/verify",
        Class::Owner,
        Thing::Claim,
        no_body,
        200,
    ),
    call(
        "PATCH",
        "/v1/domains/{domain}",
        Class::Owner,
        Thing::Domain,
        || json!({"auto_join": true}),
        200,
    ),
    call(
        "DELETE",
        "/v1/domains/{domain}",
        Class::Owner,
        Thing::Domain,
        no_body,
        204,
    ),
    call(
        "POST",
        "/v1/auth/email",
        Class::Open,
        Thing::None,
        || json!({"email": fresh("comes", "@example.org")}),
        202,
    ),
    // A link that holds is used up by its first use; this one is none.
    call(
        "POST",
        "/v1/auth/email/verify",
        Class::Open,
        Thing::None,
        || json!({"token": "svc_link_none"}),
        401,
    ),
    get("/v1/models", Class::Any, Thing::None),
    get("/v1/models/{model_id}", Class::Any, Thing::Model),
    get("/v1/usage", Class::Any, Thing::None),
    call(
        "POST",
        "/v1/uploads",
        Class::Submitter,
        Thing::None,
        upload,
        201,
    ),
    get("/v1/uploads/{upload_id}", Class::Any, Thing::Upload),
    call(
        "PUT",
        "/v1/uploads/{upload_id}/parts/{number}",
        Class::Submitter,
        Thing::Upload,
        part,
        200,
    ),
    call(
        "POST",
        "/v1/uploads/{upload_id}/complete",
        Class::Submitter,
        Thing::Upload,
        no_body,
        200,
    ),
    call(
        "DELETE",
        "/v1/uploads/{upload_id}",
        Class::Submitter,
        Thing::Upload,
        no_body,
        204,
    ),
    call(
        "POST",
        "/v1/evals",
        Class::Submitter,
        Thing::None,
        eval,
        202,
    ),
    call(
        "POST",
        "/v1/comparisons",
        Class::Any,
        Thing::Scored,
        comparison,
        200,
    ),
    get("/v1/jobs", Class::Any, Thing::None),
    get("/v1/jobs/{job_id}", Class::Any, Thing::Job),
    call(
        "POST",
        "/v1/jobs/{job_id}/cancel",
        Class::Submitter,
        Thing::Job,
        no_body,
        200,
    ),
    call(
        "POST",
        "/v1/jobs/{job_id}/final",
        Class::Submitter,
        Thing::ScoredWithSealed,
        no_body,
        200,
    ),
    get(
        "/v1/jobs/{job_id}/items",
        Class::Any,
        Thing::ScoredWithFeedback,
    ),
    get("/v1/jobs/{job_id}/trace", Class::Any, Thing::Scored),
    get("/v1/sessions", Class::Person, Thing::None),
    call(
        "DELETE",
        "/v1/sessions/{session_id}",
        Class::Person,
        Thing::Session,
        no_body,
        404,
    ),
    call(
        "DELETE",
        "/v1/sessions",
        Class::Person,
        Thing::None,
        no_body,
        204,
    ),
    // Last: who called it has no session any more.
    call(
        "DELETE",
        "/v1/session",
        Class::Person,
        Thing::None,
        no_body,
        204,
    ),
];

/// Version and address of the terms that an installation has to have for the table.
pub const TERMS: (&str, &str) = ("2026-01", "https://terms.example");

/// Stands in a body for the thing that the call is about, where its path does not name it.
const THE_THING: &str = "the thing";

/// A body about this thing.
pub fn about(mut body: Value, id: &str) -> Value {
    for (_, value) in body
        .as_object_mut()
        .into_iter()
        .flatten()
        .filter(|(_, value)| **value == THE_THING)
    {
        *value = id.into();
    }
    body
}

/// A text that is used once.
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

/// Of a job with itself.
fn comparison() -> Value {
    json!({"job_a": THE_THING, "job_b": THE_THING})
}

fn upload() -> Value {
    json!({"kind": "predictions"})
}

/// One line of predictions.
fn part() -> Value {
    one_prediction()[0].clone()
}

impl Route {
    /// The path of this thing; of its parts, the first.
    pub fn path_of(&self, id: &str) -> String {
        let path = self.path.replace("{number}", "1");
        match (path.find('{'), path.find('}')) {
            (Some(from), Some(to)) => format!("{}{id}{}", &path[..from], &path[to + 1..]),
            _ => path,
        }
    }

    /// What a good call sends, of this thing.
    pub fn body_of(&self, id: &str) -> Value {
        about((self.body)(), id)
    }

    /// A good call with this client, but for the id.
    pub fn request(&self, client: &Client, id: &str) -> reqwest::RequestBuilder {
        self.request_with(client, id, &self.body_of(id))
    }

    /// The same with another body.
    pub fn request_with(&self, client: &Client, id: &str, body: &Value) -> reqwest::RequestBuilder {
        let request = client.request(self.method, &self.path_of(id));
        if body.is_null() {
            request
        } else {
            request.json(body)
        }
    }
}

/// Clients of every kind, of one organization.
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
            .request("DELETE", &format!("/v1/keys/{}", text(&made.body["id"])));
        assert_eq!(world.owner().send(revoke).await.unwrap().status, 200);
        let mut callers = Vec::new();
        for who in Who::ALL {
            let client = match who {
                Who::Nobody => world.anonymous(),
                Who::Malformed => world.client("svc_live_nonsense"),
                Who::Revoked => world.client(&text(&made.body["key"])),
                Who::Key => world.key(),
                Who::Viewer => world.member("viewer").await,
                Who::Member => world.member("member").await,
                Who::Owner => world.owner(),
                Who::Homeless => world.homeless("homeless").await,
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

/// Failed authentications and requests in a minute, of a stack that is furnished.
pub const FAILURES: u64 = 1_000_000;
pub const REQUESTS: u64 = 100_000;
pub const MAILS: u64 = 1_000;

/// A world in which every route can be called well: with terms, which the organization has accepted, a name server, a
/// model, and a suite that gives feedback.
pub async fn furnished() -> (World, NameServer) {
    let name_server = NameServer::start().await;
    let mut plan = with("ASSAY_AUTH_FAILURES_PER_MINUTE", &FAILURES.to_string());
    let further = [
        ("ASSAY_TERMS_VERSION", TERMS.0.to_owned()),
        ("ASSAY_TERMS_URL", TERMS.1.to_owned()),
        ("ASSAY_DNS_SERVER", name_server.address.to_string()),
        ("ASSAY_SIGN_IN_MAILS_PER_MINUTE", MAILS.to_string()),
        // Tests call as a thousand organizations, each with a client of its own.
        ("ASSAY_CONNECTIONS_PER_ADDRESS", "5000".to_owned()),
    ];
    plan.env
        .extend(further.map(|(name, value)| (name.to_owned(), value)));
    let world = world_of(plan).await;
    let plans = format!(
        "update plans set requests_per_minute = {REQUESTS}, concurrent_jobs = 1000 where plan = 'team'"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(plans))
        .execute(&mut world.database().await)
        .await
        .unwrap();
    crate::models::publish(&world, &crate::models::file())
        .await
        .unwrap();
    crate::feedback::publish(&world, "1").await;
    crate::sealed::publish(&world).await;
    world.accept_terms(&world.org).await;
    (world, name_server)
}

impl World {
    /// Has an organization accept the terms.
    pub async fn accept_terms(&self, org: &Org) {
        let accepted = self
            .client(&org.session)
            .post("/v1/terms/accept", &json!({"version": TERMS.0}))
            .await
            .unwrap();
        assert_eq!(accepted.status, 200, "{}", accepted.body);
    }

    /// A person who belongs to no organization.
    pub async fn homeless(&self, name: &str) -> Client {
        self.client(&self.sign_in(&format!("{name}@example.org")).await)
    }

    /// Makes a thing in an organization and returns what names it in a path.
    pub async fn thing(&self, org: &Org, thing: Thing) -> String {
        let (owner, key) = (self.client(&org.session), self.client(&org.key));
        match thing {
            Thing::None => String::new(),
            Thing::Session => "ses_00".into(),
            Thing::Suite => "suite:lunch".into(),
            Thing::Model => "next-1".into(),
            Thing::Key => text(
                &owner
                    .post("/v1/keys", &json!({"name": "thing"}))
                    .await
                    .unwrap()
                    .body["id"],
            ),
            Thing::Job => text(&key.post("/v1/evals", &eval()).await.unwrap().body["id"]),
            Thing::Scored => {
                let id = text(&key.post("/v1/evals", &eval()).await.unwrap().body["id"]);
                let job = key
                    .finished(&id, crate::harness::PATIENCE, &|_| {})
                    .await
                    .unwrap();
                assert_eq!(job["status"], "succeeded");
                id
            }
            Thing::ScoredWithFeedback => {
                let job = crate::feedback::scored(self, &org.key, &one_prediction()).await;
                assert_eq!(job["status"], "succeeded");
                text(&job["id"])
            }
            Thing::ScoredWithSealed => crate::sealed::job(self, &key).await,
            Thing::Upload => {
                let id = text(&key.post("/v1/uploads", &upload()).await.unwrap().body["id"]);
                assert_eq!(
                    key.send(
                        key.request("PUT", &format!("/v1/uploads/{id}/parts/1"))
                            .json(&part())
                    )
                    .await
                    .unwrap()
                    .status,
                    200
                );
                id
            }
            Thing::Org => org.id.clone(),
            Thing::Invite => text(
                &owner
                    .post(
                        "/v1/invites",
                        &json!({"email": fresh("thing", "@example.org")}),
                    )
                    .await
                    .unwrap()
                    .body["id"],
            ),
            Thing::Claim | Thing::Domain => {
                let claim = owner
                    .post(
                        "/v1/domains",
                        &json!({"domain": fresh("thing", ".example")}),
                    )
                    .await
                    .unwrap();
                let domain = text(&claim.body["domain"]);
                if thing == Thing::Domain {
                    let verified = "update domain_claims set verified_at = now() where domain = $1";
                    sqlx::query(verified)
                        .bind(&domain)
                        .execute(&mut self.database().await)
                        .await
                        .unwrap();
                }
                domain
            }
            Thing::Member => {
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
fn every_route_is_in_the_table_and_the_other_way_round() {
    let listed: BTreeSet<String> = ROUTES
        .iter()
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    assert_eq!(routed_operations(), listed);
}
