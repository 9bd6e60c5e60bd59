//! Rate limits, and throttled authentication failures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use assay_core::model::secret::{Secret, SecretKind};
use assay_tests::client::Client;
use assay_tests::stack::{Process, StackSize};
use futures_util::future::join_all;

use crate::harness::{
    Expect, error_code, long_test, org, shared_world, wait_until, with_setting, world, world_with,
};

/// Time for which [`starve`] stops processes, and for which it lets them run.
const STOPPED: Duration = Duration::from_millis(500);
const RUNNING: Duration = Duration::from_millis(5);

/// Lets processes run for only a small part of the time, until it is dropped. The caller continues
/// them.
async fn starve(processes: &[Process]) {
    loop {
        signal(processes, libc::SIGSTOP);
        tokio::time::sleep(STOPPED).await;
        signal(processes, libc::SIGCONT);
        tokio::time::sleep(RUNNING).await;
    }
}

fn signal(processes: &[Process], signal: libc::c_int) {
    for process in processes {
        process.guarded.signal(signal);
    }
}

/// Returns the round count, which `TEST_STARVED_ROUNDS` sets. Each takes about 10 s.
fn starved_rounds() -> usize {
    std::env::var("TEST_STARVED_ROUNDS").map_or(2, |rounds| rounds.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn starved_processes_keep_rate_limit() {
    long_test!("starves four API processes of CPU time");
    let world = world_with(StackSize {
        apis: 4,
        workers: 0,
        ..StackSize::default()
    })
    .await;
    for round in 0..starved_rounds() {
        let free = org(&world.stack, "free").await;
        let clients: Vec<_> = world
            .stack
            .addresses()
            .into_iter()
            .map(|url| Client::new(url, Some(&free.key)))
            .collect();
        let began = world.database_time().await;
        let all = tokio::select! {
            all = join_all((0..400).map(|i| clients[i % 4].get("/v1/me"))) => all,
            () = starve(&world.stack.apis) => unreachable!("starving does not end"),
        };
        signal(&world.stack.apis, libc::SIGCONT);
        let with_status = |status| {
            all.iter()
                .filter(|response| {
                    response
                        .as_ref()
                        .is_ok_and(|response| response.status == status)
                })
                .count()
        };
        let admitted = with_status(200);
        let refused = with_status(429);
        // A starved process may have counted these before their response was lost.
        let failed = all.len() - admitted - refused;
        // On a machine that is busy with other work, a round takes longer than the window.
        let windows = world.minutes_since(&began).await;
        println!(
            "round {round}: {admitted} admitted, {refused} over the limit, {failed} failed, {windows} windows"
        );
        assert!(
            admitted <= 60 * windows,
            "round {round}: {admitted} of 400 were admitted in {windows} windows"
        );
        let is_used_up = admitted + failed >= 60;
        for client in &clients {
            wait_until("a process counts requests", async || {
                let response = client.get("/v1/me").await;
                response.is_ok_and(|response| {
                    response.status == 200 || (response.status == 429 && is_used_up)
                })
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_requests_report_their_own_allowance() {
    let world = world().await;
    let free = org(&world.stack, "free").await;
    let client = world.client(&free.key);
    let all = join_all((0..80).map(|_| client.get("/v1/me"))).await;
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    let remaining = |status| {
        let status_responses = all.iter().filter(|response| response.status == status);
        let mut remaining: Vec<u32> = status_responses
            .map(|response| response.header("x-ratelimit-remaining").parse().unwrap())
            .collect();
        remaining.sort_unstable();
        remaining
    };
    assert_eq!(remaining(200), (0..60).collect::<Vec<_>>());
    assert_eq!(remaining(429), [0; 20]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_limit_spans_all_processes() {
    let world = world_with(StackSize {
        apis: 4,
        workers: 0,
        ..StackSize::default()
    })
    .await;
    let free = org(&world.stack, "free").await;
    let clients: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| Client::new(format!("http://{}", api.listen.unwrap()), Some(&free.key)))
        .collect();
    // New processes are still busy with opening connections.
    let warm: Vec<_> = world
        .stack
        .apis
        .iter()
        .map(|api| {
            Client::new(
                format!("http://{}", api.listen.unwrap()),
                Some(&world.org.key),
            )
        })
        .collect();
    join_all((0..80).map(|i| warm[i % 4].get("/v1/me"))).await;
    let all = join_all((0..400).map(|i| clients[i % 4].get("/v1/me"))).await;
    let all: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        all.iter().filter(|response| response.status == 200).count(),
        60
    );
    let refused = all.iter().find(|response| response.status != 200).unwrap();
    assert_eq!(
        (refused.status, error_code(refused)),
        (429, "rate_limited".to_owned())
    );
    let wait: i64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(
        (
            refused.header("x-ratelimit-limit"),
            refused.header("x-ratelimit-remaining")
        ),
        ("60", "0")
    );
    // Another organization is not affected, and `/health` has no limit.
    world.key().get("/v1/me").await.expect_status(200);
    clients[0].get("/health").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_requests_do_not_extend_limit() {
    let world = shared_world().await;
    let free = org(&world.stack, "free").await;
    let client = world.client(&free.key);
    for expected in (0..60).rev() {
        let response = client.get("/v1/me").await.expect_status(200);
        assert_eq!(
            response.header("x-ratelimit-remaining"),
            expected.to_string().as_str()
        );
    }
    let first = client.get("/v1/me").await.expect_status(429);
    let second = client.get("/v1/me").await.expect_status(429);
    assert_eq!(
        first.header("x-ratelimit-reset"),
        second.header("x-ratelimit-reset"),
        "rejected requests do not delay the reset"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_address_still_accepts_valid_key() {
    let world = world().await;
    let guesser = world.client("svc_live_guess");
    for _ in 0..10 {
        guesser.get("/v1/me").await.expect_status(401);
    }
    let refused = guesser
        .get("/v1/me")
        .await
        .expect_error(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), "60");
    world.key().get("/v1/me").await.expect_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn forwarded_address_needs_trusted_proxy() {
    let distrusting = world_with(with_setting("ASSAY_AUTH_FAILURES_PER_MINUTE", "1")).await;
    let mut trusting = with_setting("ASSAY_AUTH_FAILURES_PER_MINUTE", "1");
    trusting
        .env
        .insert("ASSAY_TRUSTED_PROXIES".into(), "127.0.0.0/8".into());
    let trusting = world_with(trusting).await;
    for (world, second) in [(distrusting, 429), (trusting, 401)] {
        let guesser = world.client("svc_live_guess");
        let from = async |address: &str| {
            guesser
                .send(
                    guesser
                        .request("GET", "/v1/me")
                        .header("x-forwarded-for", address),
                )
                .await
                .unwrap()
                .status
        };
        assert_eq!(from("192.0.2.1").await, 401);
        assert_eq!(from("192.0.2.2").await, second);
        assert_eq!(from("192.0.2.1").await, 429, "the same address again");
    }
}

/// Returns an unknown key with a valid checksum.
fn unknown_key() -> String {
    Secret::random(SecretKind::ApiKey).unwrap().into_text()
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_requests_need_no_database() {
    // Each request has its own client, whose connection closes only later.
    let world = world_with(with_setting("ASSAY_CONNECTIONS_PER_ADDRESS", "1000")).await;
    let client_of = |token: &str| world.client(token).without_retries();
    let me = async |token: &str| client_of(token).get("/v1/me").await.unwrap().status;
    let repeated = unknown_key();
    assert_eq!(
        (me(&repeated).await, me(&world.org.session).await),
        (401, 200)
    );
    // Far beyond the limit (sixty): more than twice.
    let free = org(&world.stack, "free").await;
    let client = client_of(&free.key);
    let refused = join_all((0..150).map(|_| client.get("/v1/me"))).await;
    assert_eq!(
        refused
            .iter()
            .filter(|response| response.as_ref().unwrap().status == 200)
            .count(),
        60
    );
    // No process can read keys while this transaction is open.
    let mut database = world.database().await;
    let run = async |database: &mut sqlx::PgConnection, sql| {
        sqlx::raw_sql(sql).execute(database).await.unwrap();
    };
    let lock = "begin; lock table api_keys in access exclusive mode";
    let unlock = "rollback";
    run(&mut database, lock).await;
    assert_eq!(me(&repeated).await, 401);
    assert_eq!(me(&unknown_key()).await, 503, "an unknown key is looked up");
    run(&mut database, unlock).await;
    wait_until("rejection without a look-up", async || {
        client.get("/v1/me").await.expect_status(429);
        run(&mut database, lock).await;
        let status = client.get("/v1/me").await.unwrap().status;
        run(&mut database, unlock).await;
        status == 429
    })
    .await;
    // The address is throttled after ten failures. Beyond a hundred, its further unknown credentials
    // are looked up one after the other.
    for _ in 0..12 {
        me(&unknown_key()).await;
    }
    // Creating a client takes long. A connection whose request waited for it would be closed.
    let clients: Vec<_> = (0..110).map(|_| client_of(&unknown_key())).collect();
    for response in join_all(clients.iter().map(|client| client.get("/v1/me"))).await {
        response.unwrap();
    }
    let throttled = world
        .client(&unknown_key())
        .get("/v1/me")
        .await
        .expect_error(429, "rate_limited");
    assert_eq!(throttled.header("x-ratelimit-remaining"), "0");
    assert!(
        throttled
            .header("retry-after")
            .parse::<u32>()
            .is_ok_and(|seconds| (1..=60).contains(&seconds))
    );
    // A recently used credential still works.
    assert_eq!(me(&world.org.session).await, 200);
    assert_eq!(me(&free.key).await, 429);
}

/// Everybody behind a company's or university's address shares it with its guessers.
#[tokio::test(flavor = "multi_thread")]
async fn throttled_address_locks_no_valid_credential_out() {
    let plan = StackSize {
        apis: 3,
        ..StackSize::default()
    };
    let world = world_with(plan).await;
    world.widen_plans().await;
    let urls = world
        .stack
        .apis
        .iter()
        .map(|api| format!("http://{}", api.listen.unwrap()));
    let clients: Vec<Client> = urls.map(|url| Client::new(url, None)).collect();
    let status = async |api: usize, key: &str| {
        let request = clients[api].request("GET", "/v1/me").bearer_auth(key);
        clients[api].send(request).await.unwrap().status
    };
    // Each process has throttled the address, and has looked up as many guesses as it does at once.
    for api in 0..3 {
        for _ in 0..120 {
            status(api, &unknown_key()).await;
        }
    }
    let is_over = AtomicBool::new(false);
    let guess = async |api: usize| {
        let mut statuses = BTreeMap::<u16, u32>::new();
        while !is_over.load(Ordering::Relaxed) {
            *statuses
                .entry(status(api, &unknown_key()).await)
                .or_default() += 1;
            // 2,000 a minute from three guessers.
            tokio::time::sleep(Duration::from_millis(90)).await;
        }
        statuses
    };
    let honest = async {
        let mut refused = Vec::new();
        for number in 0..1000 {
            let org = match number % 10 {
                // No process has seen this key before.
                0 => Some(org(&world.stack, "team").await),
                _ => None,
            };
            let key = org.as_ref().map_or(&world.org.key, |org| &org.key);
            let status = status(number % 3, key).await;
            refused.extend((status != 200).then_some((number, status)));
        }
        is_over.store(true, Ordering::Relaxed);
        refused
    };
    let (refused, first, second, third) = tokio::join!(honest, guess(0), guess(1), guess(2));
    assert_eq!(refused, []);
    for statuses in [first, second, third] {
        assert!(
            statuses.keys().all(|status| [401, 429].contains(status)),
            "{statuses:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ipv6_failures_are_counted_by_prefix() {
    let mut plan = with_setting("ASSAY_AUTH_FAILURES_PER_MINUTE", "1");
    plan.env
        .insert("ASSAY_TRUSTED_PROXIES".into(), "127.0.0.0/8".into());
    let world = world_with(plan).await;
    let guesser = world.client("svc_live_guess");
    let from = async |address: String| {
        guesser
            .send(
                guesser
                    .request("GET", "/v1/me")
                    .header("x-forwarded-for", address),
            )
            .await
            .unwrap()
            .status
    };
    // Four times its limit for a /56, sixteen times for a /48.
    for network in 0..4 {
        assert_eq!(from(format!("2001:db8:1:{network:x}::1")).await, 401);
    }
    assert_eq!(from("2001:db8:1:4::1".into()).await, 429);
    for network in 4..15 {
        assert_eq!(
            from(format!("2001:db8:1:{:x}::1", network << 8)).await,
            401,
            "{network}"
        );
    }
    assert_eq!(
        from("2001:db8:1:ff00::1".into()).await,
        401,
        "the sixteenth failure"
    );
    assert_eq!(from("2001:db8:1:fe00::1".into()).await, 429);
    assert_eq!(from("2001:db8:2::1".into()).await, 401, "another network");
}
