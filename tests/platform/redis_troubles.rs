//! Redis is there, and is of no use: it is frozen, unreachable, emptied, read-only, full, or drops what it likes. Submissions
//! are taken all the same, every job is done once, requests are counted; and afterwards all is as before, without a restart.

use std::time::{Duration, Instant};

use assay_tests::client::Client;
use assay_tests::link::{Ending, Link};
use assay_tests::stack::Plan;
use futures_util::future::join_all;

use crate::harness::{World, one_prediction, org, scrape, text, until, world_alone};

const PATIENCE: Duration = Duration::from_secs(60);

/// No request waits for Redis for longer than a moment; the rest is for a busy machine.
const PROMPT: Duration = crate::harness::STALL;

/// How many requests an organization on the plan `free` has in a minute.
const FREE: usize = 60;

/// Two api processes would each have a memory of their own; one is what can be counted exactly.
fn plan() -> Plan {
    Plan {
        workers: 2,
        ..Plan::default()
    }
}

/// One statement to Redis itself.
async fn tell(world: &World, command: &str) -> redis::Value {
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

/// One number of what Redis says of itself.
async fn info(world: &World, section: &str, name: &str) -> usize {
    let redis::Value::BulkString(told) = tell(world, &format!("info {section}")).await else {
        panic!("not a text")
    };
    let told = String::from_utf8(told).unwrap();
    told.lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

async fn metric(world: &World, name: &str) -> f64 {
    let metrics = scrape(&world.stack.apis[0]).await;
    // All series of the name together.
    let values = metrics.lines().filter(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '{']))
    });
    values
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum()
}

/// Submits this many: each is taken promptly, ends with a result, and was begun once.
async fn flow(world: &World, name: &str, jobs: usize) {
    let mut queued = Vec::new();
    for _ in 0..jobs {
        let began = Instant::now();
        let answer = world.submit(&one_prediction()).await;
        assert_eq!(answer.status, 202, "{name}: {}", answer.body);
        assert!(
            began.elapsed() < PROMPT,
            "{name}: a submission took {:?}",
            began.elapsed()
        );
        queued.push(text(&answer.body["id"]));
    }
    for job_id in queued {
        let job = world
            .key()
            .finished(&job_id, PATIENCE, &|_| {})
            .await
            .unwrap();
        assert_eq!(
            (&job["status"], &job["attempts"]),
            (&"succeeded".into(), &1.into()),
            "{name}"
        );
    }
}

/// How many requests of an organization that has just been made are admitted. Those after the last say so.
async fn admitted(world: &World, name: &str) -> usize {
    let free = org(&world.stack, "free").await;
    let client = world.client(&free.key);
    let mut admitted = 0;
    for _ in 0..FREE + 10 {
        let answer = client.get("/v1/me").await.unwrap();
        assert!(
            [200, 429].contains(&answer.status),
            "{name}: {}",
            answer.body
        );
        assert_eq!(answer.header("x-ratelimit-limit"), FREE.to_string());
        admitted += usize::from(answer.status == 200);
    }
    admitted
}

/// Everything works, while it lasts.
async fn endured(world: &World, name: &str, in_memory: bool) {
    flow(world, name, 10).await;
    assert_eq!(
        metric(world, "assay_ratelimit_degraded").await > 0.0,
        in_memory,
        "{name}: where requests are counted"
    );
    assert_eq!(admitted(world, name).await, FREE, "{name}");
    flow(world, name, 10).await;
}

/// All is as it was, although no process was started again: requests are counted in Redis, and bells are heard.
async fn recovered(world: &World, name: &str) {
    let began = Instant::now();
    until("counting in Redis again", PATIENCE, async || {
        metric(world, "assay_ratelimit_degraded").await == 0.0
    })
    .await;
    let rung = metric(world, "assay_job_notifications_total").await;
    let mut heard = 0;
    until("a bell that is heard at once", PATIENCE, async || {
        flow(world, name, 1).await;
        let waited: f64 =
            sqlx::query_scalar("select extract(epoch from started_at - created_at)::float8 from jobs order by created_at desc limit 1")
                .fetch_one(&mut world.database().await)
                .await
                .unwrap();
        // Those that look for themselves do so after a second. One that does may come just then; several do not.
        heard = if waited < 0.8 { heard + 1 } else { 0 };
        heard == 5
    })
    .await;
    assert!(
        metric(world, "assay_job_notifications_total").await >= rung + 5.0,
        "{name}"
    );
    assert_eq!(admitted(world, name).await, FREE, "{name}, afterwards");
    println!("{name}: all is as it was after {:?}", began.elapsed());
    flow(world, name, 10).await;
    let sql = "select (select count(*) from jobs where status = 'succeeded') = count(*) and count(*) = (select count(*) from job_attempts)
               and count(*) = (select count(*) from usage_ledger) from jobs";
    assert!(
        sqlx::query_scalar::<_, bool>(sql)
            .fetch_one(&mut world.database().await)
            .await
            .unwrap(),
        "{name}: each once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_frozen_is_done_without() {
    let Some(world) = world_alone(|_| plan()).await else {
        return;
    };
    flow(&world, "before", 5).await;
    world
        .stack
        .ground
        .servers
        .redis_signal(libc::SIGSTOP)
        .unwrap();
    endured(&world, "frozen", true).await;
    world
        .stack
        .ground
        .servers
        .redis_signal(libc::SIGCONT)
        .unwrap();
    recovered(&world, "frozen").await;
}

/// How many of so many requests at once, sent to these processes in turn, are admitted.
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
    let Some(world) = world_alone(|_| Plan {
        apis: APIS,
        workers: 0,
        ..Plan::default()
    })
    .await
    else {
        return;
    };
    for api in &world.stack.apis {
        until(
            "every process knows how many there are",
            PATIENCE,
            async || {
                std::fs::read_to_string(&api.log)
                    .unwrap()
                    .contains(&format!("\"processes\":{APIS}"))
            },
        )
        .await;
    }
    // The worst case: one process has seen the whole allowance used, the others nothing. And the usual one.
    for (name, first) in [("one process knows", 1), ("all processes know", APIS)] {
        let free = org(&world.stack, "free").await;
        let clients: Vec<_> = world
            .stack
            .addresses()
            .into_iter()
            .map(|url| Client::new(url, Some(&free.key)))
            .collect();
        let began = Instant::now();
        let before = burst(&clients[..first], FREE + 10).await;
        assert_eq!(before, FREE, "{name}");
        // A process that finished its share of the burst early has not seen the rest used.
        for client in &clients[..first] {
            assert_eq!(burst(std::slice::from_ref(client), 1).await, 0, "{name}");
        }
        let mut during = Vec::new();
        // A Redis that comes and goes grants nothing anew.
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
                until("counting in Redis", PATIENCE, async || {
                    scrape(api).await.contains("assay_ratelimit_degraded 0")
                })
                .await;
            }
            during.push(burst(&clients, 100).await);
        }
        let took = began.elapsed();
        println!(
            "{name}: {before} admitted before, {during:?} during and after two outages, in {took:?}"
        );
        let total = before + during.iter().sum::<usize>();
        // On a machine where this takes a minute the first requests have expired.
        assert!(
            took > Duration::from_secs(60) || total <= FREE + APIS * FREE.div_ceil(APIS),
            "{name}: {total}"
        );
        assert!(
            took > Duration::from_secs(60) || first == 1 || total <= FREE + APIS,
            "{name}: {total}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_cannot_be_reached_is_done_without() {
    let mut link = None;
    let alone = world_alone(|servers| {
        let link = link.insert(Link::to_redis(servers).unwrap());
        let env = [("ASSAY_REDIS_URL".to_owned(), link.redis_url())];
        Plan {
            env: env.into(),
            ..plan()
        }
    });
    let (Some(world), Some(link)) = (alone.await, link) else {
        return;
    };
    flow(&world, "before", 5).await;
    link.refuse(Ending::HalfOpen);
    endured(&world, "unreachable", true).await;
    link.mend();
    recovered(&world, "unreachable").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgets_or_refuses_is_done_without() {
    let Some(world) = world_alone(|_| plan()).await else {
        return;
    };
    flow(&world, "before", 5).await;

    tell(&world, "flushall").await;
    endured(&world, "emptied", false).await;
    tell(&world, "script flush").await;
    recovered(&world, "emptied").await;

    tell(&world, "replicaof 127.0.0.1 1").await;
    endured(&world, "read-only", true).await;
    tell(&world, "replicaof no one").await;
    recovered(&world, "read-only").await;

    tell(&world, "config set maxmemory 1").await;
    endured(&world, "full", true).await;
    tell(&world, "config set maxmemory 0").await;
    recovered(&world, "full").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_drops_what_it_likes_loses_no_job() {
    let Some(world) = world_alone(|_| plan()).await else {
        return;
    };
    flow(&world, "before", 5).await;
    // It is full of what others keep, and whatever is written throws something out, of theirs or of ours.
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
    tell(&world, "config set maxmemory-policy allkeys-random").await;
    tell(
        &world,
        &format!("config set maxmemory {}", used - 1_000_000),
    )
    .await;
    for round in 1..=5 {
        fill(round * 400).await;
        flow(&world, "dropping", 5).await;
    }
    assert!(info(&world, "stats", "evicted_keys:").await > 2000);
    assert!(admitted(&world, "dropping").await >= FREE);
    tell(&world, "config set maxmemory 0").await;
    tell(&world, "config set maxmemory-policy noeviction").await;
    recovered(&world, "dropping").await;
}
