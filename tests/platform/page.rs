//! The page of `GET /sign-in`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::harness::{string, world};

fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).unwrap().1.split_once(end).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_page_is_self_contained() {
    let world = world().await;
    let page = world.anonymous().get("/sign-in").await.unwrap();
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, "text/html; charset=utf-8")
    );
    assert_eq!(
        (page.header("cache-control"), page.header("referrer-policy")),
        ("no-store", "no-referrer")
    );
    assert!(
        page.header("x-request-id").starts_with("req_")
            && !page.header("x-ratelimit-limit").is_empty()
    );
    let html = string(&page.body);
    let policy = page.header("content-security-policy");
    for rule in [
        "default-src 'none'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"));
    for (begin, end, kind) in [
        ("<script>", "</script>", "script"),
        ("<style>", "</style>", "style"),
    ] {
        let hash = STANDARD.encode(Sha256::digest(between(&html, begin, end)));
        assert!(
            policy.contains(&format!("{kind}-src 'sha256-{hash}'")),
            "{policy}"
        );
    }
    assert!(
        !html.contains("http://") && !html.contains("https://") && !html.contains("src="),
        "{html}"
    );
    assert!(!html.contains("/*"), "unfilled placeholder: {html}");
    let post = world
        .anonymous()
        .send(world.anonymous().request("POST", "/sign-in"))
        .await
        .unwrap();
    assert_eq!((post.status, post.header("allow")), (405, "GET,HEAD"));
}
