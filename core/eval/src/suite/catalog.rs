//! `catalog.ndjson`: the ids that a ranking can show, and how popular each one is.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::bad_suite::{BadSuite, BadSuiteCode, shown};
use super::lines::{numbered_lines, read_optional};
use super::suite_files::SuiteFiles;
use crate::metric::{Family, Metric};
use crate::prediction::not_json;
use crate::score::{Catalog, CatalogBuilder};

/// The file's name.
pub(super) const CATALOG: &str = "catalog.ndjson";

/// The reason why a line is rejected that is no object.
const NO_OBJECT: &str = "must be an object with id and popularity";

/// The catalog of a folder.
#[derive(Debug)]
pub struct FolderCatalog {
    /// The lines, in file order. The ids are distinct.
    pub lines: Vec<CatalogLine>,
    /// The SHA-256 over the lines as they are published, see [`CatalogLine::write`].
    pub sha256: [u8; 32],
}

/// An id that a ranking can show.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogLine {
    /// The id.
    pub id: String,
    /// The popularity, such as the number of persons who chose the id: a finite number above 0.
    pub popularity: f64,
}

impl CatalogLine {
    /// Appends the line as it is published: `{"id":…,"popularity":…}` in the form of RFC 8785, and a line
    /// feed.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"id\":");
        // Writing a string to a vector cannot fail.
        let _ = serde_json::to_writer(&mut *out, &self.id);
        out.extend_from_slice(b",\"popularity\":");
        let mut buffer = ryu_js::Buffer::new();
        out.extend_from_slice(buffer.format_finite(self.popularity).as_bytes());
        out.extend_from_slice(b"}\n");
    }
}

/// Reads the file. `None` if there is none.
pub(crate) fn read_file(files: &dyn SuiteFiles) -> Result<Option<String>, BadSuite> {
    read_optional(files, CATALOG)
}

impl FolderCatalog {
    /// Reads the lines of a catalog.
    ///
    /// # Errors
    /// Returns the first invalid line, or the reason if the metric is not one of rankings.
    pub fn parse(text: &str, metric: Metric) -> Result<(Self, Catalog), BadSuite> {
        if metric.family() != Family::Rankings {
            let reason =
                format!("a catalog is for metrics of rankings, not for {metric}; remove the file");
            return Err(BadSuite::new(CATALOG, 0, reason));
        }
        let mut builder = CatalogBuilder::default();
        let mut lines = Vec::new();
        let mut first_lines = HashMap::new();
        let mut hash = Sha256::new();
        let mut published = Vec::new();
        for (line, json) in numbered_lines(text) {
            let bad = |reason: String| BadSuite::new(CATALOG, line, reason);
            let parsed: CatalogLine =
                serde_json::from_str(json).map_err(|error| bad(explain(json, &error)))?;
            // An array with a value for each field is read as well.
            if !json.trim_start().starts_with('{') {
                return Err(bad(NO_OBJECT.into()));
            }
            let CatalogLine { id, popularity } = &parsed;
            if let Some(first) = first_lines.insert(id.clone(), line) {
                let message = format!("id {} is repeated; it is also in line {first}", shown(id));
                return Err(bad(message).with_code(BadSuiteCode::Duplicate));
            }
            builder.push(id, *popularity).map_err(bad)?;
            published.clear();
            parsed.write(&mut published);
            hash.update(&published);
            lines.push(parsed);
        }
        let catalog = builder.finish();
        let catalog = catalog.map_err(|reason| BadSuite::new(CATALOG, 0, reason))?;
        let folder_catalog = Self {
            lines,
            sha256: hash.finalize().into(),
        };
        Ok((folder_catalog, catalog))
    }
}

/// Returns the reason why a line is not an object with `id` and `popularity`.
fn explain(json: &str, error: &serde_json::Error) -> String {
    const FIELDS: [&str; 2] = ["id", "popularity"];

    if !error.is_data() {
        return not_json(json, error);
    }
    let Ok(fields) = serde_json::from_str::<BTreeMap<String, Value>>(json) else {
        return NO_OBJECT.into();
    };
    if let Some(missing) = FIELDS.iter().find(|field| !fields.contains_key(**field)) {
        return format!("{missing}: this field is required");
    }
    if let Some(unknown) = fields
        .keys()
        .find(|field| !FIELDS.contains(&field.as_str()))
    {
        return format!("{unknown:?} is no field of a line, which has id and popularity");
    }
    if !fields["id"].is_string() {
        return "id must be a string".into();
    }
    if !fields["popularity"].is_number() {
        return "popularity must be a number above 0".into();
    }
    "a field is given twice".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::suite_files::in_memory;
    use crate::suite::{FolderRules, SuiteFolder};
    use crate::{content, offline};

    const ACCURACY: Metric = Metric::Accuracy;

    fn line(id: &str, popularity: &str) -> String {
        format!("{{\"id\":\"{id}\",\"popularity\":{popularity}}}\n")
    }

    #[test]
    fn catalog_is_read_and_written() {
        let text = "\u{feff}{\"popularity\": 3, \"id\": \"\\u00e4\\\"b\"}\n\n{\"id\":\"c\",\"popularity\":2.50e1}\r\n";
        let (folder, catalog) = FolderCatalog::parse(text, ACCURACY).unwrap();
        let expected = [("ä\"b", 3.0), ("c", 25.0)].map(|(id, popularity)| CatalogLine {
            id: id.into(),
            popularity,
        });
        assert_eq!(folder.lines, expected);
        assert_eq!((catalog.len(), catalog.is_empty()), (2, false));
        let published = "{\"id\":\"ä\\\"b\",\"popularity\":3}\n{\"id\":\"c\",\"popularity\":25}\n";
        assert_eq!(folder.sha256, <[u8; 32]>::from(Sha256::digest(published)));
        let (again, _) = FolderCatalog::parse(published, ACCURACY).unwrap();
        assert_eq!(again.sha256, folder.sha256);
    }

    #[test]
    fn bad_lines_are_rejected_with_location() {
        let after_first = |second: &str| format!("{}{second}\n", line("a", "1"));
        let long = "x".repeat(513);
        for (text, reason) in [
            (
                after_first(&format!("\n{}", line("a", "2"))),
                "catalog.ndjson:3: id \"a\" is repeated; it is also in line 1",
            ),
            (
                after_first(&line("", "1")),
                "catalog.ndjson:2: id must not be empty",
            ),
            (
                after_first(&line(&long, "1")),
                "catalog.ndjson:2: id must not be longer than 512 bytes",
            ),
            (
                after_first(&line("a\\u0000", "1")),
                "catalog.ndjson:2: id \"a\\0\" has a NUL character",
            ),
            (
                after_first(&line("b", "0")),
                "catalog.ndjson:2: popularity is 0, but must be a finite number above 0",
            ),
            (
                after_first(&line("b", "-2")),
                "catalog.ndjson:2: popularity is -2, but must be",
            ),
            (
                after_first(&line("b", "1e999")),
                "catalog.ndjson:2: is not valid JSON (column 28): the number is too large",
            ),
            (
                after_first(&line("b", "NaN")),
                "catalog.ndjson:2: is not valid JSON (column 2",
            ),
            (
                after_first(&line("b", "\"1\"")),
                "catalog.ndjson:2: popularity must be a number above 0",
            ),
            (
                after_first("{\"id\": 7, \"popularity\": 1}"),
                "catalog.ndjson:2: id must be a string",
            ),
            (
                after_first("{\"id\": \"b\"}"),
                "catalog.ndjson:2: popularity: this field is required",
            ),
            (
                after_first("{\"id\": \"b\", \"popularity\": 1, \"name\": \"B\"}"),
                "catalog.ndjson:2: \"name\" is no field of a line, which has id and popularity",
            ),
            (
                after_first("{\"id\": \"b\", \"id\": \"b\", \"popularity\": 1}"),
                "catalog.ndjson:2: a field is given twice",
            ),
            (
                after_first("[\"b\", 1]"),
                "catalog.ndjson:2: must be an object with id and popularity",
            ),
            (
                String::new(),
                "catalog.ndjson: a catalog needs at least one id",
            ),
        ] {
            let error = FolderCatalog::parse(&text, ACCURACY)
                .err()
                .unwrap()
                .to_string();
            assert!(error.starts_with(reason), "{error} instead of {reason}");
        }
        for metric in [Metric::ExactMatch, Metric::Mae, Metric::Brier] {
            let error = FolderCatalog::parse(&line("a", "1"), metric)
                .err()
                .unwrap()
                .to_string();
            let expected = format!(
                "catalog.ndjson: a catalog is for metrics of rankings, not for {metric}; remove the file"
            );
            assert_eq!(error, expected);
        }
    }

    const ITEMS: &str = "{\"item_id\":\"i\",\"input\":{}}\n{\"item_id\":\"j\",\"input\":{}}\n";
    const ANSWERS: &str =
        "{\"item_id\":\"i\",\"answer\":\"a\"}\n{\"item_id\":\"j\",\"answer\":\"b\"}\n";

    fn head(metric: &str) -> String {
        format!("suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\n")
    }

    fn folder(metric: &str, catalog: Option<&str>) -> Result<SuiteFolder, BadSuite> {
        let head = head(metric);
        let catalog = catalog.map(|catalog| (CATALOG, catalog));
        SuiteFolder::parse_files(&in_memory(&head, ITEMS, ANSWERS, catalog))
    }

    #[test]
    fn catalog_is_in_digest_and_not_in_commitment() {
        let catalog = line("a", "1") + &line("b", "2");
        let [without, one, other] = [None, Some(catalog.clone()), Some(catalog.replace('2', "3"))]
            .map(|catalog| folder("ndcg@3", catalog.as_deref()).unwrap());
        let digests = [&without, &one, &other].map(|folder| folder.content_sha256);
        assert!(digests[0] != digests[1] && digests[1] != digests[2] && digests[0] != digests[2]);
        let commitments = [&without, &one].map(|folder| folder.opening([3; 32]).commitment());
        assert_eq!(commitments[0], commitments[1]);
        assert_eq!([&without, &one].map(SuiteFolder::scorer_min), [1, 3]);
        assert_eq!(one.catalog.unwrap().lines.len(), 2);
        assert!(without.catalog.is_none());
        let error = folder("exact_match", Some(&catalog))
            .err()
            .unwrap()
            .to_string();
        assert!(
            error.starts_with("catalog.ndjson: a catalog is for"),
            "{error}"
        );
    }

    #[test]
    fn offline_report_counts_ids() {
        let name = format!("assay-catalog-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        let catalog: String = ["a", "b", "c", "d"].map(|id| line(id, "2")).concat();
        for (name, text) in [
            ("suite.toml", head("ndcg@2").as_str()),
            ("items.ndjson", ITEMS),
            ("answers.ndjson", ANSWERS),
            (CATALOG, &catalog),
        ] {
            std::fs::write(path.join(name), text).unwrap();
        }
        let report = |metric: Option<&str>, predictions: &str| {
            let metric = metric.map(|name| name.parse().unwrap());
            let rules = FolderRules::read(&path, metric).unwrap();
            let table = offline::read_answers_at(&path, &rules).unwrap();
            let (bytes, format) = content::open(predictions.as_bytes(), "p.ndjson").unwrap();
            offline::score(&table, rules.metric, bytes, format).unwrap()
        };
        let predictions = "{\"item_id\":\"i\",\"prediction\":[\"a\",\"b\",\"c\"]}\n{\"item_id\":\"j\",\"prediction\":\"a\"}\n";
        let own = report(None, predictions).metrics;
        let figures = ["coverage@2", "popularity@2", "novelty@2", "gini@2"].map(|name| own[name]);
        // a is shown twice, b once.
        assert_eq!(figures, [0.5, 2.0, 2.0, 7.0 / 12.0]);
        let other = report(Some("mrr@1"), predictions).metrics;
        assert_eq!(other["coverage@1"], 0.25);
        // The catalog is for rankings, and other metrics can score the folder without it.
        let label = predictions.replace("[\"a\",\"b\",\"c\"]", "\"a\"");
        let labels = report(Some("exact_match"), &label).metrics;
        std::fs::remove_dir_all(&path).unwrap();
        assert!(labels.keys().all(|name| !name.starts_with("coverage")));
    }
}
