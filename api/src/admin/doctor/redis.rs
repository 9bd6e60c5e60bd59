//! The Redis checks.

use assay_core::runtime::redis_doctor::RedisExamination;

use super::checks::{Area, Check, check_clock};

pub(super) async fn check_redis(url: &str, prefix: &str, checks: &mut Vec<Check>) {
    let mut area = Area {
        name: "redis",
        checks,
    };
    let mut redis = match RedisExamination::connect(url, prefix).await {
        Ok(redis) => redis,
        Err(error) => {
            let remedy = "check the host, the password and TLS of ASSAY_REDIS_URL";
            return area.require("connection", false, error.cause_or_message(), remedy);
        }
    };
    match redis.server().await {
        Ok(server) => {
            area.add("version", &server.version, None);
            area.require(
                "role",
                server.role == "master",
                &server.role,
                "ASSAY_REDIS_URL must lead to the primary: a replica refuses writes, and jobs then wait for polling",
            );
            area.require(
                "mode",
                server.mode != "cluster",
                &server.mode,
                "use a Redis without cluster mode: keys of one queue must be on one server",
            );
            area.require(
                "maxmemory-policy",
                server.maxmemory_policy == "noeviction",
                &server.maxmemory_policy,
                "config set maxmemory-policy noeviction: Redis would drop notifications and counters",
            );
            let milliseconds = server.round_trip.as_secs_f64() * 1e3;
            area.advise(
                "round trip",
                milliseconds < 5.0,
                format!("{milliseconds:.2} ms"),
                "place Redis near the API processes: each request waits for one round trip",
            );
            check_clock(&mut area, server.clock_ahead_seconds);
        }
        Err(error) => area.require(
            "state",
            false,
            error.cause_or_message(),
            "let the user run INFO and TIME",
        ),
    }
    let (found, refused) = match redis.refused_keys().await {
        Ok(refused) if refused.is_empty() => (format!("{prefix}.* can be written"), false),
        Ok(refused) => {
            let refused: Vec<_> = refused
                .iter()
                .map(|(form, why)| format!("{form}: {why}"))
                .collect();
            (refused.join("; "), true)
        }
        Err(error) => (error.cause_or_message(), true),
    };
    area.require(
        "writes",
        !refused,
        found,
        format!("let the user write: acl setuser … ~{prefix}* &{prefix}* +@all, and the server accept writes"),
    );
    let arrive = redis.messages_arrive().await.unwrap_or(false);
    area.require(
        "messages",
        arrive,
        if arrive {
            "arrive"
        } else {
            "no message arrived within 2 s"
        },
        format!("let the user publish and subscribe: acl setuser … &{prefix}*"),
    );
}
