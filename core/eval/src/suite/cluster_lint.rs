//! The lint of clusters: fields by which the items of a suite look dependent.

use std::collections::HashMap;
use std::fmt;

use super::bad_suite::BadSuite;
use super::column_names::has_word;
use super::folder::SuiteFolder;
use super::groups::{GroupField, GroupLabels};
use super::item_columns::{Column, MISSING, columns, id_prefix, id_prefixes};
use super::lines::FolderItem;
use crate::clusters::Clusters;
use crate::metric::Metric;
use crate::score::{AnswerTable, best_trivial, trivial_submissions};

/// The smallest share of the items that have a candidate, in percent.
const PRESENT_MIN: usize = 95;

/// The fewest values of a candidate.
const VALUES_MIN: usize = 10;

/// The fewest items per value, on average.
const ITEMS_PER_VALUE_MIN: usize = 2;

/// The largest share of a value, in percent of the items.
const VALUE_SHARE_MAX: usize = 20;

/// The smallest share of the items that share their value with another, in percent.
const SHARED_MIN: usize = 90;

/// The fewest other fields that a candidate without a telling name determines.
const DETERMINED_MIN: usize = 2;

/// The words of a name that make a field a candidate.
const WORDS: [&str; 13] = [
    "id",
    "person",
    "participant",
    "subject",
    "respondent",
    "user",
    "customer",
    "worker",
    "rater",
    "student",
    "patient",
    "household",
    "session",
];

/// A field, or the prefix of the item ids, by which items may be dependent.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterCandidate {
    /// The place of the candidate.
    pub source: CandidateSource,
    /// The number of values.
    pub n_values: usize,
    /// The number of items for each value, on average.
    pub items_per_value: f64,
    /// The standard error by the candidate, divided by that for independent items, of the best trivial
    /// submission. `None` if no trivial submission has a standard error.
    pub stderr_ratio: Option<f64>,
}

/// A field, or the prefix of the item ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CandidateSource {
    /// A field that `cluster` can name.
    Field(String),
    /// A field that `cluster` cannot name: some items lack it, or its values are no accepted ones.
    OtherField(String),
    /// The start of the item ids. The example is an item id.
    IdPrefix {
        /// The first item id that has a prefix.
        example: String,
    },
}

impl fmt::Display for ClusterCandidate {
    /// Writes the warning for the publisher.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            source,
            n_values,
            items_per_value,
            stderr_ratio,
        } = self;
        match source {
            CandidateSource::Field(field) | CandidateSource::OtherField(field) => {
                write!(f, "`{field}` has")?;
            }
            CandidateSource::IdPrefix { example } => {
                let prefix = id_prefix(example).unwrap_or_default();
                write!(
                    f,
                    "The start of the item ids, such as {prefix:?} of {example:?}, has"
                )?;
            }
        }
        write!(f, " {n_values} values of {items_per_value:.1} items.")?;
        if let Some(ratio) = stderr_ratio {
            write!(
                f,
                " The standard error of the trivial submission is {ratio:.2} times "
            )?;
            f.write_str(if *ratio > 1.0 {
                "larger by it."
            } else {
                "as large by it, but that of a model can be larger."
            })?;
        }
        match source {
            CandidateSource::Field(field) => write!(f, " Set `cluster = \"{field}\"`")?,
            CandidateSource::OtherField(_) | CandidateSource::IdPrefix { .. } => write!(
                f,
                " Write it into `groups` of each item and name that field in `cluster`"
            )?,
        }
        f.write_str(", or `cluster = \"none\"` if its items are independent.")
    }
}

impl SuiteFolder {
    /// Returns the fields by which the items of this suite look dependent, and the prefix of the item ids
    /// if it does. There are none if the suite has the key `cluster`.
    ///
    /// A candidate is a scalar field of the input, at most two levels deep, a group field, or the item
    /// ids' prefix up to the last `/`, `:`, `#`, `.`, `_` or `-`. At least 95 % of the items have it.
    /// Among these, it has at least 10 values and on average 2 items for each, none with more than 20 % of
    /// the items, and at least 90 % of the items share their value with another. A field also needs a
    /// telling word in its innermost name, or it determines at least two other fields: they are constant
    /// for each of its values, but not for all items.
    ///
    /// # Errors
    /// If the answers do not fit into one table.
    pub fn cluster_candidates(&self) -> Result<Vec<ClusterCandidate>, BadSuite> {
        if self.cluster.is_some() {
            return Ok(Vec::new());
        }
        let found = dependent_items(&self.items);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let mut table = self.answers(|_| true)?;
        let candidates = found.into_iter().map(|(source, labels)| {
            let Labels {
                by_item,
                n_values,
                n_items,
            } = labels;
            table.set_clusters(clusters(by_item, n_values));
            ClusterCandidate {
                source,
                n_values,
                items_per_value: n_items as f64 / n_values as f64,
                stderr_ratio: trivial_stderr_ratio(&table, self.metric),
            }
        });
        Ok(candidates.collect())
    }
}

/// Returns the candidates that fulfil all conditions, with the items' labels.
fn dependent_items(items: &[FolderItem]) -> Vec<(CandidateSource, Labels)> {
    let columns = columns(items);
    let is_candidate = |at: usize, labels: &Labels| {
        let others = columns[..at].iter().chain(&columns[at + 1..]);
        has_telling_word(&columns[at].name)
            || others
                .filter(|other| labels.determine(&other.values))
                .nth(DETERMINED_MIN - 1)
                .is_some()
    };
    let mut found: Vec<(CandidateSource, Labels)> = columns
        .iter()
        .enumerate()
        .filter_map(|(at, column)| {
            let labels = Labels::new(&column.values)?;
            is_candidate(at, &labels).then(|| (source(column, items), labels))
        })
        .collect();
    let mut item_ids = items.iter().map(|item| item.item_id.as_str());
    if let Some(labels) = Labels::new(&id_prefixes(items))
        && let Some(example) = item_ids.find(|item_id| id_prefix(item_id).is_some())
    {
        let example = example.to_owned();
        found.push((CandidateSource::IdPrefix { example }, labels));
    }
    found
}

/// Returns the source of a field: `cluster` can name it if it accepts the values of all items.
fn source(column: &Column, items: &[FolderItem]) -> CandidateSource {
    let mut labels = GroupLabels::default();
    let mut is_accepted =
        |field: &GroupField, item: &FolderItem| item.label(field, &mut labels).is_ok();
    let name = column.field.clone();
    match name.parse() {
        Ok(field) if items.iter().all(|item| is_accepted(&field, item)) => {
            CandidateSource::Field(name)
        }
        _ => CandidateSource::OtherField(name),
    }
}

/// The label of an item without the field.
const UNLABELED: u32 = u32::MAX;

/// The items with one value of a field have one label.
struct Labels {
    by_item: Vec<u32>,
    n_values: usize,
    /// The number of items that have the field.
    n_items: usize,
}

impl Labels {
    /// Returns the labels of a column whose number and sizes of groups may be those of clusters.
    fn new(values: &[u64]) -> Option<Self> {
        let n_items = values.iter().filter(|value| **value != MISSING).count();
        if n_items * 100 < values.len() * PRESENT_MIN {
            return None;
        }
        let mut by_item = Vec::with_capacity(values.len());
        let mut labels: HashMap<u64, u32> = HashMap::new();
        let mut sizes: Vec<usize> = Vec::new();
        for value in values {
            if *value == MISSING {
                by_item.push(UNLABELED);
                continue;
            }
            let label = *labels.entry(*value).or_insert_with(|| {
                sizes.push(0);
                sizes.len() as u32 - 1
            });
            sizes[label as usize] += 1;
            // Most fields of large suites are not candidates and end here.
            if sizes.len() * ITEMS_PER_VALUE_MIN > n_items {
                return None;
            }
            by_item.push(label);
        }
        let largest = sizes.iter().copied().max().unwrap_or_default();
        let n_shared: usize = sizes.iter().filter(|size| **size > 1).sum();
        let is_possible = sizes.len() >= VALUES_MIN
            && largest * 100 <= n_items * VALUE_SHARE_MAX
            && n_shared * 100 >= n_items * SHARED_MIN;
        is_possible.then_some(Self {
            by_item,
            n_values: sizes.len(),
            n_items,
        })
    }

    /// Returns `true` if another field is constant for each label, but not for all items that have one.
    fn determine(&self, other: &[u64]) -> bool {
        let mut by_label: Vec<Option<u64>> = vec![None; self.n_values];
        let mut first = None;
        let mut is_varying = false;
        for (label, value) in self.by_item.iter().zip(other) {
            if *label == UNLABELED {
                continue;
            }
            if *by_label[*label as usize].get_or_insert(*value) != *value {
                return false;
            }
            is_varying |= *first.get_or_insert(*value) != *value;
        }
        is_varying
    }
}

/// Returns the clusters by these labels. Each item without a label is a cluster of its own.
fn clusters(by_item: Vec<u32>, n_values: usize) -> Clusters {
    let mut next = n_values as u32;
    Clusters::from_labels(by_item.into_iter().map(|label| {
        if label == UNLABELED {
            next += 1;
            next
        } else {
            label
        }
    }))
}

/// Returns the standard error by cluster, divided by that for independent items, of the best trivial
/// submission that has both.
fn trivial_stderr_ratio(table: &AnswerTable, metric: Metric) -> Option<f64> {
    let mut submissions = trivial_submissions(table, metric);
    submissions.retain(|submission| submission.design_effect.is_some());
    let effect = best_trivial(&submissions, metric)?.design_effect?;
    Some(effect.sqrt())
}

/// Returns `true` if a name contains one of [`WORDS`].
fn has_telling_word(name: &str) -> bool {
    has_word(name, &WORDS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const HEAD: &str = "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\n";

    /// Returns a suite with these lines of items, whose ids are `i0`, `i1` and so on unless a line
    /// has another. The answers are `a`, `a`, `b`, `a`, `a`, `b` and so on.
    fn suite(head: &str, lines: impl Iterator<Item = Value>) -> SuiteFolder {
        let (mut items, mut answers) = (String::new(), String::new());
        for (at, mut line) in lines.enumerate() {
            if line["item_id"].is_null() {
                line["item_id"] = format!("i{at}").into();
            }
            let answer = ["a", "a", "b"][at % 3];
            answers += &format!(
                "{}\n",
                json!({"item_id": line["item_id"], "answer": answer})
            );
            items += &format!("{line}\n");
        }
        SuiteFolder::parse(head, &items, &answers).unwrap()
    }

    /// Returns the sources of the candidates.
    fn sources(lines: impl Iterator<Item = Value>) -> Vec<CandidateSource> {
        let candidates = suite(HEAD, lines).cluster_candidates().unwrap();
        candidates.into_iter().map(|found| found.source).collect()
    }

    fn field(name: &str) -> Vec<CandidateSource> {
        vec![CandidateSource::Field(name.into())]
    }

    /// Returns the value of each item if the values have these numbers of items.
    fn values(sizes: impl IntoIterator<Item = usize>) -> impl Iterator<Item = usize> {
        let sizes = sizes.into_iter().enumerate();
        sizes.flat_map(|(value, size)| std::iter::repeat_n(value, size))
    }

    #[test]
    fn sizes_of_candidate_are_bounded() {
        let is_found = |sizes: &[usize]| {
            let lines =
                values(sizes.iter().copied()).map(|value| json!({"input": {"person": value}}));
            let found = sources(lines);
            assert!(found.is_empty() || found == field("input.person"));
            !found.is_empty()
        };
        // At least ten values.
        assert!(is_found(&[3; 10]));
        assert!(!is_found(&[3; 9]));
        // At least two items for each value on average, although nine of ten items share theirs.
        assert!(is_found(&[2; 10]));
        let with_alone = |n_alone: usize| [vec![2; 27], vec![1; n_alone]].concat();
        assert!(!is_found(&with_alone(3)));
        // At most a fifth of the items has one value.
        assert!(is_found(&[vec![8; 10], vec![20]].concat()));
        assert!(!is_found(&[vec![8; 9], vec![7, 21]].concat()));
        // Nine of ten items share their value.
        assert!(is_found(&[vec![9; 10], vec![1; 10]].concat()));
        assert!(!is_found(&[vec![9; 9], vec![8], vec![1; 11]].concat()));
    }

    #[test]
    fn candidate_is_in_most_items() {
        let with_missing = |n_missing: usize| {
            sources((0..100).map(move |at| {
                let person = if at < n_missing {
                    Value::Null
                } else {
                    json!(at % 20)
                };
                json!({"input": {"person": person}})
            }))
        };
        assert_eq!(with_missing(0), field("input.person"));
        let other = vec![CandidateSource::OtherField("input.person".into())];
        assert_eq!(with_missing(5), other);
        assert_eq!(with_missing(6), []);
    }

    #[test]
    fn name_has_a_telling_word() {
        for name in [
            "ID",
            "id",
            "user_id",
            "userID",
            "UserId",
            "personKey",
            "rater-name",
            "XMLSession",
            "is_student",
        ] {
            assert!(has_telling_word(name), "{name}");
        }
        for name in [
            "ids", "userid", "idea", "width", "persons", "IDs", "age", "", "_",
        ] {
            assert!(!has_telling_word(name), "{name}");
        }
        // Only the innermost name counts.
        let nested = |outer: &str, inner: &str| {
            sources((0..40).map(|at| json!({"input": {outer: {inner: at % 20}}})))
        };
        assert_eq!(nested("user", "age"), []);
        assert_eq!(nested("about", "user"), field("input.about.user"));
    }

    #[test]
    fn candidate_determines_two_other_fields() {
        // `key` has 20 values. Each other field has a rule by key and item.
        let found = |rules: &[fn(usize, usize) -> usize]| {
            sources((0..60).map(|at| {
                let key = at % 20;
                let mut input = json!({"key": key});
                for (name, rule) in ["v", "w", "x"].into_iter().zip(rules) {
                    input[name] = rule(key, at).into();
                }
                json!({"input": input})
            }))
        };
        let by_key: fn(usize, usize) -> usize = |key, _| key % 4;
        let half: fn(usize, usize) -> usize = |key, _| key / 10;
        let constant: fn(usize, usize) -> usize = |_, _| 1;
        let varying: fn(usize, usize) -> usize = |_, at| at / 20;
        assert_eq!(found(&[by_key, half]), field("input.key"));
        assert_eq!(found(&[by_key, varying, half]), field("input.key"));
        assert_eq!(found(&[by_key]), []);
        assert_eq!(found(&[by_key, constant]), []);
        assert_eq!(found(&[by_key, varying]), []);
    }

    #[test]
    fn scalars_to_depth_of_two_are_fields() {
        let found =
            |input: fn(usize) -> Value| sources((0..40).map(|at| json!({"input": input(at % 20)})));
        assert_eq!(found(|p| json!({"id": p.to_string()})), field("input.id"));
        assert_eq!(found(|p| json!({"a": {"id": p}})), field("input.a.id"));
        assert_eq!(found(|p| json!({"a": {"b": {"id": p}}})), []);
        assert_eq!(found(|p| json!({"id": [p], "a": [{"id": p}]})), []);
        // `cluster` accepts neither fractions nor names with a dot.
        for (input, name) in [
            (
                (|p| json!({"id": p as f64 + 0.5})) as fn(usize) -> Value,
                "input.id",
            ),
            (|p| json!({"x.id": p}), "input.x.id"),
        ] {
            assert_eq!(found(input), [CandidateSource::OtherField(name.into())]);
        }
    }

    #[test]
    fn group_fields_and_id_prefixes_are_candidates() {
        let lines = (0..40).map(|at| {
            json!({"input": {}, "groups": {"rater": format!("r{}", at % 20), "city": format!("c{}", at % 20)}})
        });
        assert_eq!(sources(lines), field("rater"));
        let by_id = |id: fn(usize, usize) -> String| {
            sources((0..40).map(|at| json!({"item_id": id(at % 20, at), "input": {}})))
        };
        let prefix = |example: &str| {
            let example = example.to_owned();
            [CandidateSource::IdPrefix { example }]
        };
        assert_eq!(by_id(|p, at| format!("p{p}/{at}")), prefix("p0/0"));
        assert_eq!(by_id(|p, at| format!("a-{p}:{at}")), prefix("a-0:0"));
        assert_eq!(by_id(|p, at| format!("a.{p}#{at}")), prefix("a.0#0"));
        assert_eq!(by_id(|p, at| format!("{p}.{at}")), prefix("0.0"));
        assert_eq!(by_id(|p, at| format!("{p}_{at}")), prefix("0_0"));
        assert_eq!(by_id(|p, at| format!("{p}-{at}")), prefix("0-0"));
        assert_eq!(by_id(|p, at| format!("{p}+{at}")), []);
        assert_eq!(by_id(|_, at| format!("-{at}")), []);
        assert_eq!(by_id(|_, at| format!("all-{at}")), []);
    }

    #[test]
    fn hidden_group_field_is_candidate() {
        let lines = |key: &str, value: &dyn Fn(usize) -> Value| -> String {
            let line = |at: usize| {
                let mut line = json!({"item_id": format!("i{at}"), key: value(at)});
                if key == "answer" {
                    line["groups"] = json!({"subject": format!("s{}", at % 20)});
                }
                format!("{line}\n")
            };
            (0..40).map(line).collect()
        };
        let (items, answers) = (
            lines("input", &|_| json!({})),
            lines("answer", &|at| json!(if at < 15 { "a" } else { "b" })),
        );
        let folder = SuiteFolder::parse(HEAD, &items, &answers).unwrap();
        let found = folder.cluster_candidates().unwrap();
        assert_eq!(found[0].source, CandidateSource::Field("subject".into()));
    }

    #[test]
    fn declared_key_silences_lint() {
        let n_found = |head: &str| {
            let lines = (0..40).map(|at| json!({"input": {"id": at % 20, "user": at % 20}}));
            suite(&format!("{HEAD}{head}"), lines)
                .cluster_candidates()
                .unwrap()
                .len()
        };
        assert_eq!(n_found(""), 2);
        assert_eq!(n_found("cluster = \"none\""), 0);
        assert_eq!(n_found("cluster = \"input.id\""), 0);
    }

    #[test]
    fn ratio_is_that_of_trivial_submission() {
        // 30 persons have three items each with one answer: `a` for 20 persons, `b` for ten.
        let lines = (0..90).map(|at| json!({"input": {"person": at % 30}}));
        let folder = suite(HEAD, lines);
        let found = folder.cluster_candidates().unwrap();
        // U_g is 3·(1 − 2/3) for 20 persons and −3·2/3 for ten, and n_eff is 90 for independent items.
        let clustered: f64 = 30.0 / 29.0 * (20.0 + 10.0 * 4.0) / (90.0 * 90.0);
        let independent: f64 = 2.0 / 9.0 / 90.0;
        let ratio = found[0].stderr_ratio.unwrap();
        assert!(
            (ratio - (clustered / independent).sqrt()).abs() < 1e-12,
            "{ratio}"
        );
        assert_eq!(
            found[0].to_string(),
            "`input.person` has 30 values of 3.0 items. The standard error of the trivial submission is 1.76 times larger \
             by it. Set `cluster = \"input.person\"`, or `cluster = \"none\"` if its items are independent."
        );
        // An item without a person is a cluster of its own.
        let lines = (0..93).map(|at| json!({"input": {"person": (at < 90).then_some(at % 30)}}));
        let found = suite(HEAD, lines).cluster_candidates().unwrap();
        let share: f64 = 62.0 / 93.0;
        let squares = |size: f64| size * size;
        let sum = 20.0 * squares(3.0 * (1.0 - share))
            + 10.0 * squares(3.0 * share)
            + 2.0 * squares(1.0 - share)
            + squares(share);
        let clustered = 33.0 / 32.0 * sum / squares(93.0);
        let independent = share * (1.0 - share) / 93.0;
        let ratio = found[0].stderr_ratio.unwrap();
        assert!(
            (ratio - (clustered / independent).sqrt()).abs() < 1e-12,
            "{ratio}"
        );
        assert_eq!((found[0].n_values, found[0].items_per_value), (30, 3.0));
        assert!(
            found[0]
                .to_string()
                .contains("Write it into `groups` of each item and name")
        );
    }

    #[test]
    fn ratio_is_left_out_if_undefined() {
        let mut items = String::new();
        let mut answers = String::new();
        for at in 0..40 {
            items += &format!("{{\"item_id\": \"p{}-{at}\", \"input\": {{}}}}\n", at % 20);
            answers += &format!("{{\"item_id\": \"p{}-{at}\", \"answer\": {at}}}\n", at % 20);
        }
        let head = HEAD.replace("accuracy", "spearman");
        let folder = SuiteFolder::parse(&head, &items, &answers).unwrap();
        let found = folder.cluster_candidates().unwrap();
        assert_eq!(
            found[0].to_string(),
            "The start of the item ids, such as \"p0\" of \"p0-0\", has 20 values of 2.0 items. Write it into `groups` of each \
             item and name that field in `cluster`, or `cluster = \"none\"` if its items are independent."
        );
    }
}
