//! Knowledge of attackers: the published table, a comparison between disclosed and attacked
//! figures, and the operator's audit.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use assay_adversary::bench::{TRIALS, render, rows};
use assay_adversary::{Caps, Item, Suite, attack, submissions_until_known};
use assay_eval::compare::{Aggregate, Pairs, StoredItems, point};
use assay_eval::known_at_most;
use assay_eval::prediction;
use assay_eval::score::{AnswerTable, Builder, Figures, Progress, Score, Scorer};
use assay_eval::{Answer, Clip, DisclosurePolicy, Ladder, Metric};
use assay_tests::client::Client;
use serde_json::{Value, json};

use crate::disclosure::{publish_answers, write_suite};
use crate::harness::{Expect, World, long_test, string, world};

/// Returns the numbers in a line, and the line with each number replaced by `#`.
fn numbers(line: &str) -> (Vec<f64>, String) {
    let mut numbers = Vec::new();
    let words = line.split(' ').map(|word| {
        let digits = word.trim_matches(|c: char| "(),".contains(c));
        match digits.parse::<f64>() {
            Ok(number) => {
                numbers.push(number);
                word.replace(digits, "#")
            }
            Err(_) => word.to_owned(),
        }
    });
    let rest = words.collect::<Vec<_>>().join(" ");
    (numbers, rest)
}

#[test]
fn threats_table_matches_measurement() {
    long_test!("attacks every policy with thousands of submissions");
    let document =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/threats.md"))
            .unwrap();
    // All rows take 80 s on a quiet core. The policies repeat every five rows, so every fourth
    // row covers each.
    let is_whole = std::env::var("TEST_ADVERSARY").is_ok();
    let measured = render(&rows(TRIALS, if is_whole { 1 } else { 4 }));
    let first = measured.lines().next().unwrap();
    let written: Vec<&str> = document
        .lines()
        .skip_while(|line| *line != first)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(
        !is_whole || written.len() == measured.lines().count(),
        "the table of docs/threats.md must be:\n{measured}"
    );
    let metric_and_policy = |line: &str| {
        line.split('|')
            .take(3)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for measured_line in measured.lines() {
        let is_row =
            |written: &&&str| metric_and_policy(written) == metric_and_policy(measured_line);
        let written = written
            .iter()
            .find(is_row)
            .unwrap_or_else(|| panic!("docs/threats.md must have the row\n{measured_line}"));
        let ((one, one_rest), (two, two_rest)) = (numbers(written), numbers(measured_line));
        // Logarithms may differ in their last bit between machines, which changes a percentage by
        // one.
        let is_same = one_rest == two_rest
            && one.len() == two.len()
            && one
                .iter()
                .zip(&two)
                .all(|(one, two)| (one - two).abs() <= 1.0);
        assert!(
            is_same,
            "{written}\nthe table of docs/threats.md must be:\n{measured}"
        );
    }
}

#[test]
fn disclosure_document_matches_computation() {
    let document = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../docs/disclosure.md"
    ))
    .unwrap();
    for (step, levels) in [(0.01, 50), (0.05, 10), (0.1, 5), (0.2, 2)] {
        let cell = |submissions| {
            let bits = Ladder {
                start: 0.5,
                step,
                levels,
            }
            .bits(submissions);
            format!(
                "{bits:.1} bits, {:.0} %",
                known_at_most(bits, 500, 0.5) * 100.0
            )
        };
        let row = format!(
            "| {step} ({levels} levels) | {} | {} | {} |",
            cell(16),
            cell(50),
            cell(500)
        );
        assert!(
            document.contains(&row),
            "docs/disclosure.md must have:\n{row}"
        );
    }
    let share = |levels, n, submissions| {
        known_at_most(
            Ladder {
                start: 0.5,
                step: 0.1,
                levels,
            }
            .bits(submissions),
            n,
            0.5,
        )
    };
    assert!(
        share(5, 500, 16) <= 0.6
            && share(5, 500, 17) > 0.6
            && document.contains("`max_submissions = 16`")
    );
    assert!(
        share(50, 5000, 121) <= 0.6
            && share(50, 5000, 122) > 0.6
            && document.contains("`ladder(0.01)` with 121")
    );
    for (metrics, stated) in [
        (
            &[
                "log_loss", "brier", "auc", "ece@15", "rmse", "mae", "spearman", "pearson",
                "kendall", "ccc", "r2",
            ][..],
            12,
        ),
        (&["accuracy", "ndcg@10"], 18),
        (&["exact_match", "f1_macro"], 32),
    ] {
        for metric in metrics {
            let suite = assay_adversary::bench::suite(
                metric.parse().unwrap(),
                DisclosurePolicy::Exact,
                500,
                1,
            )
            .unwrap();
            assert_eq!(
                submissions_until_known(&suite, 500, false),
                Some(stated),
                "{metric}"
            );
            let caps = Caps {
                submissions: stated,
                organizations: 1,
                comparisons_count: false,
                entries: 0,
            };
            assert_eq!(attack(&suite, caps, 1).known, 1.0, "{metric}");
        }
        let row = document
            .lines()
            .find(|line| line.contains(&format!("`{}`", metrics[0])) && line.contains("**"))
            .unwrap();
        assert!(row.contains(&format!("**{stated}**")), "{row}");
    }
}

/// A suite for these tests: its metric, additional `suite.toml` lines, answers and two
/// submissions.
struct Case {
    metric: &'static str,
    more: &'static str,
    answers: Vec<Value>,
    submissions: [Vec<Value>; 2],
}

/// Each suite's item count.
const N: usize = 24;

fn cases() -> Vec<Case> {
    let all = |of: &dyn Fn(usize) -> Value| (0..N).map(of).collect::<Vec<_>>();
    let label = |at: usize| if at % 5 < 2 { "yes" } else { "no" };
    let sure = |of_yes: f64| json!({"yes": of_yes, "no": 1.0 - of_yes});
    vec![
        Case {
            metric: "accuracy",
            more: "",
            answers: all(&|at| json!(label(at))),
            submissions: [
                all(&|at| json!(["maybe", label(at / 2)])),
                all(&|at| json!([label(at), "no"])),
            ],
        },
        Case {
            metric: "f1_macro",
            more: "",
            answers: all(&|at| json!(label(at))),
            submissions: [all(&|at| json!(label(at / 2))), all(&|_| json!("no"))],
        },
        Case {
            metric: "rmse",
            more: "clip = [0.0, 20.0]",
            answers: all(&|at| json!(at % 7)),
            submissions: [all(&|at| json!(at % 5)), all(&|at| json!(at * at))],
        },
        Case {
            metric: "log_loss",
            more: "clip = [0.0, 5.0]",
            answers: all(&|at| json!(label(at))),
            submissions: [
                all(&|at| sure(at as f64 / N as f64)),
                all(&|at| sure(if label(at) == "yes" { 0.9 } else { 0.2 })),
            ],
        },
    ]
}

fn table(case: &Case, metric: Metric, clip: Option<Clip>) -> AnswerTable {
    let mut builder = Builder::new(metric, N).clip(clip);
    for (at, answer) in case.answers.iter().enumerate() {
        builder
            .push(
                &format!("i{at}"),
                &Answer::parse(&answer.to_string(), &metric).unwrap(),
            )
            .unwrap();
    }
    builder.finish().unwrap()
}

fn score(table: &AnswerTable, metric: Metric, predictions: &Value) -> Score {
    let progress = Progress::default();
    let mut scorer = Scorer::new(table, metric, &progress);
    let read = prediction::read(predictions.to_string().as_bytes(), &mut scorer).unwrap();
    assert!(matches!(read, ControlFlow::Continue(())));
    scorer.finish().unwrap()
}

fn stored_items(score: &Score) -> StoredItems {
    let items = &score.items;
    let rights = if items.kind().has_right() {
        (0..items.len()).map(|item| items.is_right(item)).collect()
    } else {
        Vec::new()
    };
    StoredItems {
        values: (0..items.len()).map(|item| items.value(item)).collect(),
        rights,
    }
}

async fn submit_and_wait(client: &Client, suite_id: &str, predictions: &Value) -> Value {
    let job = client
        .post(
            "/v1/evals",
            &json!({"suite_id": suite_id, "predictions": predictions}),
        )
        .await
        .expect_status(202);
    client
        .wait_until_finished(&string(&job.body["id"]), &|_| {})
        .await
        .unwrap()
}

/// The adversary attacks the scorer, the policies and the comparisons without a server. The product
/// must therefore disclose exactly these figures, and no others.
#[tokio::test(flavor = "multi_thread")]
async fn product_discloses_only_attacked_figures() {
    let world = world().await;
    world.widen_plans().await;
    let key = world.key();
    for (at, case) in cases().iter().enumerate() {
        for (policy_at, policy_text) in ["exact", "rounded(2)", "ladder(0.05)"].iter().enumerate() {
            let name = format!("case-{at}-{policy_at}");
            let suite_toml = format!(
                "suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"{}\"\nrelease = \"{policy_text}\"\n{}\n",
                case.metric, case.more
            );
            let suite_id = publish_answers(&world, &name, &suite_toml, &case.answers)
                .await
                .unwrap();
            let (metric, policy): (Metric, DisclosurePolicy) =
                (case.metric.parse().unwrap(), policy_text.parse().unwrap());
            let clip = match case.metric {
                "rmse" => Clip::new(0.0, 20.0),
                "log_loss" => Clip::new(0.0, 5.0),
                _ => None,
            };
            let table = table(case, metric, clip);
            let ladder = if let DisclosurePolicy::Ladder(step) = policy {
                Ladder::for_suite(step, metric, clip, &table)
            } else {
                None
            };
            let mut level = 0;
            let mut jobs = Vec::new();
            let mut scores = Vec::new();
            for submission in &case.submissions {
                let line = |(at, value): (usize, &Value)| json!({"item_id": format!("i{at}"), "prediction": value});
                let predictions =
                    json!(submission.iter().enumerate().map(line).collect::<Vec<_>>());
                let job = submit_and_wait(&key, &suite_id, &predictions).await;
                let score = score(&table, metric, &predictions);
                let figures = policy
                    .disclose(
                        score.figures.clone(),
                        ladder.map(|ladder| (ladder, &mut level)),
                    )
                    .unwrap();
                let Figures {
                    value,
                    estimate,
                    metrics,
                    public_metrics: _,
                    clusters: _,
                    slices: _,
                    ceiling: _,
                    share_of_ceiling: _,
                    skill: _,
                } = figures;
                let r = &job["result"];
                let disclosed = json!([
                    r["value"],
                    r["stderr"],
                    r["ci95"],
                    r["ci_method"],
                    r["metrics"]
                ]);
                let stderr = estimate.map(|estimate| estimate.stderr);
                let ci95 = estimate.map(|estimate| estimate.ci95);
                assert_eq!(
                    disclosed,
                    json!([
                        value,
                        stderr,
                        ci95,
                        estimate.map(|estimate| estimate.method),
                        metrics
                    ]),
                    "{suite_toml}"
                );
                // An additional field would be a figure that the adversary does not attack.
                let fields: BTreeSet<&str> =
                    r.as_object().unwrap().keys().map(String::as_str).collect();
                let public = [
                    "hfm_sha",
                    "metric",
                    "n",
                    "n_missing",
                    "n_submitted",
                    "n_unmatched",
                    "release",
                    "suite_id",
                    "suite_version",
                ];
                let figures = ["value", "stderr", "ci95", "ci_method", "metrics"];
                let expected = public.into_iter().chain(figures).chain(["slices"]);
                assert_eq!(fields, expected.collect());
                // The suite has none. Otherwise `suite audit` counts each slice as one more figure.
                assert_eq!(r["slices"], json!([]));
                let trace = key
                    .get(&format!("/v1/jobs/{}/trace", string(&job["id"])))
                    .await
                    .unwrap()
                    .body
                    .to_string();
                assert!(
                    trace.matches("doubleValue").count() == 1
                        && trace.contains(&format!("\"doubleValue\":{}", json!(value))),
                    "{trace}"
                );
                jobs.push(job);
                scores.push((value, score));
            }
            let compared = key
                .post(
                    "/v1/comparisons",
                    &json!({"job_a": jobs[0]["id"], "job_b": jobs[1]["id"]}),
                )
                .await
                .unwrap();
            if !policy.allows_comparisons() {
                compared.expect_status(403);
                continue;
            }
            let [(value_a, a), (value_b, b)] = <[_; 2]>::try_from(scores).unwrap();
            let items_a = stored_items(&a);
            let items_b = stored_items(&b);
            let contribution = |stored_items: &StoredItems| {
                let mut figure = Aggregate::new(metric);
                figure.add(stored_items);
                figure.contribution()
            };
            let mut pairs = Pairs::new(metric);
            pairs.add(
                (&items_a, &contribution(&items_a)),
                (&items_b, &contribution(&items_b)),
                None,
            );
            let found = pairs.finish(value_a - value_b, point(metric, value_a, value_b), true);
            let (difference, found) = policy
                .disclose_difference(value_a - value_b, found)
                .unwrap();
            let c = &compared.body;
            assert_eq!(
                json!([
                    c["difference"],
                    c["stderr"],
                    c["ci95"],
                    c["p_value"],
                    c["n_differ"],
                    c["n_needed"]
                ]),
                json!([
                    difference,
                    found.stderr,
                    found.ci95,
                    found.p_value,
                    found.n_differ,
                    found.n_needed
                ]),
                "{suite_toml}"
            );
        }
    }
}

/// Returns 500 answers with two values, in a fixed pseudo-random order.
fn binary(metric: &str) -> Vec<Value> {
    let is_second = |at: usize| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 37) & 1 == 1;
    let answer = |at: usize| {
        if metric == "rmse" {
            json!(u8::from(is_second(at)))
        } else {
            json!(if is_second(at) { "b" } else { "a" })
        }
    };
    (0..500).map(answer).collect()
}

fn clip_of(metric: &str) -> Option<Clip> {
    match metric {
        "rmse" => Clip::new(0.0, 1.0),
        "log_loss" => Clip::new(0.0, 3.0),
        _ => None,
    }
}

fn audit(world: &World, folder: &std::path::Path) -> (Value, String) {
    let audit = std::process::Command::new(&world.stack.ground.binaries.api)
        .args(["suite", "audit"])
        .arg(folder)
        .output()
        .unwrap();
    let report_text = String::from_utf8(audit.stderr).unwrap();
    (
        serde_json::from_slice(&audit.stdout).unwrap_or_else(|_| panic!("{report_text}")),
        report_text,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_recommends_ladder_near_chance() {
    long_test!("attacks many ladders");
    let world = world().await;
    for metric in ["accuracy", "exact_match", "rmse", "log_loss"] {
        let clip = clip_of(metric).map_or_else(String::new, |clip| {
            format!("clip = [{:.1}, {:.1}]\n", clip.low, clip.high)
        });
        let suite_toml =
            format!("suite_id = \"suite:audited\"\nversion = \"1\"\nmetric = \"{metric}\"\n{clip}");
        let answers = binary(metric);
        let (report, report_text) = audit(
            &world,
            &write_suite(&world, &format!("audited-{metric}"), &suite_toml, &answers),
        );
        let chance = report["chance"].as_f64().unwrap();
        let recommended = &report["recommended"];
        let bound = recommended["known_at_most"].as_f64().unwrap();
        let cap = recommended["max_submissions"].as_u64().unwrap();
        assert!(
            chance < 0.55 && bound <= chance + 0.1 && cap >= 10,
            "{metric}: {recommended}"
        );
        // The answer share that the best attack knows after all allowed submissions.
        let (parsed, policy): (Metric, DisclosurePolicy) = (
            metric.parse().unwrap(),
            string(&recommended["release"]).parse().unwrap(),
        );
        let texts: Vec<String> = answers.iter().map(Value::to_string).collect();
        let item = |(at, answer): (usize, &String)| Item {
            item_id: format!("i{at}").into(),
            answer: Answer::parse(Box::leak(answer.clone().into_boxed_str()), &parsed).unwrap(),
            is_sealed: false,
        };
        let suite = Suite::new(
            parsed,
            clip_of(metric),
            policy,
            texts.iter().enumerate().map(item).collect(),
        )
        .unwrap();
        for seed in 0..5 {
            let caps = Caps {
                submissions: cap as u32,
                organizations: 1,
                comparisons_count: true,
                entries: 0,
            };
            let known = attack(&suite, caps, seed).known;
            assert!(known <= 0.6, "{metric}, seed {seed}: {known}");
        }
        // Exact figures: the report states the submission count, as JSON and as text.
        let exact = &report["policies"][0];
        let soon = exact["all_open_answers_known_after"].as_u64().unwrap();
        assert!((10..=40).contains(&soon), "{metric}: {soon}");
        assert!(
            report_text.contains(&format!(
                "an attacker knows every answer after {soon} submissions"
            )),
            "{report_text}"
        );
        let known: Vec<f64> = exact["attacks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|attack| attack["known"].as_f64().unwrap())
            .collect();
        assert_eq!(
            known[1..],
            [1.0, 1.0],
            "{metric}: after 50 and 500 submissions"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_prints_disclosure_and_warnings() {
    let world = world().await;
    let published = async |name: &str, more: &str| {
        let suite_toml = format!(
            "suite_id = \"suite:{name}\"\nversion = \"1\"\nmetric = \"exact_match\"\n{more}\n"
        );
        let folder = write_suite(&world, name, &suite_toml, &binary("exact_match"));
        world
            .stack
            .operate(&["suite", "publish", folder.to_str().unwrap()])
            .await
            .unwrap()["disclosure"]
            .clone()
    };
    let exact = published("exact", "max_submissions_per_day = 5").await;
    let warning = string(&exact["warnings"][0]);
    assert!(
        warning.contains("knows every answer after")
            && warning.contains("A daily cap does not change that"),
        "{warning}"
    );
    let ladder = published(
        "ladder",
        "release = \"ladder(0.1)\"\nmax_submissions = 16\naccess = \"granted\"",
    )
    .await;
    assert_eq!(
        (
            &ladder["ladder"]["step"],
            &ladder["all_open_answers_known_after"]
        ),
        (&json!(0.1), &Value::Null)
    );
    assert!(
        ladder["bound"]["known_at_most"].as_f64().unwrap() < 0.62,
        "{ladder}"
    );
    assert_eq!(ladder["warnings"], json!([]));
    let open_ended = published(
        "open-ended",
        "release = \"ladder(0.1)\"\naccess = \"granted\"",
    )
    .await;
    assert!(
        string(&open_ended["warnings"][0]).contains("without max_submissions"),
        "{open_ended}"
    );
    let sealed = published(
        "sealed",
        "release = \"sealed(0.5)\"\nseal_seed = \"s\"\ncloses_at = 2100-01-01T00:00:00Z",
    )
    .await;
    let warnings: Vec<String> = sealed["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(string)
        .collect();
    assert!(
        warnings[0].contains("stay hidden until the close")
            && warnings[1].contains("another email address"),
        "{warnings:?}"
    );
    // Publishing a large suite reads it once; the numbers are computed from its size.
    let answers: Vec<Value> = (0..20_000)
        .map(|at| json!(if at % 3 == 0 { "b" } else { "a" }))
        .collect();
    let folder = write_suite(
        &world,
        "large",
        "suite_id = \"suite:large\"\nversion = \"1\"\nmetric = \"log_loss\"\n",
        &answers,
    );
    let large = world
        .stack
        .operate(&["suite", "publish", folder.to_str().unwrap()])
        .await
        .unwrap()["disclosure"]
        .clone();
    assert!(
        (400..700).contains(&large["all_open_answers_known_after"].as_u64().unwrap()),
        "{large}"
    );
}
