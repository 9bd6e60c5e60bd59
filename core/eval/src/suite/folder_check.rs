//! The check of a folder before publication, and its warnings.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::answers::Answer;
use super::bad_suite::BadSuite;
use super::baselines::BaselineKind;
use super::board_mode::BoardMode;
use super::folder::SuiteFolder;
use super::folder_clusters::{averaged_clusters, sizes_of};
use crate::clusters::Average;
use crate::disclosure::DisclosurePolicy;
use crate::metric::Metric;

/// With fewer clusters, a board of ten entries separates no pair: the smallest p-value, 2^(1 − G), is
/// above 0.05/45.
const BOARD_CLUSTERS_MIN: usize = 11;

/// With fewer clusters that have a label, `f1_macro` may find differences between equal models too often.
/// On Swissmetro it does if 25 of 100 persons have the rarest label, and does not if 126 of 500 have it.
const LABEL_CLUSTERS_ENOUGH: usize = 100;

/// A folder that can be published, with what its publisher should know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FolderReport {
    /// The suite's id.
    pub suite_id: String,
    /// The version to publish.
    pub version: String,
    /// The metric of the value.
    pub metric: String,
    /// The number of items, open and sealed.
    pub n_items: usize,
    /// The number of sealed items.
    pub n_sealed: usize,
    /// The number of clusters; `None` if items are independent.
    pub n_clusters: Option<usize>,
    /// The baselines with their values over the open items.
    pub baselines: Vec<BaselineReport>,
    /// The warnings of [`SuiteFolder::lint`].
    pub warnings: Vec<String>,
}

/// A baseline, as its publisher sees it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BaselineReport {
    /// The name.
    pub name: String,
    /// The source of the predictions.
    pub kind: BaselineKind,
    /// The metric over the open items.
    pub value: f64,
    /// Open items without a prediction.
    pub n_missing: i64,
}

impl SuiteFolder {
    /// Checks what [`SuiteFolder::parse`] leaves out: that all answers fit into one table, and that a
    /// ladder has levels. Returns the warnings.
    pub fn check(&self) -> Result<FolderReport, BadSuite> {
        self.ladder(&self.open_answers()?)?;
        Ok(FolderReport {
            suite_id: self.suite_id.clone(),
            version: self.version.clone(),
            metric: self.metric.to_string(),
            n_items: self.items.len(),
            n_sealed: self.items.iter().filter(|item| item.is_sealed).count(),
            n_clusters: self.n_clusters,
            baselines: self
                .baselines
                .iter()
                .map(|baseline| BaselineReport {
                    name: baseline.name.clone(),
                    kind: baseline.kind,
                    value: baseline.score.figures.value,
                    n_missing: baseline.score.n_missing,
                })
                .collect(),
            warnings: self.lint()?,
        })
    }

    /// Returns what the publisher should know before publication, because a published version never
    /// changes. The folder is accepted nevertheless.
    pub fn lint(&self) -> Result<Vec<String>, BadSuite> {
        let candidates = self.cluster_candidates()?;
        let mut warnings = self.warnings.clone();
        warnings.extend(self.board_warning());
        warnings.extend(self.hidden_cluster_warning());
        warnings.extend(self.rare_label_warning());
        warnings.extend(candidates.iter().map(ToString::to_string));
        Ok(warnings)
    }

    /// Returns a warning if a board of ten entries has too few clusters to separate any pair.
    fn board_warning(&self) -> Option<String> {
        if self.n_clusters.is_none() || self.protection.board == BoardMode::Off {
            return None;
        }
        let has_sealed = self.items.iter().any(|item| item.is_sealed);
        // A board is over the sealed items, if there are any.
        let items = self
            .items
            .iter()
            .filter(|item| item.is_sealed == has_sealed);
        let n = match self.average {
            Average::Item => sizes_of(items).len(),
            Average::Cluster => averaged_clusters(items, self.metric).ok()?.len(),
        };
        (n < BOARD_CLUSTERS_MIN).then(|| {
            format!(
                "board: with {n} clusters, a board of ten entries cannot separate any pair; it needs {BOARD_CLUSTERS_MIN}"
            )
        })
    }

    /// Returns a warning if exact or rounded figures disclose hidden clusters.
    fn hidden_cluster_warning(&self) -> Option<String> {
        let figures = match self.protection.policy {
            DisclosurePolicy::Ladder(_) => return None,
            DisclosurePolicy::Exact => "the exact stderr",
            DisclosurePolicy::Rounded(_) => "the rounded stderr",
            DisclosurePolicy::Sealed(_) => "the stderr of the open items",
        };
        self.cluster_is_hidden.then(|| {
            format!(
                "cluster: the field is hidden, but {figures} of many submissions discloses over time which items belong together"
            )
        })
    }

    /// Returns a warning if the value gives a label the weight of the others, but few clusters have it.
    /// Only some of these have a right prediction of it, on which the interval and the tests depend.
    fn rare_label_warning(&self) -> Option<String> {
        if self.metric != Metric::F1Macro {
            return None;
        }
        let mut clusters: BTreeMap<String, HashSet<u32>> = BTreeMap::new();
        for item in &self.items {
            let answer = Answer::parse(item.answer.get(), &self.metric).ok()?;
            let Answer::Label(label) = answer else {
                return None;
            };
            let label = label.into_owned();
            clusters.entry(label).or_default().insert(item.cluster?);
        }
        let n = clusters.values().map(HashSet::len).min()?;
        (n < LABEL_CLUSTERS_ENOUGH).then(|| {
            format!(
                "only {n} clusters have the rarest label as answer; f1_macro gives it the weight of the others, so intervals are too \
                 short, and tests find differences between equal models too often"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the warnings of a suite with `n` persons of three items each.
    fn warnings(head: &str, n: usize, is_hidden: bool) -> Vec<String> {
        let (mut items, mut answers) = (String::new(), String::new());
        for at in 0..3 * n {
            let groups = format!(",\"groups\":{{\"person\":\"p{}\"}}", at % n);
            let [public, hidden] =
                [!is_hidden, is_hidden].map(|is_here| if is_here { &groups } else { "" });
            items += &format!("{{\"item_id\":\"i{at}\",\"input\":{{}}{public}}}\n");
            answers += &format!(
                "{{\"item_id\":\"i{at}\",\"answer\":\"{}\"{hidden}}}\n",
                at % 2
            );
        }
        let head = format!("suite_id = \"suite:s\"\nversion = \"1\"\n{head}");
        let head = if head.contains("metric") {
            head
        } else {
            format!("{head}metric = \"accuracy\"\n")
        };
        let folder = SuiteFolder::parse(&head, &items, &answers).unwrap();
        folder.check().unwrap().warnings
    }

    const CLUSTER: &str = "cluster = \"person\"\n";
    const SEALED: &str =
        "release = \"sealed(0.5)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-01T00:00:00Z\n";

    #[test]
    fn board_with_few_clusters_has_warning() {
        let has_warning = |more: &str, n: usize| {
            let found = warnings(&format!("{CLUSTER}{more}"), n, false);
            found.iter().any(|text| text.starts_with("board: "))
        };
        let live = "board = \"live\"\n";
        assert!(has_warning(live, 10));
        assert!(!has_warning(live, 11));
        assert!(!has_warning("", 10));
        // The board is over the sealed clusters.
        let sealed = format!("{SEALED}board = \"at_close\"\n");
        assert!(has_warning(&sealed, 20));
        assert!(!has_warning(&sealed, 22));
    }

    #[test]
    fn hidden_cluster_has_warning_unless_ladder() {
        let found = |more: &str, is_hidden: bool| {
            let found = warnings(&format!("{CLUSTER}{more}"), 80, is_hidden);
            assert!(found.len() <= 1, "{found:?}");
            found.first().cloned().unwrap_or_default()
        };
        assert!(found("", true).contains("but the exact stderr of many"));
        assert!(found("release = \"rounded(2)\"\n", true).contains("the rounded stderr"));
        assert!(found(SEALED, true).contains("the stderr of the open items"));
        assert_eq!(found("release = \"ladder(0.1)\"\n", true), "");
        assert_eq!(found("", false), "");
    }

    #[test]
    fn label_of_few_clusters_has_warning_with_f1_macro() {
        let found = |head: &str, n: usize| warnings(head, n, false);
        let macro_f1 = format!("metric = \"f1_macro\"\n{CLUSTER}");
        let few = found(&macro_f1, 60);
        assert_eq!(few.len(), 1);
        assert!(
            few[0].starts_with("only 30 clusters have the rarest label as answer"),
            "{few:?}"
        );
        assert_eq!(found(&macro_f1, 202), Vec::<String>::new());
        assert_eq!(found(CLUSTER, 60), Vec::<String>::new());
        let independent = "metric = \"f1_macro\"\ncluster = \"none\"\n";
        assert_eq!(found(independent, 60), Vec::<String>::new());
    }

    #[test]
    fn cluster_and_lint_warnings_are_together() {
        let few = warnings(CLUSTER, 12, false);
        assert!(few[0].contains("worth 12.0 equal ones"), "{few:?}");
        let undeclared = warnings("", 12, false);
        assert!(
            undeclared[0].starts_with("`person` has 12 values of 3.0 items."),
            "{undeclared:?}"
        );
        assert_eq!(
            warnings("cluster = \"none\"\n", 12, false),
            Vec::<String>::new()
        );
    }
}
