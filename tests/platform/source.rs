//! Checks that read the sources and documents instead of running them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::harness::list_files;

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
fn configuration_document_lists_every_setting() {
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
fn telemetry_document_lists_every_metric() {
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
            Binary::Engine => "engine",
            Binary::Deliverer => "deliverer",
            Binary::Delivering => "api, deliverer",
            Binary::Log => "receipt log",
            Binary::Logging => "api, receipt log",
            Binary::Both => "both",
            Binary::All => "all",
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

/// The tables whose rows belong to an organization.
const TENANTS: [&str; 41] = [
    "api_keys",
    "audit_entries",
    "board_entries",
    "board_predictions",
    "closed_sealed_results",
    "domain_claims",
    "draft_parts",
    "drafts",
    "escrow_chunks",
    "events",
    "invites",
    "job_attempts",
    "jobs",
    "memberships",
    "offboardings",
    "org_allowance_holders",
    "org_events",
    "org_models",
    "org_storage",
    "org_submissions",
    "receipt_salts",
    "receipts",
    "sealed_results",
    "serve_keys",
    "shown_receipts",
    "stored_item_scores",
    "stored_predictions",
    "suite_disclosures",
    "suite_grants",
    "suite_retirements",
    "terms_acceptances",
    "upload_parts",
    "uploads",
    "usage",
    "usage_ledger",
    "usage_request_days",
    "usage_requests",
    "usage_thresholds",
    "webhook_deliveries",
    "webhook_payloads",
    "webhooks",
];

/// The functions of `core/src/store` with statements that act for all organizations, and the number
/// of these statements if it is not one. A new one must be added here, so that a review sees it.
const ALL_TENANTS: [&str; 106] = [
    "access::org_of_key",
    "allowance::daily_uses",
    "allowance::used",
    "audit::record_in_orgs_of",
    "auth::accept_invites",
    "auth::join_by_domain",
    "auth::may_sign_in",
    "board::find",
    "board::is_name_taken",
    "board::max_entries_in_group",
    "board::removals",
    "board::rows",
    "board_computation::bodies",
    "board_computation::claim",
    "board_computation::entries",
    "board_computation::finish",
    "board_computation::group_counts",
    "board_computation::insert_pairs",
    "board_computation::state_disclosed_figures (2)",
    "cleanup::abandon_predictions",
    "cleanup::delete_abandoned_predictions",
    "cleanup::delete_expired_item_scores",
    "cleanup::ended_uploads",
    "cleanup::expire_uploads (2)",
    "cleanup::expired_item_scores",
    "cleanup::forget_predictions",
    "cleanup::list_cleanup_candidates",
    "cleanup::mark_cleaned_up",
    "cleanup::mark_uploads_removed",
    "cleanup::unneeded_predictions",
    "cleanup::withdraw_item_scores",
    "credential::keys",
    "credential::session",
    "delivery::claim",
    "delivery::delete_old",
    "delivery::longest_delay",
    "dependent_evals::ended_by",
    "draft_check::claim",
    "draft_check::ended (2)",
    "email_domain::lease_due",
    "email_domain::other_holder",
    "event::adopt_restored (3)",
    "event::delete_old",
    "event::insert_suite_published",
    "event::insert_usage_thresholds (2)",
    "finalization::final_job_count",
    "grant::accept (2)",
    "job_notifications::record",
    "job_notifications::reset_notifications",
    "job_rows::insert_rows",
    "key::take_expiring",
    "leases::orphan_unknown_claims",
    "leases::sweep",
    "locked_orgs::lock",
    "locked_orgs::read_limits",
    "mail_preferences::take_news",
    "moderation::moderate (2)",
    "moderation::owners",
    "old_rows::delete_domain_claims",
    "old_rows::delete_invites",
    "old_rows::delete_jobs",
    "old_rows::delete_keys",
    "old_rows::delete_uploads",
    "org::choices",
    "org::domains_with_label",
    "org::for_user",
    "org::owns_any",
    "publish::insert_version",
    "queue::busy",
    "queue::recent_costs",
    "queue::waiting",
    "queue_depth::measure",
    "queue_snapshot::measured_attempts",
    "queue_snapshot::notified_jobs",
    "queue_snapshot::waiting_costs",
    "receipt::find",
    "receipt_log::append_statements",
    "receipt_log::oldest_unsigned",
    "receipt_log::state",
    "receipt_log::statements_from",
    "receipt_log::unsigned",
    "reconcile::is_recorded",
    "reconcile::known",
    "reconcile::recorded (3)",
    "retirement::execute_next",
    "serving::delete_expired_keys",
    "storage::accept",
    "submission::find_repeated",
    "submission::record_predictions",
    "suite::versions",
    "suites::end_review",
    "usage::add_requests (2)",
    "usage::delete_old_days",
    "user_erasure::delete_memberships (2)",
    "user_erasure::erase_address (2)",
    "user_erasure::erase_in_events (3)",
    "user_erasure::erase_user (2)",
    "user_erasure::lock_user",
    "user_erasure::sole_ownerships",
    "webhook::list_behind",
    "webhook::list_unreachable",
    "work::claim_jobs",
    "work::fail",
    "work::owns_job",
    "work::requeue",
    "work::succeed_all",
];

/// The start of the comment that marks a statement for all organizations. A reason follows.
const MARKER: &str = "/* all tenants: ";

/// A statement, taken apart.
struct Statement {
    /// The text without comments and string literals, so that neither counts as SQL.
    sql: String,
    /// The reason in the marker, if there is one.
    reason: Option<String>,
}

impl Statement {
    fn parse(text: &str) -> Self {
        let mut sql = String::new();
        let mut reason = None;
        let mut rest = text;
        loop {
            let starts = ["/*", "--", "'"].map(|start| rest.find(start).unwrap_or(rest.len()));
            let at = *starts.iter().min().unwrap();
            sql.push_str(&rest[..at]);
            rest = &rest[at..];
            let after = |end: &str| {
                rest[1..]
                    .find(end)
                    .map_or(rest.len(), |len| 1 + len + end.len())
            };
            let skipped = match rest.get(..2) {
                Some("/*") => after("*/"),
                Some("--") => after("\n"),
                Some(_) => after("'"),
                None => return Self { sql, reason },
            };
            if let Some(marker) = rest[..skipped].strip_prefix(MARKER) {
                reason = Some(marker.trim_end_matches("*/").trim().to_owned());
            }
            sql.push(' ');
            rest = &rest[skipped..];
        }
    }

    /// Returns `true` if the statement reads or writes a tenant's table.
    fn is_on_tenant(&self) -> bool {
        self.sql
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .any(|word| TENANTS.contains(&word))
    }

    /// Returns `true` if the statement is restricted to an organization, or inserts its rows. A
    /// lookup for several requests joins each row with its request's organization, `by_org`.
    /// String literals are removed.
    fn names_organization(&self) -> bool {
        let sql = self.sql.split_whitespace().collect::<Vec<_>>().join(" ");
        sql.contains("org_id = $1")
            || sql.contains("as wanted(by_org, job_id) on org_id || = by_org")
            || sql.split("insert into ").skip(1).any(inserts_organization)
    }
}

/// Returns `true` if the value of the column `org_id` is a parameter. `insert` follows `insert
/// into`.
fn inserts_organization(insert: &str) -> bool {
    let Some((_, columns)) = insert.split_once('(') else {
        return false;
    };
    let Some((columns, values)) = columns.split_once(')') else {
        return false;
    };
    let values = values.trim_start();
    let Some(values) = values
        .strip_prefix("values (")
        .or_else(|| values.strip_prefix("select "))
    else {
        return false;
    };
    // No value before the organization's has its own comma.
    columns
        .split(',')
        .zip(values.split(','))
        .any(|(column, value)| {
            column.trim() == "org_id"
                && value
                    .trim_matches([' ', ')'])
                    .strip_prefix('$')
                    .is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
        })
}

#[test]
fn tenant_statements_name_organization_or_marker() {
    let mut named = 0;
    let mut marked = 0;
    for file in std::fs::read_dir(root().join(".sqlx")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let query = serde_json::from_str::<Value>(&text).unwrap()["query"]
            .as_str()
            .unwrap()
            .to_owned();
        let statement = Statement::parse(&query);
        match &statement.reason {
            Some(reason) => {
                marked += 1;
                assert!(
                    query.trim_start().starts_with(MARKER) && reason.contains(' '),
                    "the marker must be at the start and give a reason:\n{query}"
                );
                assert!(
                    statement.is_on_tenant(),
                    "marked, but on no tenant's table:\n{query}"
                );
                assert!(
                    !statement.names_organization(),
                    "marked, but names the organization:\n{query}"
                );
            }
            None if statement.is_on_tenant() => {
                named += 1;
                assert!(
                    statement.names_organization(),
                    "names no organization and has no marker:\n{query}"
                );
            }
            None => {}
        }
    }
    assert!(
        named > 80 && marked > 40,
        "{named} statements name the organization, {marked} are marked"
    );
}

#[test]
fn statements_for_all_tenants_are_listed() {
    let mut found = BTreeMap::new();
    for path in list_files(&root().join("core/src/store")) {
        let module_path = if path.ends_with("mod.rs") {
            path.parent().unwrap().to_owned()
        } else {
            path.with_extension("")
        };
        let module = module_path.file_name().unwrap().to_str().unwrap();
        let mut function = String::new();
        let source = std::fs::read_to_string(&path).unwrap();
        // A comment of Rust may quote the marker.
        let code = source
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            let definition = ["fn ", "macro_rules! "].map(|keyword| line.split_once(keyword));
            if let Some((_, name)) = definition.into_iter().flatten().next() {
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
                name[..end.unwrap_or(name.len())].clone_into(&mut function);
            }
            if line.contains(MARKER) {
                *found.entry(format!("{module}::{function}")).or_insert(0) += 1;
            }
        }
    }
    let found: Vec<String> = found
        .into_iter()
        .map(|(name, count)| match count {
            1 => name,
            count => format!("{name} ({count})"),
        })
        .collect();
    assert_eq!(
        found, ALL_TENANTS,
        "the functions with statements for all organizations have changed"
    );
}

#[test]
fn marker_and_organization_are_recognized() {
    let parse = Statement::parse;
    let marked =
        parse("/* all tenants: the sweep */ update jobs set a = 'org_id = $1' -- org_id = $1\n");
    assert_eq!(marked.reason.as_deref(), Some("the sweep"));
    assert!(marked.is_on_tenant() && !marked.names_organization());
    assert!(!parse("select 'jobs' from suites /* jobs */").is_on_tenant());
    for named in [
        "delete from jobs j where j.org_id = $1",
        "insert into jobs (id, org_id) values ($2, $1)",
        "insert into usage as u (org_id, n)\n select $1, date_trunc('month', now())",
    ] {
        assert!(parse(named).names_organization(), "{named}");
    }
    for unnamed in [
        "delete from jobs where org_id <> $1",
        "delete from jobs where id = $1",
        "insert into memberships (org_id, user_id) select c.org_id, $1 from domain_claims c",
    ] {
        assert!(!parse(unnamed).names_organization(), "{unnamed}");
    }
}
