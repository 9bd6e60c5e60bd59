//! How often one may ask.

use assay_tests::client::Client;
use futures_util::future::join_all;

use crate::harness::{code, org, with, world, world_of};

#[tokio::test(flavor = "multi_thread")]
async fn sixty_a_minute_means_sixty_over_all_api_processes() {
    let world = world_of(assay_tests::stack::Plan { apis: 4, workers: 0, ..Default::default() }).await;
    let free = org(&world.stack, "free").await;
    let clients: Vec<_> =
        world.stack.apis.iter().map(|api| Client::new(format!("http://{}", api.listen.unwrap()), Some(&free.key))).collect();
    // Processes that have just begun are still busy with opening connections.
    let warm: Vec<_> =
        world.stack.apis.iter().map(|api| Client::new(format!("http://{}", api.listen.unwrap()), Some(&world.org.key))).collect();
    join_all((0..80).map(|i| warm[i % 4].get("/v1/me"))).await;
    let all = join_all((0..400).map(|i| clients[i % 4].get("/v1/me"))).await;
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert_eq!(all.iter().filter(|answer| answer.status == 200).count(), 60);
    let refused = all.iter().find(|answer| answer.status != 200).unwrap();
    assert_eq!((refused.status, code(refused)), (429, "rate_limited".to_owned()));
    let wait: i64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining")), ("60", "0"));
    // Another organization is not concerned, and health never is.
    assert_eq!(world.key().get("/v1/me").await.unwrap().status, 200);
    assert_eq!(clients[0].get("/health").await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn remaining_counts_down_and_refusals_are_not_counted() {
    let world = world().await;
    let free = org(&world.stack, "free").await;
    let client = world.client(&free.key);
    for expected in (0..60).rev() {
        let answer = client.get("/v1/me").await.unwrap();
        assert_eq!((answer.status, answer.header("x-ratelimit-remaining")), (200, expected.to_string().as_str()));
    }
    let first = client.get("/v1/me").await.unwrap();
    let second = client.get("/v1/me").await.unwrap();
    assert_eq!((first.status, second.status), (429, 429));
    assert_eq!(first.header("x-ratelimit-reset"), second.header("x-ratelimit-reset"), "refusals do not push the reset away");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_authentication_is_throttled_and_a_valid_credential_still_passes() {
    let world = world().await;
    let guesser = world.client("svc_live_guess");
    for _ in 0..10 {
        assert_eq!(guesser.get("/v1/me").await.unwrap().status, 401);
    }
    let refused = guesser.get("/v1/me").await.unwrap();
    assert_eq!((refused.status, code(&refused), refused.header("retry-after")), (429, "rate_limited".to_owned(), "60"));
    assert_eq!(world.key().get("/v1/me").await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_forwarded_address_is_believed_only_from_a_trusted_proxy() {
    let distrusting = world_of(with("ASSAY_AUTH_FAILURES_PER_MINUTE", "1")).await;
    let mut trusting = with("ASSAY_AUTH_FAILURES_PER_MINUTE", "1");
    trusting.env.insert("ASSAY_TRUSTED_PROXIES".into(), "127.0.0.0/8".into());
    let trusting = world_of(trusting).await;
    for (world, second) in [(distrusting, 429), (trusting, 401)] {
        let guesser = world.client("svc_live_guess");
        let from =
            async |address: &str| guesser.send(guesser.request("GET", "/v1/me").header("x-forwarded-for", address)).await.unwrap().status;
        assert_eq!(from("192.0.2.1").await, 401);
        assert_eq!(from("192.0.2.2").await, second);
        assert_eq!(from("192.0.2.1").await, 429, "the same address again");
    }
}
