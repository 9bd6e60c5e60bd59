//! The verdict of `assay suite check`: what a publisher should know about a suite that can be published, in plain words.

use assay_audit::{Audit, AuditError, EXCESS_MAX};
use assay_eval::DisclosurePolicy;
use assay_eval::score::{best_trivial, trivial_submissions};
use assay_eval::suite::{
    Access, BadSuite, CandidateSource, ClusterCandidate, ClusterKey, SuiteFolder, Visibility,
};
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::Value;

/// One line of the verdict.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The fact.
    pub text: String,
    /// The publisher's need to act; `None` for a fact that is neither good nor bad.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

/// The publisher's need to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Ok,
    Warning,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
        }
    }

    /// Returns `Warning` if the publisher should do something.
    fn warning_if(is_warning: bool) -> Self {
        if is_warning { Self::Warning } else { Self::Ok }
    }
}

impl Line {
    fn new(text: impl Into<String>, status: impl Into<Option<Status>>) -> Self {
        Self {
            text: text.into(),
            status: status.into(),
        }
    }
}

/// Returns the verdict: items and metric, trivial submissions, disclosure, clusters and visibility.
///
/// # Errors
/// Returns the error for which the publication would refuse the suite.
pub fn verdict(suite: &SuiteFolder) -> Result<Vec<Line>, AuditError> {
    let mut lines = vec![items(suite), trivial(suite)?];
    lines.extend(suite.baselines.iter().map(|baseline| {
        let value = baseline.score.figures.value;
        Line::new(
            format!("the baseline {:?} reaches {value:.3}", baseline.name),
            None,
        )
    }));
    lines.push(disclosure(suite, &Audit::new(suite)?.summary()));
    lines.extend(clusters(suite)?);
    lines.push(visibility(suite));
    Ok(lines)
}

/// Returns the verdict as text, with the statuses below each other.
pub fn text(lines: &[Line]) -> String {
    let width = |line: &Line| line.text.chars().count();
    let widest = lines.iter().filter(|line| line.status.is_some());
    let widest = widest.map(width).max().unwrap_or(0);
    let lines: Vec<String> = lines
        .iter()
        .map(|line| match line.status {
            Some(status) => format!("{:<widest$}  {}", line.text, status.name()),
            None => line.text.clone(),
        })
        .collect();
    lines.join("\n")
}

fn count(n: usize) -> String {
    HumanCount(n as u64).to_string()
}

fn items(suite: &SuiteFolder) -> Line {
    // A folder in which an answer is missing is not read.
    let text = format!(
        "{} items, metric {}, answers complete",
        count(suite.items.len()),
        suite.metric
    );
    Line::new(text, Status::Ok)
}

fn trivial(suite: &SuiteFolder) -> Result<Line, BadSuite> {
    let submissions = trivial_submissions(&suite.open_answers()?, suite.metric);
    let text = match best_trivial(&submissions, suite.metric) {
        Some(best) => format!(
            "a model that knows nothing reaches {:.3} ({})",
            best.value, best.name
        ),
        None => "no submission without knowledge has a value".to_owned(),
    };
    Ok(Line::new(text, None))
}

/// Returns the line about `release`, from the summary of the audit.
fn disclosure(suite: &SuiteFolder, summary: &Value) -> Line {
    let protection = &suite.protection;
    let release = format!("release = \"{}\"", protection.policy);
    let known_after = match summary["all_open_answers_known_after"].as_u64() {
        Some(n) => HumanCount(n).to_string(),
        None => "some tens to hundreds of".to_owned(),
    };
    match protection.policy {
        DisclosurePolicy::Exact | DisclosurePolicy::Rounded(_) => Line::new(
            format!("{release}: {known_after} submissions disclose every answer"),
            Status::Warning,
        ),
        DisclosurePolicy::Sealed(_) => {
            let n_sealed = suite.items.iter().filter(|item| item.is_sealed).count();
            let closes_at = protection.closes_at.as_deref().unwrap_or_default();
            // `2027-01-31T12:00:00.000000Z`
            let closes_at = closes_at.get(..16).unwrap_or_default().replace('T', " ");
            let text = format!(
                "{release}: {} of {} answers stay sealed until {closes_at} UTC; {known_after} submissions disclose the others",
                count(n_sealed),
                count(suite.items.len())
            );
            Line::new(text, Status::Ok)
        }
        DisclosurePolicy::Ladder(_) => ladder(&release, summary),
    }
}

fn ladder(release: &str, summary: &Value) -> Line {
    let bound = &summary["bound"];
    let Some(submissions) = bound["submissions"].as_u64() else {
        let text =
            format!("{release} without max_submissions: each submission discloses more answers");
        return Line::new(text, Status::Warning);
    };
    let cap = format!("{release}, {} submissions", HumanCount(submissions));
    if let (Some(known), Some(chance)) =
        (bound["known_at_most"].as_f64(), summary["chance"].as_f64())
    {
        // Rounded up: it is a bound. The bound itself has four decimals.
        let percent = (known * 1e4).round() / 100.0;
        let text = format!(
            "{cap}: nobody can know more than {} % of the answers",
            percent.ceil()
        );
        return Line::new(text, Status::warning_if(known > chance + EXCESS_MAX));
    }
    let bits = bound["bits_per_item"].as_f64().unwrap_or(0.0);
    let text = format!("{cap}: they disclose at most {bits} bits about each answer");
    Line::new(text, Status::Ok)
}

fn clusters(suite: &SuiteFolder) -> Result<Vec<Line>, BadSuite> {
    let line = match (&suite.cluster, suite.n_clusters) {
        (Some(ClusterKey::Field(field)), n) => {
            let n = count(n.unwrap_or(0));
            format!(
                "{n} clusters by {field}: standard errors and comparisons take them into account"
            )
        }
        (Some(ClusterKey::Independent), _) => {
            "rows are independent, as cluster = \"none\" states".to_owned()
        }
        (None, _) => {
            let candidates = suite.cluster_candidates()?;
            if !candidates.is_empty() {
                let lines = candidates.iter().map(candidate);
                return Ok(lines.collect());
            }
            "no column suggests that rows depend on each other".to_owned()
        }
    };
    Ok(vec![Line::new(line, Status::Ok)])
}

fn candidate(candidate: &ClusterCandidate) -> Line {
    let n = count(candidate.n_values);
    let (values, remedy) = match &candidate.source {
        CandidateSource::Field(field) => (
            format!("{n} values of {field}"),
            format!("cluster = \"{field}\""),
        ),
        CandidateSource::OtherField(field) => (
            format!("{n} values of {field}"),
            "groups of each item, and cluster".to_owned(),
        ),
        CandidateSource::IdPrefix { example } => (
            format!("{n} starts of item ids such as {example:?}"),
            "groups of each item, and cluster".to_owned(),
        ),
    };
    let effect = candidate.stderr_ratio.map_or_else(String::new, |ratio| {
        format!(", design effect {:.1}", ratio * ratio)
    });
    let text = format!("rows do not look independent: {values}{effect}  →  {remedy}");
    Line::new(text, Status::Warning)
}

fn visibility(suite: &SuiteFolder) -> Line {
    let seen = match suite.visibility {
        None => "private without visibility: only your organization and granted ones see it",
        Some(Visibility::Private) => "private: only your organization and granted ones see it",
        Some(Visibility::Listed) => "listed: every organization sees it",
        Some(Visibility::Public) => {
            "public: everybody sees it, also without an account; an owner publishes it"
        }
    };
    // Those who see a private suite have a grant, which also lets them submit.
    let submits = match (suite.visibility, suite.protection.access) {
        (None | Some(Visibility::Private), _) => "",
        (_, Access::Everyone) => "; every organization may submit",
        (_, Access::VerifiedDomain) => "; organizations with a verified domain may submit",
        (_, Access::Granted) => "; granted organizations may submit",
    };
    Line::new(format!("{seen}{submits}"), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the verdict about 200 persons with 10 answers each, of which 106 persons always give the first one.
    fn texts(keys: &str) -> Vec<(String, Option<Status>)> {
        let head =
            format!("suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\n{keys}");
        let (mut items, mut answers) = (String::new(), String::new());
        for at in 0..2_000 {
            let person = at % 200;
            let answer = if person < 106 { "a" } else { "b" };
            let groups = format!("\"groups\":{{\"person\":\"p{person}\"}}");
            items += &format!("{{\"item_id\":\"i{at}\",\"input\":{{}},{groups}}}\n");
            answers += &format!("{{\"item_id\":\"i{at}\",\"answer\":\"{answer}\"}}\n");
        }
        let suite = SuiteFolder::parse(&head, &items, &answers).unwrap();
        let lines = verdict(&suite).unwrap();
        lines
            .into_iter()
            .map(|line| (line.text, line.status))
            .collect()
    }

    fn line(text: &str, status: impl Into<Option<Status>>) -> (String, Option<Status>) {
        (text.to_owned(), status.into())
    }

    #[test]
    fn verdict_has_five_lines() {
        assert_eq!(
            texts("release = \"ladder(0.1)\"\nmax_submissions = 16\nvisibility = \"private\"\n"),
            [
                line("2,000 items, metric accuracy, answers complete", Status::Ok),
                line(
                    "a model that knows nothing reaches 0.530 (most frequent answers)",
                    None
                ),
                line(
                    "release = \"ladder(0.1)\", 16 submissions: nobody can know more than 58 % of the answers",
                    Status::Ok
                ),
                line(
                    "rows do not look independent: 200 values of person, design effect 10.1  →  cluster = \"person\"",
                    Status::Warning
                ),
                line(
                    "private: only your organization and granted ones see it",
                    None
                ),
            ]
        );
    }

    #[test]
    fn each_policy_has_its_own_line() {
        let sealed =
            "release = \"sealed(0.5)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-31T12:30:00+01:00\n";
        for (keys, text, status) in [
            (
                "",
                "release = \"exact\": 44 submissions disclose every answer",
                Status::Warning,
            ),
            (
                "release = \"ladder(0.1)\"\n",
                "release = \"ladder(0.1)\" without max_submissions: each submission discloses more answers",
                Status::Warning,
            ),
            (
                "release = \"ladder(0.01)\"\nmax_submissions = 1000\n",
                "release = \"ladder(0.01)\", 1,000 submissions: nobody can know more than 75 % of the answers",
                Status::Warning,
            ),
            (
                sealed,
                "release = \"sealed(0.5)\": 1,000 of 2,000 answers stay sealed until 2030-01-31 11:30 UTC; 44 submissions disclose the others",
                Status::Ok,
            ),
        ] {
            assert_eq!(texts(keys)[2], line(text, status));
        }
    }

    #[test]
    fn statements_about_clusters_and_visibility_are_repeated() {
        for (keys, text) in [
            (
                "cluster = \"person\"\n",
                "200 clusters by person: standard errors and comparisons take them into account",
            ),
            (
                "cluster = \"none\"\n",
                "rows are independent, as cluster = \"none\" states",
            ),
        ] {
            assert_eq!(texts(keys)[3], line(text, Status::Ok));
        }
        for (keys, text) in [
            (
                "",
                "private without visibility: only your organization and granted ones see it",
            ),
            (
                "visibility = \"listed\"\naccess = \"granted\"\n",
                "listed: every organization sees it; granted organizations may submit",
            ),
            (
                "visibility = \"public\"\n",
                "public: everybody sees it, also without an account; an owner publishes it; every organization may submit",
            ),
        ] {
            assert_eq!(texts(keys)[4], line(text, None));
        }
    }

    #[test]
    fn statuses_are_below_each_other() {
        let lines = [
            Line::new("short", Status::Ok),
            Line::new("a longer line without a status", None),
            Line::new("longer", Status::Warning),
        ];
        assert_eq!(
            text(&lines),
            "short   ok\na longer line without a status\nlonger  warning"
        );
    }
}
