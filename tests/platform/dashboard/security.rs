//! Attempts that must fail: other sites' forms, sessions and links that are used twice, redirects
//! to other sites, and other organizations' resources.

use assay_tests::databases::fresh_name;
use assay_tests::stack::StackSize;
use reqwest::multipart;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::routes::{
    FILES, FORMS, Form, PAGES, Resources, Sender, UPLOAD, new_session, stored_state, world,
};
use super::visitor::{Fields, Page, SESSION, Visitor, fields};
use crate::harness::{
    Expect, World, one_prediction, org, shared_world_without_workers, string, wait_until,
    with_setting, world_with,
};
use crate::mail;
use crate::name_server::NameServer;

/// A world with its organization's resources, and its owner's browser.
struct Site {
    world: World,
    name_server: NameServer,
    own: Resources,
    owner: Visitor,
}

impl Site {
    async fn start() -> Self {
        let (world, name_server) = world(0, true).await;
        let own = Resources::create(&world, &world.org, &name_server, "acme.example").await;
        let owner = Visitor::signed_in(&world, &world.org.session);
        Self {
            world,
            name_server,
            own,
            owner,
        }
    }

    /// Returns a browser with a new owner session.
    async fn new_session(&self) -> Visitor {
        let session = new_session(&self.world, &self.world.org).await;
        Visitor::signed_in(&self.world, &session)
    }
}

/// Returns the token that forms in the visitor's session hold.
async fn csrf(visitor: &mut Visitor) -> String {
    visitor
        .get("/account")
        .await
        .value("/account/theme", "csrf")
}

/// Returns a form with its token and organization, ready to be sent.
fn prepare(
    request: RequestBuilder,
    form: &Form,
    csrf: &str,
    org_id: &str,
    own: &Resources,
) -> RequestBuilder {
    let mut all = fields(&[("csrf", csrf), ("org_id", org_id)]);
    all.extend(own.fields(form));
    if form.route == UPLOAD {
        request.multipart(file(all))
    } else {
        request.form(&all)
    }
}

/// Returns a form with a file, which comes after the other fields.
fn file(fields: Fields) -> multipart::Form {
    let form = fields
        .into_iter()
        .fold(multipart::Form::new(), |form, (name, value)| {
            form.text(name, value)
        });
    let line = format!("{}\n", one_prediction()[0]);
    form.part("file", multipart::Part::text(line).file_name("one.ndjson"))
}

/// Every form is accepted from its own page. The other tests send the same forms in ways that must
/// not be accepted.
#[tokio::test(flavor = "multi_thread")]
async fn owner_can_send_every_form() {
    let site = Site::start().await;
    sqlx::query("delete from terms_acceptances")
        .execute(&mut site.world.database().await)
        .await
        .unwrap();
    let org_id = &site.world.org.id;
    for form in &FORMS {
        let mut visitor = site.new_session().await;
        let csrf = csrf(&mut visitor).await;
        let before = stored_state(&site.world).await;
        let request = visitor.form(&site.own.fill(form.route));
        let page = visitor
            .send(prepare(request, form, &csrf, org_id, &site.own))
            .await;
        assert!(
            matches!(page.status, 200 | 303),
            "{}: {}",
            form.route,
            page.text
        );
        let is_changed = stored_state(&site.world).await != before;
        assert_eq!(is_changed, form.is_change, "{}", form.route);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn form_of_another_site_returns_403() {
    let mut site = Site::start().await;
    let csrf = csrf(&mut site.owner).await;
    let org_id = site.world.org.id.clone();
    let before = stored_state(&site.world).await;
    let origin = site.owner.origin().to_owned();
    let port_of_another = origin.replace("127.0.0.1", "127.0.0.2");
    for form in &FORMS {
        let path = site.own.fill(form.route);
        let post = || site.owner.request(Method::POST, &path);
        let attacks = [
            ("no origin", post().header("sec-fetch-site", "same-origin")),
            (
                "foreign origin",
                post().header("origin", "https://evil.example"),
            ),
            ("opaque origin", post().header("origin", "null")),
            ("other host", post().header("origin", &port_of_another)),
            (
                "longer host",
                post().header("origin", format!("{origin}.evil.example")),
            ),
            (
                "cross-site",
                post()
                    .header("origin", &origin)
                    .header("sec-fetch-site", "cross-site"),
            ),
            (
                "same-site",
                post()
                    .header("origin", &origin)
                    .header("sec-fetch-site", "same-site"),
            ),
        ];
        for (attack, request) in attacks {
            let request = prepare(request, form, &csrf, &org_id, &site.own);
            let page = site.owner.clone().send(request).await;
            assert_eq!(page.status, 403, "{}: {attack}", form.route);
            page.assert_shows(403, "Another site sent this form.");
        }
    }
    assert_eq!(stored_state(&site.world).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn form_without_token_is_shown_again() {
    let site = Site::start().await;
    let org_id = site.world.org.id.clone();
    let other = csrf(&mut site.new_session().await).await;
    let before = stored_state(&site.world).await;
    for form in &FORMS {
        let path = site.own.fill(form.route);
        for token in ["", "wrong", &other] {
            let request = prepare(site.owner.form(&path), form, token, &org_id, &site.own);
            let page = site.owner.clone().send(request).await;
            if form.route == UPLOAD {
                page.assert_shows(422, "choose the file again");
                continue;
            }
            page.assert_shows(409, "Send the form again");
            for (name, value) in site.own.fields(form) {
                assert_eq!(page.value(&path, &name), value, "{}", form.route);
            }
        }
        // The token must not be avoidable by sending the form in another way.
        let plain = || site.owner.form(&path);
        let others = [
            ("no body", plain()),
            (
                "text",
                plain().header("content-type", "text/plain").body("a=b"),
            ),
            ("JSON", plain().json(&json!({}))),
            (
                "several parts",
                plain().multipart(file(fields(&[("org_id", &org_id)]))),
            ),
        ];
        for (kind, request) in others {
            let page = site.owner.clone().send(request).await;
            assert!(
                (400..500).contains(&page.status),
                "{}: {kind}: {}",
                form.route,
                page.status
            );
        }
    }
    assert_eq!(stored_state(&site.world).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn viewer_cannot_send_forms_of_members() {
    let site = Site::start().await;
    let org_id = &site.world.org.id;
    let viewer = site.world.member("viewer").await;
    let mut viewer = Visitor::signed_in(&site.world, viewer.token().unwrap());
    let csrf = csrf(&mut viewer).await;
    let before = stored_state(&site.world).await;
    let mut wrong = Vec::new();
    for form in &FORMS {
        if matches!(form.sender, Sender::Anybody | Sender::User) {
            continue;
        }
        let request = viewer.form(&site.own.fill(form.route));
        let page = viewer
            .send(prepare(request, form, &csrf, org_id, &site.own))
            .await;
        if page.status != 403 || !page.is_html() {
            wrong.push((form.route, page.status));
        }
    }
    assert_eq!(wrong, []);
    assert_eq!(stored_state(&site.world).await, before);

    // The pages show the actions as disabled, with the reason.
    let code = site.own.fill("/device?code={code}");
    for (path, button, reason) in [
        ("/keys", "Create", "Members and owners manage keys."),
        ("/members", "Invite", "Only owners invite users"),
        ("/domains", "Claim", "Only owners claim domains."),
        ("/settings", "Save", "Only owners change the settings."),
        (
            "/suites/suite:lunch/submit",
            "Upload and check",
            "Members and owners submit.",
        ),
        (&code, "Allow", "Members and owners create keys."),
        (
            &site.own.fill("/domains/{domain}/release"),
            "Release the domain",
            "Only owners release domains.",
        ),
        (
            &site.own.fill("/keys/{key_id}/revoke"),
            "Revoke the key",
            "Members and owners",
        ),
        (
            &site.own.fill("/keys/{key_id}/rotate"),
            "Rotate the key",
            "Members and owners",
        ),
        (
            &site.own.fill("/jobs/{job_id}/cancel"),
            "Cancel the job",
            "Members and owners",
        ),
    ] {
        let page = viewer.get(path).await;
        page.assert_shows(200, reason);
        let buttons: Vec<&str> = page.text.split("<button").skip(1).collect();
        let wanted = format!(">{button}</button>");
        let button = buttons.iter().find(|found| found.contains(&wanted));
        let button = button.unwrap_or_else(|| panic!("{path}: {}", page.text));
        assert!(button.starts_with(" disabled"), "{path}: {button}");
    }
    for path in ["/members/{user_id}/remove"] {
        viewer.get(&site.own.fill(path)).await.expect_status(403);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_of_other_organization_are_not_found() {
    let mut site = Site::start().await;
    let other = org(&site.world.stack, "team").await;
    let foreign = Resources::create(&site.world, &other, &site.name_server, "other.example").await;
    let csrf = csrf(&mut site.owner).await;
    let org_id = site.world.org.id.clone();
    let before = stored_state(&site.world).await;
    let is_shared = |path: &str| {
        let path = path.replace("{suite_id}", "").replace("{model_id}", "");
        !path.contains('{')
    };
    let mut wrong = Vec::new();
    let routes = PAGES.iter().map(|page| page.route);
    for route in routes.filter(|route| !is_shared(route)) {
        let page = site.owner.get(&foreign.fill(route)).await;
        if page.status != 404 || !page.is_html() {
            wrong.push((route, page.status));
        }
    }
    for file in ["/jobs/{job_id}/job.json", "/jobs/{job_id}/trace.json"] {
        site.owner.get(&foreign.fill(file)).await.expect_status(404);
    }
    for form in FORMS.iter().filter(|form| !is_shared(form.route)) {
        let request = site.owner.form(&foreign.fill(form.route));
        let page = site
            .owner
            .send(prepare(request, form, &csrf, &org_id, &foreign))
            .await;
        if page.status != 404 || !page.is_html() {
            wrong.push((form.route, page.status));
        }
    }
    assert_eq!(wrong, []);
    // Ids in fields and queries.
    let job = foreign.id("job_id");
    let own = site.own.id("job_id");
    for path in [
        format!("/compare?a={job}&b={own}"),
        format!("/compare?job={job}&job={own}"),
    ] {
        site.owner.get(&path).await.expect_status(422);
    }
    for query in [job, foreign.id("key_id")] {
        site.owner
            .open(&format!("/search?q={query}"))
            .await
            .expect_status(404);
    }
    // An organization that a form names exists for its members only.
    let form = fields(&[("csrf", &csrf), ("org_id", &other.id), ("name", "stolen")]);
    for path in ["/keys", "/settings", "/choose"] {
        site.owner.post(path, &form).await.expect_status(404);
    }
    assert_eq!(stored_state(&site.world).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_need_a_session() {
    let site = Site::start().await;
    let routes = PAGES.iter().map(|page| page.route);
    for route in routes.chain(FILES.map(|(route, _)| route)) {
        if route == "/sign-in" {
            continue;
        }
        let path = site.own.fill(route);
        let signed_out = Visitor::new(&site.world);
        let with_bearer = |token: &str| signed_out.request(Method::GET, &path).bearer_auth(token);
        for (caller, request) in [
            ("nobody", signed_out.request(Method::GET, &path)),
            ("an API key", with_bearer(&site.world.org.key)),
            (
                "a session in the header",
                with_bearer(&site.world.org.session),
            ),
            (
                "an API key in the cookie",
                signed_out
                    .request(Method::GET, &path)
                    .header("cookie", format!("{SESSION}={}", site.world.org.key)),
            ),
            (
                "an unknown session",
                signed_out
                    .request(Method::GET, &path)
                    .header("cookie", format!("{SESSION}=svc_sess_unknown")),
            ),
        ] {
            let page = signed_out.clone().send(request).await;
            if caller == "an API key in the cookie" {
                assert!(matches!(page.status, 303 | 403), "{route}: {caller}");
                assert!(!page.text.contains("Acme"), "{route}: {caller}");
                continue;
            }
            let next = page.location().strip_prefix("/sign-in").unwrap();
            let expected = match path.as_str() {
                "/" => String::new(),
                path => format!("?next={}", path.replace('/', "%2F").replace(':', "%3A")),
            };
            assert_eq!(next, expected, "{route}: {caller}");
        }
    }
    // The cookie opens pages only.
    let request = site.owner.request(Method::GET, "/v1/me");
    site.owner.clone().send(request).await.expect_status(401);
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_have_security_headers() {
    let mut site = Site::start().await;
    // The visitor checks every page's headers.
    for page in &PAGES {
        let shown = site.owner.get(&site.own.fill(page.route)).await;
        shown.assert_shows(200, &format!("<title>{} ·", site.own.fill(page.title)));
    }
    let page = site.owner.get("/nothing").await;
    page.assert_shows(404, "There is no such page");
    // The page files can be cached, because their contents never change.
    let links = page.text.split("href=\"/assets/").skip(1);
    let paths: Vec<String> = links
        .map(|rest| format!("/assets/{}", rest.split('"').next().unwrap()))
        .collect();
    assert!(!paths.is_empty());
    for path in paths {
        let file = Visitor::new(&site.world)
            .get(&path)
            .await
            .expect_status(200);
        assert_eq!(
            [
                file.header("cache-control"),
                file.header("x-content-type-options")
            ],
            ["public, max-age=31536000, immutable", "nosniff"]
        );
    }
}

/// Requests a link as the visitor, and returns its token.
async fn request_link(site: &World, visitor: &mut Visitor, email: &str, next: &str) -> String {
    let before = mail::links(site, email).len();
    let page = visitor.get("/sign-in").await;
    let page = visitor
        .submit(&page, "/sign-in", &[("email", email), ("next", next)])
        .await;
    page.assert_shows(200, "Check your email");
    wait_until("sign-in email", async || {
        mail::links(site, email).len() > before
    })
    .await;
    mail::links(site, email).pop().unwrap()
}

/// Opens a link's page, and presses its button.
async fn follow_link(visitor: &mut Visitor, token: &str) -> Page {
    let page = visitor.get(&format!("/sign-in?token={token}")).await;
    page.assert_shows(200, "Sign in as");
    visitor.submit(&page, "/sign-in/link", &[]).await
}

/// A world for users that sign in by links.
async fn sign_in_world() -> World {
    world_with(StackSize {
        workers: 0,
        ..with_setting("ASSAY_SIGN_IN_MAILS_PER_MINUTE", "1000")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn link_signs_in_once() {
    let world = shared_world_without_workers().await;
    let email = world.org.email.clone();
    let mut visitor = Visitor::new(&world);
    let token = request_link(&world, &mut visitor, &email, "/").await;
    // Opening the page uses nothing: email scanners do so.
    let page = visitor.get(&format!("/sign-in?token={token}")).await;
    page.assert_shows(200, &email);
    page.assert_shows(200, "127.0.0.1");
    let mut phone = Visitor::new(&world);
    assert_eq!(follow_link(&mut phone, &token).await.location(), "/");
    phone.open("/").await.assert_shows(200, "Acme");
    for _ in 0..2 {
        let used = visitor.get(&format!("/sign-in?token={token}")).await;
        used.assert_shows(422, "This link is not valid");
        let used = visitor.submit(&page, "/sign-in/link", &[]).await;
        used.assert_shows(422, "This link is not valid");
        assert!(visitor.cookies.is_empty(), "{:?}", visitor.cookies.keys());
    }
    for token in ["svc_link_none", "%00", &"x".repeat(5000), &world.org.key] {
        let page = visitor.get(&format!("/sign-in?token={token}")).await;
        page.assert_shows(422, "This link is not valid");
        assert!(!page.text.contains(token), "the page repeats the token");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_replaces_planted_session() {
    let world = shared_world_without_workers().await;
    let attacker = org(&world.stack, "team").await;
    for planted in [attacker.session.as_str(), "svc_sess_planted"] {
        let mut victim = Visitor::signed_in(&world, planted);
        let email = format!("{}@example.org", fresh_name("victim"));
        let token = world.sign_in_link(&email).await;
        assert_eq!(follow_link(&mut victim, &token).await.location(), "/");
        assert_ne!(victim.cookies[SESSION], planted);
        let account = victim.get("/account").await;
        account.assert_shows(200, &email);
        // The planted session stays what it was.
        let page = Visitor::signed_in(&world, planted).get("/account").await;
        assert!(!page.text.contains(&email), "{}", page.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_session_leads_to_sign_in() {
    let world = shared_world_without_workers().await;
    for (action, token_of_page) in [("/sign-out", "/"), ("/account/sessions/end", "/account")] {
        let token = new_session(&world, &world.org).await;
        let mut visitor = Visitor::signed_in(&world, &token);
        let page = visitor.get(token_of_page).await;
        let signed_out = visitor.submit(&page, action, &[]).await;
        assert_eq!(signed_out.location(), "/sign-in");
        assert!(!visitor.cookies.contains_key(SESSION));
        // A cookie copy is worth nothing.
        let mut thief = Visitor::signed_in(&world, &token);
        assert_eq!(thief.get("/").await.location(), "/sign-in");
        assert!(
            !thief.cookies.contains_key(SESSION),
            "the cookie is removed"
        );
        world.client(&token).get("/v1/me").await.expect_status(401);
        let mut other = Visitor::signed_in(&world, &world.org.session);
        let expected = if action == "/sign-out" { 200 } else { 303 };
        assert_eq!(other.get("/").await.status, expected, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_returns_to_pages_of_this_site_only() {
    let world = shared_world_without_workers().await;
    let elsewhere = [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/jobs\r\nSet-Cookie: a=b",
        " //evil.example",
    ];
    let encode =
        |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
    for next in elsewhere {
        let page = Visitor::new(&world)
            .get(&format!("/sign-in?next={}", encode(next)))
            .await;
        assert_eq!(page.value("/sign-in", "next"), "/", "{next:?}");
        // A form or a cookie that did not come from the page.
        let mut visitor = Visitor::new(&world);
        let email = format!("{}@example.org", fresh_name("next"));
        let token = request_link(&world, &mut visitor, &email, next).await;
        assert!(visitor.cookies.is_empty(), "{next:?}");
        let planted = encode(next);
        visitor.cookies.insert("__Host-assay_next".into(), planted);
        assert_eq!(
            follow_link(&mut visitor, &token).await.location(),
            "/",
            "{next:?}"
        );
        let mut owner = Visitor::signed_in(&world, &world.org.session);
        let csrf = csrf(&mut owner).await;
        let form = fields(&[("csrf", &csrf), ("org_id", &world.org.id), ("next", next)]);
        assert_eq!(
            owner.post("/choose", &form).await.location(),
            "/",
            "{next:?}"
        );
    }
    let mut visitor = Visitor::new(&world);
    let jobs = visitor.get("/jobs?status=failed").await;
    assert_eq!(jobs.location(), "/sign-in?next=%2Fjobs%3Fstatus%3Dfailed");
    let page = visitor.open("/jobs?status=failed").await;
    let next = page.value("/sign-in", "next");
    let token = request_link(&world, &mut visitor, &world.org.email, &next).await;
    let signed_in = follow_link(&mut visitor, &token).await;
    assert_eq!(signed_in.location(), "/jobs?status=failed");
}

/// Nothing that the user typed is lost if their session ends while they fill in a form.
#[tokio::test(flavor = "multi_thread")]
async fn form_of_ended_session_can_be_sent_after_sign_in() {
    let world = shared_world_without_workers().await;
    let email = &world.org.email;
    let token = new_session(&world, &world.org).await;
    let mut visitor = Visitor::signed_in(&world, &token);
    let page = visitor.get("/keys").await;
    let name = "typed & <important>";
    let typed = [("name", name), ("expires_at", "2999-12-31")];

    // The same user's other session, in another tab.
    let newer = new_session(&world, &world.org).await;
    visitor.cookies.insert(SESSION.into(), newer.clone());
    let again = visitor.submit(&page, "/keys", &typed).await;
    again.assert_shows(409, "Send the form again");
    assert_eq!(
        [
            again.value("/keys", "name"),
            again.value("/keys", "expires_at")
        ],
        typed.map(|(_, value)| value.to_owned())
    );
    assert_eq!(
        visitor.submit(&again, "/keys", &[]).await.location(),
        "/keys"
    );

    // The session has ended.
    let page = visitor.get("/keys").await;
    let ended = world.client(&newer);
    ended.delete("/v1/session").await.unwrap();
    let again = visitor.submit(&page, "/keys", &typed).await;
    again.assert_shows(409, "Your session has ended");
    assert!(!visitor.cookies.contains_key(SESSION));
    assert_eq!(again.value("/keys", "name"), name);

    // The user signs in in another tab, and sends this one's form.
    let link = request_link(&world, &mut visitor, email, "/").await;
    assert_eq!(follow_link(&mut visitor, &link).await.location(), "/");
    let again = visitor.submit(&again, "/keys", &[]).await;
    again.assert_shows(409, "Send the form again");
    assert_eq!(again.value("/keys", "name"), name);
    assert_eq!(
        visitor.submit(&again, "/keys", &[]).await.location(),
        "/keys"
    );
    let keys = world.owner().get("/v1/keys").await.unwrap().body;
    let named = keys["keys"].as_array().unwrap().iter();
    assert_eq!(named.filter(|key| key["name"] == name).count(), 2);
}

/// A form acts for the organization that its page showed.
#[tokio::test(flavor = "multi_thread")]
async fn form_acts_for_the_organization_of_its_page() {
    let world = shared_world_without_workers().await;
    let other = world
        .owner()
        .post("/v1/orgs", &json!({"name": "Other"}))
        .await
        .unwrap();
    let other = string(&other.body["id"]);
    let mut visitor = Visitor::signed_in(&world, &new_session(&world, &world.org).await);
    let first = visitor.get("/keys").await;
    let upload = visitor.get("/suites/suite:lunch/submit").await;
    let csrf = csrf(&mut visitor).await;
    let change = fields(&[("csrf", &csrf), ("org_id", &other), ("next", "/keys")]);
    assert_eq!(visitor.post("/choose", &change).await.location(), "/keys");
    let second = visitor.get("/keys").await;
    second.assert_shows(200, "Other");

    // The tabs still belong to their organizations.
    for (page, name) in [(&first, "of the first"), (&second, "of the second")] {
        let created = visitor.submit(page, "/keys", &[("name", name)]).await;
        assert_eq!(created.location(), "/keys");
    }
    let names = async |org_id: &str| {
        let owner = world.owner();
        let request = owner.request("GET", "/v1/keys").header("x-org-id", org_id);
        let keys = owner.send(request).await.unwrap().body;
        let keys = keys["keys"].as_array().unwrap().clone();
        keys.iter()
            .map(|key| string(&key["name"]))
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&other).await, ["of the second"]);
    assert_eq!(names(&world.org.id).await, ["of the first", "ci"]);

    // A file cannot change the organization while it arrives, so its page is loaded again.
    visitor.post("/choose", &change).await;
    let action = "/suites/suite:lunch/submissions";
    let request = visitor
        .form(action)
        .multipart(file(upload.form(action, &[])));
    let page = visitor.send(request).await;
    page.assert_shows(422, "another organization");
    let uploads = world.owner().get("/v1/uploads").await.unwrap().body;
    assert_eq!(uploads["uploads"], json!([]));
}

/// Sends a request as a browser, which gets a page, and as a program, which gets JSON.
async fn assert_both_forms(
    visitor: &Visitor,
    method: &Method,
    path: &str,
    status: u16,
    title: &str,
) {
    let mut browser = visitor.clone();
    let page = browser.send(browser.request(method.clone(), path)).await;
    page.assert_shows(status, &format!("<h1>{title}</h1>"));
    page.assert_shows(status, page.header("x-request-id"));
    let mut program = visitor.clone();
    program.accept = "*/*";
    let response = program
        .send(program.request(method.clone(), path))
        .await
        .expect_status(status);
    assert_eq!(
        response.header("content-type"),
        "application/json",
        "{path}"
    );
    let body: Value = serde_json::from_str(&response.text).unwrap();
    assert_eq!(body["error"]["request_id"], response.header("x-request-id"));
    for response in [page, response] {
        let retry_after = response.header("retry-after").parse::<u32>();
        assert_eq!(retry_after.is_ok(), matches!(status, 429 | 503), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_pages_for_browsers_and_json_for_programs() {
    let world = sign_in_world().await;
    let owner = Visitor::signed_in(&world, &world.org.session);
    let nobody = Visitor::new(&world);
    for visitor in [&owner, &nobody] {
        for (method, path, status, title) in [
            (Method::GET, "/nothing", 404, "There is no such page"),
            (
                Method::GET,
                "/assets/none.css",
                404,
                "There is no such page",
            ),
            (Method::POST, "/keys", 403, "You may not do this"),
            (Method::PUT, "/keys", 405, "This is not possible"),
        ] {
            assert_both_forms(visitor, &method, path, status, title).await;
        }
    }
    assert_both_forms(
        &owner,
        &Method::GET,
        "/jobs/job_none",
        404,
        "There is no such page",
    )
    .await;

    // Nobody can sign in while the sessions cannot be read.
    let mut database = world.database().await;
    sqlx::raw_sql("begin; lock table sessions in access exclusive mode")
        .execute(&mut database)
        .await
        .unwrap();
    let title = "The service is unavailable";
    assert_both_forms(&owner, &Method::GET, "/jobs", 503, title).await;
    drop(database);
    wait_until("end of the lock", async || {
        owner.clone().get("/jobs").await.status == 200
    })
    .await;

    sqlx::query("update plans set requests_per_minute = 1")
        .execute(&mut world.database().await)
        .await
        .unwrap();
    wait_until("the limit", async || {
        owner.clone().get("/jobs").await.status == 429
    })
    .await;
    assert_both_forms(&owner, &Method::GET, "/jobs", 429, "Too many requests").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn notice_is_shown_once() {
    let world = shared_world_without_workers().await;
    let token = new_session(&world, &world.org).await;
    let mut visitor = Visitor::signed_in(&world, &token);
    let page = visitor.get("/settings").await;
    let saved = visitor
        .submit(
            &page,
            "/settings",
            &[("name", "Renamed"), ("data_use", "scoring_only")],
        )
        .await;
    assert_eq!(saved.location(), "/settings");
    let notice = "The settings were saved.";
    // A file shows no notice, and does not use it up.
    visitor.get("/usage.csv").await;
    visitor.get("/settings").await.assert_shows(200, notice);
    let again = visitor.get("/settings").await;
    assert!(!again.text.contains(notice), "{}", again.text);
}
