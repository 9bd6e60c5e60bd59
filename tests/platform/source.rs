//! Promises that the sources themselves keep: read, not run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn the_readme_lists_every_setting_with_its_default() {
    let document = read("docs/configuration.md");
    let listed: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with("| `ASSAY_"))
        .collect();
    let written: Vec<String> = assay_core::runtime::settings::ALL
        .iter()
        .map(|setting| {
            let default = match setting.default {
                None => "required".to_owned(),
                Some("") => String::new(),
                Some(default) => format!("`{default}`"),
            };
            let file = if setting.secret {
                " (or `…_FILE`)"
            } else {
                ""
            };
            format!(
                "| `{}`{file} | {default} | {} |",
                setting.name, setting.help
            )
        })
        .collect();
    assert_eq!(
        listed,
        written,
        "the table must be:\n{}",
        written.join("\n")
    );
}

#[test]
fn the_metrics_are_listed_with_their_labels_and_help() {
    use assay_core::runtime::prometheus::{ALL, Binary, Kind};

    let document = read("docs/telemetry.md");
    let listed: Vec<&str> = document
        .lines()
        .filter(|line| line.starts_with("| `assay_"))
        .collect();
    let label = |(label, values): &(&str, &[&str])| match values {
        [] => format!("`{label}`"),
        values => format!("`{label}`: {}", values.join(", ")),
    };
    let row = |metric: &assay_core::runtime::prometheus::Instrument| {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let binary = match metric.binary {
            Binary::Api => "api",
            Binary::Worker => "worker",
            Binary::Both => "both",
        };
        let labels: Vec<String> = metric.labels.iter().map(label).collect();
        format!(
            "| `{}` | {kind} | {binary} | {} | {} |",
            metric.name,
            labels.join("; "),
            metric.help
        )
    };
    let written: Vec<String> = ALL.iter().map(row).collect();
    assert_eq!(
        listed,
        written,
        "the table must be:\n{}",
        written.join("\n")
    );
}

/// Tables whose rows belong to an organization.
const TENANTS: [&str; 21] = [
    "api_keys",
    "jobs",
    "job_attempts",
    "usage",
    "usage_ledger",
    "usage_requests",
    "org_submissions",
    "memberships",
    "invites",
    "domain_claims",
    "terms_acceptances",
    "offboardings",
    "uploads",
    "upload_parts",
    "suite_grants",
    "suite_disclosures",
    "sealed_results",
    "closed_sealed_results",
    "stored_item_scores",
    "stored_predictions",
    "org_storage",
];

/// Statements that act for all organizations, by a word of theirs: credentials are looked up by their hash; the
/// dispatcher and the workers serve everybody.
const FOR_ALL: [(&str, &str); 65] = [
    (
        "exists(select from sessions s join memberships m",
        "names the organization in either half",
    ),
    ("and expires_at <= now()\n", "uploads whose time is over"),
    (
        "update uploads u set status = 'expired'",
        "uploads whose time is over",
    ),
    ("where removed_at is null and", "uploads that have ended"),
    ("with removed as", "uploads whose objects were removed"),
    (
        "where k.secret_hash = $1",
        "a credential says which organization it is",
    ),
    (
        "where s.token_hash = $1",
        "a credential says which organization it is",
    ),
    (
        "where m.user_id = $1 order by",
        "the organizations of a person",
    ),
    (
        "or exists(select from invites where email = $1",
        "whether an address may sign up, whoever invited it",
    ),
    (
        "where user_id = $1 and role = 'owner'",
        "whether a user owns any organization",
    ),
    (
        "with accepted as",
        "a sign-in consumes its person's invites, whoever made them",
    ),
    (
        "insert into memberships (org_id, user_id, role)\n           select c.org_id",
        "a sign-in finds the organization of an address's domain",
    ),
    (
        "insert into memberships (org_id",
        "names the organization in its values",
    ),
    (
        "insert into invites (id, org_id",
        "names the organization in its values",
    ),
    (
        "insert into domain_claims as c (org_id",
        "names the organization in its values; a domain may be anybody's",
    ),
    (
        "insert into terms_acceptances (org_id",
        "names the organization in its values",
    ),
    ("with stuck as", "the sweep"),
    ("kind = 'charge'\n", "a refund, by job"),
    ("limit 100000) waiting", "the queue's depth"),
    ("turns as", "choosing whose bell to ring"),
    ("set dispatched_at = null where status", "Redis forgot"),
    ("with claimed as", "a claim"),
    ("worker_id = 'nobody'", "giving lost claims up"),
    (
        "tidied_at is null and finished_at <",
        "jobs of which more is kept than anybody needs",
    ),
    (
        "set input_key = null, tidied_at",
        "jobs that were tidied up",
    ),
    (
        "set abandoned_at = coalesce",
        "predictions of submissions that did not become jobs",
    ),
    (
        "where abandoned_at is not null and job_id",
        "predictions of submissions that did not become jobs",
    ),
    (
        "hashtextextended('invites of '",
        "a lock by the organization's id",
    ),
    (
        "insert into stored_predictions",
        "names the organization in its values",
    ),
    (
        "with gone as (\n             select j.id",
        "jobs whose time is over",
    ),
    (
        "delete from uploads where id in",
        "uploads whose time is over",
    ),
    (
        "delete from api_keys where id in",
        "keys that were revoked long ago",
    ),
    (
        "delete from invites where id in",
        "invites that ended long ago",
    ),
    (
        "delete from domain_claims where (org_id, domain) in",
        "domain claims that expired long ago",
    ),
    (
        "as o(key, org_id, owner_id, number)",
        "the rows that name objects of the artifact store",
    ),
    (
        "from stored_predictions p join jobs j",
        "rows that name predictions",
    ),
    (
        "from stored_item_scores where job_id > $1",
        "rows that name item scores",
    ),
    (
        "where (p.upload_id, p.number) > ($1, $2)",
        "rows that name parts",
    ),
    ("select case $1::integer", "a row that names an object"),
    (
        "with held as",
        "an attempt looks whether it holds its job, and notes its progress",
    ),
    (
        "set status = 'cancelled'",
        "names the organization; its second half goes by the job's id",
    ),
    ("set status = 'succeeded'", "an end, fenced by the attempt"),
    (
        "set status = 'failed', error_code",
        "an end, fenced by the attempt",
    ),
    (
        "set status = 'queued', started_at = null, worker_id = null, deadline_at = null, dispatched_at = null,\n",
        "an end, fenced by the attempt",
    ),
    ("with refund as", "a refund, by job"),
    (
        "with charged as",
        "the charge names the organization in its values",
    ),
    (
        "insert into usage_requests",
        "a process adds up for all whose requests it admitted",
    ),
    (
        "insert into org_submissions",
        "the lock names the organization in its values",
    ),
    (
        "select has_any_column_privilege",
        "asks for rights, not for rows",
    ),
    (
        "where org_id <> $1 and domain = $2",
        "a claimed domain may be another organization's",
    ),
    ("with due as", "verified domains that are due for a check"),
    (
        "set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = $1",
        "the operator revokes a key of any organization",
    ),
    (
        "select from orgs where id in (select org_id from memberships",
        "the operator erases a user",
    ),
    ("x.user_id <> m.user_id", "the operator erases a user"),
    (
        "delete from memberships where user_id = $1",
        "the operator erases a user",
    ),
    (
        "delete from offboardings where user_id = $1",
        "the operator erases a user",
    ),
    (
        "delete from invites where email = $1",
        "the operator erases an address",
    ),
    (
        "with used as",
        "what all organizations that share an allowance have used of it",
    ),
    (
        "where d.holder = any($1)",
        "final jobs of all organizations that share an allowance",
    ),
    (
        "insert into suite_grants",
        "names the organization in its values",
    ),
    (
        "insert into suite_disclosures",
        "names the organization in its values",
    ),
    (
        "insert into sealed_results",
        "names the organization in its values",
    ),
    (
        "from stored_item_scores where expires_at <= now()",
        "item scores that have expired",
    ),
    (
        "set scores_key = null where",
        "item scores that have expired",
    ),
    (
        "with present as materialized",
        "names the organization behind a clock that was read before",
    ),
];

#[test]
fn every_statement_on_a_tenants_table_names_the_organization() {
    let mut seen = BTreeMap::new();
    for file in std::fs::read_dir(root().join(".sqlx")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let query = serde_json::from_str::<Value>(&text).unwrap()["query"]
            .as_str()
            .unwrap()
            .to_owned();
        let words: Vec<&str> = query
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        if !TENANTS.iter().any(|table| words.contains(table)) {
            continue;
        }
        match FOR_ALL.iter().find(|(part, _)| query.contains(part)) {
            Some((part, _)) => *seen.entry(*part).or_insert(0) += 1,
            None => assert!(
                query.contains("org_id = $1")
                    || query.contains("values ($2, $1,")
                    || query.contains("(id, org_id, name, prefix"),
                "no organization in:\n{query}"
            ),
        }
    }
    // What is excused must still be there.
    for (part, why) in FOR_ALL {
        assert!(
            seen.contains_key(part) || ["with refund as", "kind = 'charge'\n"].contains(&part),
            "{why}: no statement holds {part:?} any more"
        );
    }
}

#[test]
fn every_rpc_is_headed_by_the_rest_line_that_it_mirrors() {
    // A route a line: rustfmt breaks long ones.
    let router = read("api/src/rest/mod.rs")
        .split_whitespace()
        .collect::<String>();
    let routes: Vec<&str> = router.split(".route(").skip(1).collect();
    let mut rpcs = 0;
    for file in std::fs::read_dir(root().join("proto/assay/v1")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for (at, line) in lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.starts_with("rpc "))
        {
            let (method, path) = lines[at - 1]
                .trim_start_matches("// ")
                .split_once(' ')
                .unwrap();
            let route = routes
                .iter()
                .find(|route| route.starts_with(&format!("\"{path}\",")))
                .unwrap_or_else(|| panic!("{line}: no route {path}"));
            assert!(
                route.contains(&format!("{}(", method.to_lowercase())),
                "{line}: {route}"
            );
            // A stream of answers is another form of an operation that has an rpc with one.
            rpcs += usize::from(!line.contains("returns (stream "));
        }
    }
    let methods = ["get(", "post(", "put(", "patch(", "delete("];
    let handlers: usize = routes
        .iter()
        // The last one is followed by the layers of its router.
        .map(|route| route.split("_layer(").next().unwrap_or_default())
        .map(|route| {
            methods
                .iter()
                .map(|method| route.matches(method).count())
                .sum::<usize>()
        })
        .sum();
    assert_eq!(rpcs, handlers, "an operation is on one wire only");
}
