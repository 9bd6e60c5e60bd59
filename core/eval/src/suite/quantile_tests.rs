//! The key `quantiles` of `suite.toml`.

use std::fmt::Write as _;
use std::path::Path;

use crate::content::{self, ContentFormat};
use crate::disclosure::DisclosurePolicy;
use crate::offline;
use crate::suite::{FolderRules, SuiteFolder};

/// Returns the texts of a suite with 60 items of 20 persons, whose answers are 0 to 59.
fn texts(keys: &str) -> [String; 3] {
    let (mut items, mut answers) = (String::new(), String::new());
    for at in 0..60 {
        let person = at % 20;
        let _ = writeln!(
            items,
            "{{\"item_id\":\"i{at}\",\"input\":{{}},\"groups\":{{\"person\":\"p{person}\"}}}}"
        );
        let _ = writeln!(answers, "{{\"item_id\":\"i{at}\",\"answer\":{at}}}");
    }
    let suite = format!("suite_id = \"suite:s\"\nversion = \"1\"\n{keys}");
    [suite, items, answers]
}

fn folder(keys: &str) -> Result<SuiteFolder, String> {
    let [suite, items, answers] = texts(keys);
    SuiteFolder::parse(&suite, &items, &answers).map_err(|error| error.to_string())
}

const PINBALL: &str = "metric = \"pinball\"\nquantiles = [0.1, 0.5, 0.9]\n";

#[test]
fn levels_of_a_suite_are_read() {
    let read = folder(PINBALL).unwrap();
    let levels = read.quantiles.as_ref().unwrap();
    assert!(levels.values().eq([0.1, 0.5, 0.9]));
    assert_eq!(read.scorer_min(), crate::SCORER);
    let other = folder(&PINBALL.replace("0.9", "0.95")).unwrap();
    assert_ne!(read.content_sha256, other.content_sha256);
    assert!(folder("metric = \"mae\"\n").unwrap().quantiles.is_none());
    for key in [
        "cluster = \"person\"\naverage = \"cluster\"\n",
        "release = \"rounded(2)\"\nper_item_feedback = false\n",
        "per_item_feedback = true\n",
        "clip = [0.0, 30.0]\nrelease = \"ladder(0.05)\"\n",
        "release = \"sealed(0.5)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-01T00:00:00Z\n",
    ] {
        for metric in ["pinball", "wis"] {
            let keys = format!("{}{key}", PINBALL.replace("pinball", metric));
            let read = folder(&keys).unwrap();
            let report = read.check().unwrap();
            assert_eq!((report.metric.as_str(), report.n_items), (metric, 60));
            let table = read.open_answers().unwrap();
            let ladder = read.ladder(&table).unwrap();
            let is_ladder = matches!(read.protection.policy, DisclosurePolicy::Ladder(_));
            assert_eq!(ladder.is_some(), is_ladder);
        }
    }
}

#[test]
fn bad_quantiles_are_rejected_with_line() {
    let metric = |metric: &str, quantiles: &str| {
        let keys = format!("metric = \"{metric}\"\nquantiles = {quantiles}\n");
        folder(&keys).err().unwrap()
    };
    for (name, quantiles, reason) in [
        (
            "mae",
            "[0.5]",
            "suite.toml:4: quantiles: levels are for pinball and wis, not for mae",
        ),
        (
            "pinball",
            "[]",
            "suite.toml:4: quantiles: there must be 1 to 99 levels, not 0",
        ),
        (
            "pinball",
            "[0.5, 0.1]",
            "suite.toml:4: quantiles: the levels must be ascending, but 0.1",
        ),
        (
            "pinball",
            "[0.5, 0.5]",
            "suite.toml:4: quantiles: the levels must be ascending, but 0.5",
        ),
        (
            "pinball",
            "[0.0, 0.5]",
            "suite.toml:4: quantiles: 0 must be above 0 and below 1",
        ),
        (
            "pinball",
            "[0.5, 1]",
            "suite.toml:4: quantiles: 1 must be above 0 and below 1",
        ),
        (
            "pinball",
            "[nan]",
            "suite.toml:4: quantiles: NaN must be above 0",
        ),
        (
            "pinball",
            "[0.5,\n0.90]",
            "suite.toml:5: quantiles: write 0.90 as 0.9",
        ),
        (
            "pinball",
            "[5e-1]",
            "suite.toml:4: quantiles: write 5e-1 as 0.5",
        ),
        (
            "wis",
            "[0.1, 0.9]",
            "suite.toml:4: quantiles: wis needs the level 0.5",
        ),
        (
            "wis",
            "[0.1, 0.5]",
            "suite.toml:4: quantiles: wis needs symmetric levels: 0.1 is one, and 0.9",
        ),
        (
            "pinball",
            "[\"0.5\"]",
            "suite.toml:4: quantiles: must be an array of numbers",
        ),
        (
            "pinball",
            "0.5",
            "suite.toml:4: quantiles: must be an array of numbers",
        ),
    ] {
        let error = metric(name, quantiles);
        assert!(error.starts_with(reason), "{error} instead of {reason}");
    }
    for name in ["pinball", "wis"] {
        let error = folder(&format!("metric = \"{name}\"\n")).err().unwrap();
        let reason =
            format!("suite.toml: quantiles: {name} needs the levels, such as quantiles = [0.1");
        assert!(error.starts_with(&reason), "{error}");
        let keys = PINBALL.replace("pinball", name);
        let error = folder(&format!("{keys}release = \"ladder(0.05)\"\n"));
        let reason = format!("clip: a ladder needs bounds of the loss of one item, which {name}");
        assert!(error.err().unwrap().contains(&reason));
        let [suite, items, answers] = texts(&keys);
        let constant = answers.lines().map(|line| {
            let (head, _) = line.rsplit_once(':').unwrap();
            format!("{head}:7}}\n")
        });
        let error = SuiteFolder::parse(&suite, &items, &constant.collect::<String>());
        let error = error.err().unwrap().to_string();
        assert!(
            error.contains("all answers are the same number, and"),
            "{error}"
        );
        let labels = answers.replace("\"answer\":7}", "\"answer\":\"7\"}");
        let error = SuiteFolder::parse(&suite, &items, &labels).err().unwrap();
        let reason = format!("the metric {name} takes a number as answer");
        assert!(error.to_string().contains(&reason), "{error}");
    }
}

#[test]
fn retest_of_quantiles_is_rejected() {
    let path = write("retest", PINBALL);
    std::fs::write(
        path.join("retest.ndjson"),
        "{\"item_id\":\"i0\",\"answers\":[1]}\n",
    )
    .unwrap();
    let error = SuiteFolder::read(&path).err().unwrap().to_string();
    std::fs::remove_dir_all(path).unwrap();
    assert!(error.contains("pinball has no noise ceiling"), "{error}");
}

/// Writes a folder, and returns its path.
fn write(name: &str, keys: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("assay-quantiles-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    let names = ["suite.toml", "items.ndjson", "answers.ndjson"];
    for (file, text) in names.into_iter().zip(texts(keys)) {
        std::fs::write(path.join(file), text).unwrap();
    }
    path
}

/// Scores a submission from its bytes, for a metric or for the suite's own.
fn scored(
    folder: &Path,
    metric: Option<&str>,
    submission: &str,
) -> Result<offline::Report, String> {
    let metric = metric.map(|name| name.parse().unwrap());
    let rules = FolderRules::read(folder, metric).map_err(|bad| bad.to_string())?;
    let table = offline::read_answers_at(folder, &rules).map_err(|bad| bad.to_string())?;
    let (bytes, format): (_, ContentFormat) =
        content::open(submission.as_bytes(), "predictions").map_err(|error| error.to_string())?;
    offline::score(&table, rules.metric, bytes, format)
}

#[test]
fn folder_is_scored_offline() {
    let path = write("offline", PINBALL);
    let row = "{\"item_id\":\"i3\",\"prediction\":{\"0.1\":1,\"0.5\":2,\"0.9\":3}}\n";
    let report = scored(&path, None, row).unwrap();
    // (2 · 0.1 + 1 · 0.5 + 0 · 0.9)/3, and 59 times the spread.
    assert!((report.value - (0.7 / 3.0 + 59.0 * 59.0) / 60.0).abs() < 1e-12);
    assert_eq!((report.n, report.n_missing), (60, 59));
    assert_eq!(report.metrics["coverage@0.8"], 1.0 / 60.0);
    let csv = "item_id,prediction\ni3,\"{\"\"0.5\"\":2,\"\"0.1\"\":1,\"\"0.9\"\":3}\"\n";
    assert_eq!(scored(&path, None, csv).unwrap(), report);
    let wis = scored(&path, Some("wis"), row).unwrap();
    assert!((wis.value - (1.4 / 3.0 + 59.0 * 59.0) / 60.0).abs() < 1e-12);
    let crossing = row.replace("\"0.5\":2", "\"0.5\":0");
    assert_eq!(
        scored(&path, None, &crossing).unwrap_err(),
        "line 1.prediction: the value at 0.5 is below that at 0.1"
    );
    // The levels of the suite are for quantiles only.
    let number = "{\"item_id\":\"i3\",\"prediction\":2}\n";
    assert_eq!(scored(&path, Some("mae"), number).unwrap().n_missing, 59);
    std::fs::remove_dir_all(&path).unwrap();
    let path = write("uneven", "metric = \"pinball\"\nquantiles = [0.1, 0.5]\n");
    let error = scored(&path, Some("wis"), row).unwrap_err();
    assert!(error.contains("wis needs symmetric levels"), "{error}");
    std::fs::remove_dir_all(&path).unwrap();
    let path = write("without", "metric = \"mae\"\n");
    let error = scored(&path, Some("pinball"), row).unwrap_err();
    assert!(error.contains("pinball needs quantiles"), "{error}");
    std::fs::remove_dir_all(&path).unwrap();
}
