//! The key `average` of `suite.toml`.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::clusters::Average;
use crate::{content, offline};

/// A suite of persons with four items each.
struct Folder {
    head: String,
    n_persons: usize,
    /// The answer of a person's item, as JSON.
    answer: fn(person: usize, item: usize) -> String,
    /// The number of persons in the first one of two groups.
    n_group: usize,
}

impl Folder {
    fn new(metric: &str, more: &str) -> Self {
        Self {
            head: format!(
                "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\ncluster = \"person\"\n{more}"
            ),
            n_persons: 40,
            answer: |person, item| match item {
                0 => "\"x\"".into(),
                _ => format!("\"{}\"", ["y", "z"][person % 2]),
            },
            n_group: 20,
        }
    }

    fn numbers(more: &str) -> Self {
        Self {
            // Each third person has the same answer four times.
            answer: |person, item| (person % 3).min(1).wrapping_mul(item).to_string(),
            ..Self::new("spearman", more)
        }
    }

    fn lines(&self) -> [String; 2] {
        let mut lines = [String::new(), String::new()];
        for person in 0..self.n_persons {
            let group = if person < self.n_group { "a" } else { "b" };
            for item in 0..4 {
                let item_id = format!("p{person:02}-{item}");
                let groups = format!("{{\"person\":\"p{person}\",\"group\":\"{group}\"}}");
                let answer = (self.answer)(person, item);
                lines[0] +=
                    &format!("{{\"item_id\":\"{item_id}\",\"input\":{{}},\"groups\":{groups}}}\n");
                lines[1] += &format!("{{\"item_id\":\"{item_id}\",\"answer\":{answer}}}\n");
            }
        }
        lines
    }

    fn read(&self) -> Result<SuiteFolder, String> {
        let [items, answers] = self.lines();
        let read = SuiteFolder::parse(&self.head, &items, &answers);
        read.map_err(|error| error.to_string())
    }

    /// Writes the files, calls `with_path` with their folder, and deletes them.
    fn written<T>(&self, with_path: impl FnOnce(&PathBuf) -> T) -> T {
        let name = format!("{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(format!("assay-average-{name}"));
        fs::create_dir_all(&path).unwrap();
        let [items, answers] = self.lines();
        let files = [
            ("suite.toml", &self.head),
            ("items.ndjson", &items),
            ("answers.ndjson", &answers),
        ];
        for (file, text) in files {
            fs::write(path.join(file), text).unwrap();
        }
        let found = with_path(&path);
        fs::remove_dir_all(path).unwrap();
        found
    }
}

const AVERAGE: &str = "average = \"cluster\"\n";

const SEALED: &str =
    "release = \"sealed(0.5)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-01T00:00:00Z\n";

#[test]
fn digest_covers_average() {
    let read = |more: &str| Folder::new("accuracy", more).read().unwrap();
    let [absent, item, cluster] = ["", "average = \"item\"\n", AVERAGE].map(read);
    let averages = [&absent, &item, &cluster].map(|folder| folder.average);
    assert_eq!(averages, [Average::Item, Average::Item, Average::Cluster]);
    assert_eq!(absent.content_sha256, item.content_sha256);
    assert_ne!(absent.content_sha256, cluster.content_sha256);
}

#[test]
fn clusters_without_defined_metric_do_not_count() {
    let by_item = Folder::numbers("").read().unwrap();
    assert_eq!(by_item.n_clusters, Some(40));
    let by_cluster = Folder::numbers(AVERAGE).read().unwrap();
    assert_eq!(by_cluster.n_clusters, Some(26));
    let expected = "the value is an average over 26 of 40 clusters of the items; spearman is not defined for the answers of the others; \
                    intervals are wide, and those of unbounded losses cover less than 95 %";
    assert_eq!(by_cluster.warnings, [expected]);
    // A score leaves out the same clusters.
    let predictions: String = (by_cluster.items.iter().enumerate())
        .map(|(at, item)| format!("{{\"item_id\":{:?},\"prediction\":{at}}}\n", item.item_id))
        .collect();
    let table = by_cluster.open_answers().unwrap();
    let (content, format) = content::open(predictions.as_bytes(), "p.ndjson").unwrap();
    let report = offline::score(&table, by_cluster.metric, content, format).unwrap();
    assert_eq!((report.n_clusters, report.value), (Some(26), 1.0));
    let sealed = Folder {
        n_persons: 80,
        ..Folder::numbers(&format!("{AVERAGE}{SEALED}"))
    };
    let sealed = sealed.read().unwrap();
    assert_eq!(sealed.n_clusters, Some(53));
    assert_eq!(sealed.warnings.len(), 2, "{:?}", sealed.warnings);
    let means = Folder::new("mrr@3", AVERAGE).read().unwrap();
    assert_eq!((means.n_clusters, means.warnings.len()), (Some(40), 0));
}

#[test]
fn wrong_average_is_rejected_with_line() {
    let rejected = |folder: &Folder, expected: &str| {
        let error = folder.read().err().unwrap();
        assert!(error.contains(expected), "{error}");
    };
    for wrong in ["", "Cluster", "person", "none"] {
        let folder = Folder::new("accuracy", &format!("average = \"{wrong}\"\n"));
        let expected = "suite.toml:5: average: must be \"item\" or \"cluster\"";
        rejected(&folder, expected);
    }
    rejected(
        &Folder::new("accuracy", "average = 1\n"),
        "suite.toml:5: average: must be a string in quotes",
    );
    for metric in [
        "f1_macro",
        "f1_micro",
        "balanced_accuracy",
        "mcc",
        "kappa",
        "auc_ovr",
        "ece@15",
    ] {
        let expected = format!(
            "suite.toml:5: average: {metric} cannot be averaged over clusters; write average = \"item\", or choose"
        );
        rejected(&Folder::new(metric, AVERAGE), &expected);
    }
    let mut folder = Folder::new("accuracy", AVERAGE);
    folder.head = folder.head.replace("cluster = \"person\"\n", "");
    let expected = "suite.toml:4: average: there are no clusters to average; name their group field in cluster";
    rejected(&folder, expected);
    let mut folder = Folder::new("accuracy", AVERAGE);
    folder.head = folder.head.replace("\"person\"", "\"none\"");
    let expected = "suite.toml:5: average: with cluster = \"none\" there are no clusters to average; name a group";
    rejected(&folder, expected);
}

#[test]
fn ccc_and_r2_cannot_average_clusters() {
    let read = |metric: &str, more: &str| {
        Folder {
            answer: |person, item| (person % 3 + item).to_string(),
            ..Folder::new(metric, more)
        }
        .read()
        .map(|folder| folder.n_clusters)
    };
    for metric in ["pearson", "kendall"] {
        assert_eq!(read(metric, AVERAGE), Ok(Some(40)));
    }
    for metric in ["ccc", "r2"] {
        assert_eq!(read(metric, ""), Ok(Some(40)));
        let error = read(metric, AVERAGE).unwrap_err();
        let expected = format!("suite.toml:5: average: {metric} cannot be averaged over clusters");
        assert!(error.starts_with(&expected), "{error}");
    }
}

#[test]
fn unbounded_r2_has_no_ladder() {
    let read = |metric: &str, policy: &str| {
        Folder {
            answer: |person, item| (person % 3 + item).to_string(),
            ..Folder::new(metric, &format!("release = \"{policy}\"\n"))
        }
        .read()
    };
    for metric in ["pearson", "kendall", "ccc"] {
        let folder = read(metric, "ladder(0.1)").unwrap();
        let ladder = folder.ladder(&folder.open_answers().unwrap());
        let ladder = ladder.unwrap().unwrap();
        assert_eq!((ladder.start, ladder.step, ladder.levels), (0.0, 0.2, 5));
    }
    assert!(read("r2", "rounded(2)").is_ok());
    let error = read("r2", "ladder(0.1)").err().unwrap();
    let expected = "suite.toml:5: release: a ladder needs a lower bound of the value, which r2 does not have; choose another policy";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn average_needs_ten_clusters() {
    let error = |folder: Folder| folder.read().err().unwrap();
    let few = Folder {
        n_persons: 9,
        ..Folder::new("accuracy", AVERAGE)
    };
    assert_eq!(
        error(few),
        "suite.toml: average: of the items alone: accuracy is defined in 9 clusters, but an average needs 10; \
         write average = \"item\""
    );
    // Ten of 15 persons have different answers, and nine of 14.
    let of = |n_persons: usize| Folder {
        n_persons,
        ..Folder::numbers(AVERAGE)
    };
    assert_eq!(of(15).read().unwrap().n_clusters, Some(10));
    assert!(error(of(14)).contains("spearman is defined in 9 clusters"));
    let sealed = Folder {
        n_persons: 26,
        ..Folder::numbers(&format!("{AVERAGE}{SEALED}"))
    };
    let found = error(sealed);
    assert!(
        found.contains("of the open items alone: spearman is defined in")
            || found.contains("of the sealed items alone: spearman is defined in"),
        "{found}"
    );
    let slices = |n_group: usize| Folder {
        n_group,
        ..Folder::numbers(&format!("{AVERAGE}slices = [\"group\"]\n"))
    };
    assert!(slices(20).read().is_ok());
    let found = error(slices(14));
    assert!(
        found.contains(
            "slices: group: of the items of \"a\" alone: spearman is defined in 9 clusters"
        ),
        "{found}"
    );
    // The average over all items needs no ten clusters with different answers.
    let by_item = Folder {
        head: slices(14).head.replace(AVERAGE, ""),
        ..slices(14)
    };
    assert!(by_item.read().is_ok());
}

#[test]
fn ladder_starts_at_the_average() {
    let ladder = |average: &str| {
        let more = format!("{average}release = \"ladder(0.01)\"\n");
        let folder = Folder {
            // One person has most of the items, all with the answer z.
            answer: |person, _| if person == 0 { "\"z\"" } else { "\"x\"" }.into(),
            ..Folder::new("accuracy", &more)
        };
        let [mut items, mut answers] = folder.lines();
        for at in 0..400 {
            let item_id = format!("large-{at}");
            items += &format!(
                "{{\"item_id\":\"{item_id}\",\"input\":{{}},\"groups\":{{\"person\":\"p0\",\"group\":\"a\"}}}}\n"
            );
            answers += &format!("{{\"item_id\":\"{item_id}\",\"answer\":\"z\"}}\n");
        }
        let read = SuiteFolder::parse(&folder.head, &items, &answers).unwrap();
        let open = read.open_answers().unwrap();
        read.ladder(&open).unwrap().unwrap().start
    };
    // 404 of 560 items have the answer z, but 39 of 40 persons have the answer x.
    assert_eq!([ladder(""), ladder("average = \"item\"\n")], [0.7215; 2]);
    assert_eq!(ladder(AVERAGE), 0.975);
}

#[test]
fn offline_scores_use_the_key() {
    let value = |folder: &Folder, metric: Option<&str>| {
        folder.written(|path| {
            let named = metric.map(|name| name.parse().unwrap());
            let rules = FolderRules::read(path, named).unwrap();
            let table = offline::read_answers_at(path, &rules).unwrap();
            let predictions: String = (0..folder.n_persons)
                .flat_map(|person| (0..4).map(move |item| (person, item)))
                .map(|(person, item)| {
                    let label = if person < 10 { "x" } else { "y" };
                    format!("{{\"item_id\":\"p{person:02}-{item}\",\"prediction\":\"{label}\"}}\n")
                })
                .collect();
            let (content, format) = content::open(predictions.as_bytes(), "p.ndjson").unwrap();
            offline::score(&table, rules.metric, content, format).unwrap()
        })
    };
    let folder = Folder::new("exact_match", AVERAGE);
    let report = value(&folder, None);
    assert_eq!(report.ci_method, Some("cluster_t"));
    assert_eq!(report.n_clusters, Some(40));
    // Another metric has the clusters of the suite, and the average over items.
    let other = value(&folder, Some("accuracy"));
    assert_eq!(other.ci_method, Some("cluster_wilson"));
    assert_eq!(other.n_clusters, Some(40));
}
