//! Redis is degraded: frozen, unreachable, flushed, read-only, full, or evicting keys. Submissions
//! are still accepted, every job is scored once, and requests are counted. Afterwards, normal
//! operation resumes without a restart.

use assay_tests::client::Client;
use assay_tests::link::{Ending, Link};
use assay_tests::stack::StackSize;
use futures_util::future::join_all;

use crate::harness::{
    World, one_prediction, org, scrape, string, wait_until, world_on_own_servers,
};

/// Requests per minute of an organization on the plan `free`.
const FREE_RATE_LIMIT: usize = 60;

/// Returns a plan with one API process, because several would each have their own fallback counters
/// and admit an inexact number of requests.
fn plan() -> StackSize {
    StackSize {
        workers: 2,
        ..StackSize::default()
    }
}

/// Runs one command on Redis itself.
pub async fn redis_command(world: &World, command: &str) -> redis::Value {
    let client = redis::Client::open(world.stack.ground.servers.redis_url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let (name, arguments) = command.split_once(' ').unwrap_or((command, ""));
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    redis::cmd(name)
        .arg(arguments)
        .query_async(&mut connection)
        .await
        .unwrap()
}

/// Returns one number of Redis' `INFO`.
async fn info(world: &World, section: &str, name: &str) -> usize {
    let redis::Value::BulkString(info) = redis_command(world, &format!("info {section}")).await
    else {
        panic!("INFO is not a string")
    };
    let info = String::from_utf8(info).unwrap();
    info.lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

async fn metric(world: &World, name: &str) -> f64 {
    let metrics = scrape(&world.stack.apis[0]).await;
    // The sum over all series with the name.
    let values = metrics.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '{']))
    });
    values
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// Submits `count` jobs; asserts that each is accepted, succeeds, and has one attempt. While Redis is
/// unavailable, a request that waited for it would get no response.
async fn submit_jobs(world: &World, name: &str, jobs: usize) {
    let mut queued = Vec::new();
    for _ in 0..jobs {
        let response = world.submit(&one_prediction()).await;
        assert_eq!(response.status, 202, "{name}: {}", response.body);
        queued.push(string(&response.body["id"]));
    }
    for job_id in queued {
        let job = world
            .key()
            .wait_until_finished(&job_id, &|_| {})
            .await
            .unwrap();
        assert_eq!(
            (&job["status"], &job["attempts"]),
            (&"succeeded".into(), &1.into()),
            "{name}"
        );
    }
}

/// Returns how many requests by a new organization are admitted. Asserts that later requests
/// return 429.
async fn admitted(world: &World, name: &str) -> usize {
    let free = org(&world.stack, "free").await;
    let client = world.client(&free.key);
    let mut admitted = 0;
    for _ in 0..FREE_RATE_LIMIT + 10 {
        let response = client.get("/v1/me").await.unwrap();
        assert!(
            [200, 429].contains(&response.status),
            "{name}: {}",
            response.body
        );
        assert_eq!(
            response.header("x-ratelimit-limit"),
            FREE_RATE_LIMIT.to_string()
        );
        admitted += usize::from(response.status == 200);
    }
    admitted
}

/// Asserts that everything works during the outage.
async fn assert_service_continues(world: &World, name: &str, in_memory: bool) {
    submit_jobs(world, name, 10).await;
    assert_eq!(
        metric(world, "assay_ratelimit_degraded").await > 0.0,
        in_memory,
        "{name}: unexpected backend of the rate limiter"
    );
    assert_eq!(admitted(world, name).await, FREE_RATE_LIMIT, "{name}");
    submit_jobs(world, name, 10).await;
}

/// Asserts that normal operation resumes without a restart: requests are counted in Redis, and job
/// notifications arrive.
async fn assert_recovery(world: &World, name: &str) {
    wait_until("counts in Redis again", async || {
        metric(world, "assay_ratelimit_degraded").await == 0.0
    })
    .await;
    let notified = metric(world, "assay_job_notifications_total").await;
    // Workers that have subscribed again do not depend on polling.
    let subscribers = format!("pubsub numsub {}.evals.channel", world.stack.database.name);
    wait_until("the subscriptions of all workers", async || {
        let counted = redis_command(world, &subscribers).await;
        let (_, count): (String, usize) = redis::from_redis_value(counted).unwrap();
        count == world.stack.workers.len()
    })
    .await;
    submit_jobs(world, name, 5).await;
    assert!(
        metric(world, "assay_job_notifications_total").await >= notified + 5.0,
        "{name}"
    );
    assert_eq!(
        admitted(world, name).await,
        FREE_RATE_LIMIT,
        "{name}, afterwards"
    );
    submit_jobs(world, name, 10).await;
    let sql = "select (select count(*) from jobs where status = 'succeeded') = count(*) and count(*) = (select count(*) from job_attempts)
               and count(*) = (select count(*) from usage_ledger) from jobs";
    assert!(
        sqlx::query_scalar::<_, bool>(sql)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap(),
        "{name}: a job has several attempts"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn service_survives_frozen_redis() {
    let Some(world) = world_on_own_servers(|_| plan()).await else {
        return;
    };
    submit_jobs(&world, "before", 5).await;
    world
        .stack
        .ground
        .servers
        .redis_signal(libc::SIGSTOP)
        .unwrap();
    assert_service_continues(&world, "frozen", true).await;
    world
        .stack
        .ground
        .servers
        .redis_signal(libc::SIGCONT)
        .unwrap();
    assert_recovery(&world, "frozen").await;
}

/// Sends concurrent requests to these processes in turn and returns the number of admitted ones.
async fn burst(clients: &[Client], requests: usize) -> usize {
    let all = join_all((0..requests).map(|i| clients[i % clients.len()].get("/v1/me"))).await;
    let all: Vec<_> = all
        .into_iter()
        .map(|response| response.unwrap().status)
        .collect();
    assert!(
        all.iter().all(|status| [200, 429, 503].contains(status)),
        "{all:?}"
    );
    all.into_iter().filter(|status| *status == 200).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_redis_admits_at_most_the_stated_excess() {
    const APIS: usize = 4;
    let Some(world) = world_on_own_servers(|_| StackSize {
        apis: APIS,
        workers: 0,
        ..StackSize::default()
    })
    .await
    else {
        return;
    };
    for api in &world.stack.apis {
        wait_until(
            "every process knows the number of API processes",
            async || {
                std::fs::read_to_string(&api.log)
                    .unwrap()
                    .contains(&format!("\"processes\":{APIS}"))
            },
        )
        .await;
    }
    // The worst case: one process has counted the whole allowance, the others nothing. Then the
    // usual case.
    for (name, first) in [("one process knows", 1), ("all processes know", APIS)] {
        let free = org(&world.stack, "free").await;
        let clients: Vec<_> = world
            .stack
            .addresses()
            .into_iter()
            .map(|url| Client::new(url, Some(&free.key)))
            .collect();
        let began = world.database_time().await;
        let before = burst(&clients[..first], FREE_RATE_LIMIT + 10).await;
        assert_eq!(before, FREE_RATE_LIMIT, "{name}");
        // A process that finished its share of the burst early has not counted the rest.
        for client in &clients[..first] {
            assert_eq!(burst(std::slice::from_ref(client), 1).await, 0, "{name}");
        }
        let mut during = Vec::new();
        // Repeated outages grant no new allowance.
        for _ in 0..2 {
            world
                .stack
                .ground
                .servers
                .redis_signal(libc::SIGSTOP)
                .unwrap();
            during.push(burst(&clients, 400).await);
            world
                .stack
                .ground
                .servers
                .redis_signal(libc::SIGCONT)
                .unwrap();
            for api in &world.stack.apis {
                wait_until("counts in Redis", async || {
                    scrape(api).await.contains("assay_ratelimit_degraded 0")
                })
                .await;
            }
            during.push(burst(&clients, 100).await);
        }
        // If the machine needs a minute for this, the first requests have left the window.
        let windows = world.minutes_since(&began).await;
        println!(
            "{name}: {before} admitted before, {during:?} during and after two outages, in {windows} windows"
        );
        let total = before + during.iter().sum::<usize>();
        let excess = match first {
            1 => APIS * FREE_RATE_LIMIT.div_ceil(APIS),
            _ => APIS,
        };
        assert!(
            total <= windows * (FREE_RATE_LIMIT + excess),
            "{name}: {total}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_survives_unreachable_redis() {
    let mut link = None;
    let alone = world_on_own_servers(|servers| {
        let link = link.insert(Link::to_redis(servers).unwrap());
        let env = [("ASSAY_REDIS_URL".to_owned(), link.redis_url())];
        StackSize {
            env: env.into(),
            ..plan()
        }
    });
    let (Some(world), Some(link)) = (alone.await, link) else {
        return;
    };
    submit_jobs(&world, "before", 5).await;
    link.refuse(Ending::HalfOpen);
    assert_service_continues(&world, "unreachable", true).await;
    link.mend();
    assert_recovery(&world, "unreachable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_survives_flushed_or_refusing_redis() {
    let Some(world) = world_on_own_servers(|_| plan()).await else {
        return;
    };
    submit_jobs(&world, "before", 5).await;

    redis_command(&world, "flushall").await;
    assert_service_continues(&world, "flushed", false).await;
    redis_command(&world, "script flush").await;
    assert_recovery(&world, "flushed").await;

    redis_command(&world, "replicaof 127.0.0.1 1").await;
    assert_service_continues(&world, "read-only", true).await;
    // A demoted Redis still responds, and does not accept writes.
    wait_until("the metric of a Redis that is no primary", async || {
        metric(&world, "assay_redis_up").await == 0.0
    })
    .await;
    redis_command(&world, "replicaof no one").await;
    assert_recovery(&world, "read-only").await;
    wait_until(
        "the metric of a Redis that is a primary again",
        async || metric(&world, "assay_redis_up").await > 0.0,
    )
    .await;

    redis_command(&world, "config set maxmemory 1").await;
    assert_service_continues(&world, "full", true).await;
    redis_command(&world, "config set maxmemory 0").await;
    assert_recovery(&world, "full").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn evicting_redis_loses_no_job() {
    let Some(world) = world_on_own_servers(|_| plan()).await else {
        return;
    };
    submit_jobs(&world, "before", 5).await;
    // Redis is full of foreign keys, so every write evicts a key, foreign or Assay's.
    let ballast = "return redis.call('set', KEYS[1], string.rep('x', 10000))";
    let fill = async |from: usize| {
        let client = redis::Client::open(world.stack.ground.servers.redis_url()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let script = redis::Script::new(ballast);
        for number in from..from + 400 {
            script
                .key(format!("ballast-{number}"))
                .invoke_async::<()>(&mut connection)
                .await
                .unwrap();
        }
    };
    fill(0).await;
    let used: usize = info(&world, "memory", "used_memory:").await;
    redis_command(&world, "config set maxmemory-policy allkeys-random").await;
    redis_command(
        &world,
        &format!("config set maxmemory {}", used - 1_000_000),
    )
    .await;
    for round in 1..=5 {
        fill(round * 400).await;
        submit_jobs(&world, "evicting", 5).await;
    }
    assert!(info(&world, "stats", "evicted_keys:").await > 2000);
    assert!(admitted(&world, "evicting").await >= FREE_RATE_LIMIT);
    redis_command(&world, "config set maxmemory 0").await;
    redis_command(&world, "config set maxmemory-policy noeviction").await;
    assert_recovery(&world, "evicting").await;
}
