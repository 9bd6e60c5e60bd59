//! The table `[data]` of `suite.toml`: a suite whose items and answers are the rows of one table.

use std::collections::HashSet;

use super::bad_suite::{BadSuiteCode, shown};
use super::groups::is_name;
use super::names::is_file_name;
use super::toml_keys::Keys;

/// The format of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// Comma-separated values (RFC 4180).
    Csv,
    /// A JSON object per line.
    Ndjson,
    /// One JSON array of objects.
    Json,
    /// Apache Parquet.
    Parquet,
}

impl TableFormat {
    /// Returns the format that a file's name ends in.
    pub fn from_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        match extension {
            "csv" => Some(Self::Csv),
            "ndjson" => Some(Self::Ndjson),
            "json" => Some(Self::Json),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// A suite's table: its file and the roles that columns have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataTable {
    /// The file's name.
    pub file: String,
    /// The format that the name ends in.
    pub format: TableFormat,
    /// The column with the answers.
    pub answer: String,
    /// The column with the item ids; without it they are `row-1`, `row-2` and so on.
    pub id: Option<String>,
    /// The columns of the inputs. `None`: all columns but [`DataTable::is_kept`] ones.
    pub inputs: Option<Vec<String>>,
    /// The columns that are left out.
    pub drop: Vec<String>,
    /// The column that names an item's cluster. It is in the group fields of the item, unless it is one
    /// of `hidden_groups`.
    pub cluster: Option<String>,
    /// The columns that are group fields of the items.
    pub groups: Vec<String>,
    /// The columns that are group fields of the answers.
    pub hidden_groups: Vec<String>,
    /// The column with the number of people behind the answer.
    pub n: Option<String>,
    /// The columns that are text, also if all their fields look like numbers.
    pub text: Vec<String>,
}

impl DataTable {
    /// Returns `true` if a column is kept out of the inputs: it has the answer, the cluster or
    /// something else that is hidden, or is dropped, or is the id.
    pub fn is_kept(&self, column: &str) -> bool {
        self.id.as_deref() == Some(column) || self.is_never_input(column)
    }

    fn is_never_input(&self, column: &str) -> bool {
        let is_one = |names: &[String]| names.iter().any(|name| name == column);
        self.answer == column
            || self.cluster.as_deref() == Some(column)
            || self.n.as_deref() == Some(column)
            || is_one(&self.drop)
            || is_one(&self.hidden_groups)
    }

    /// Returns the columns that are public group fields.
    pub fn public_groups(&self) -> impl Iterator<Item = &str> {
        let cluster = self.cluster.as_ref();
        let cluster = cluster
            .filter(|name| !self.groups.contains(name) && !self.hidden_groups.contains(name));
        cluster.into_iter().chain(&self.groups).map(String::as_str)
    }

    /// Reads the table of this name, and adds its errors to `keys`. `None` without the table, or if it is
    /// invalid.
    pub(super) fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let mut table = keys.table("data")?;
        let found = Self::read_keys(&mut table);
        let errors = table.finish();
        let found = found.filter(|_| errors.is_empty());
        keys.extend(errors);
        found
    }

    fn read_keys(keys: &mut Keys<'_>) -> Option<Self> {
        let file = keys.required_string("file", "\"votes.csv\"");
        let answer = keys.required_string("answer", "\"vote\"");
        let mut column = |key: &str| keys.string(key).map(|found| found.value);
        let (id, cluster, n) = (column("id"), column("cluster"), column("n"));
        let mut columns = |key: &str| keys.strings(key).map(|found| found.value);
        let inputs = columns("inputs");
        let [drop, groups, hidden_groups, text] =
            ["drop", "groups", "hidden_groups", "text"].map(|key| columns(key).unwrap_or_default());
        let (file, answer) = (file?.value, answer?.value);
        let format = TableFormat::from_name(&file);
        if format.is_none() || !is_file_name(&file) || RESERVED.contains(&file.as_str()) {
            keys.reject(
                "file",
                BadSuiteCode::Value,
                "must be a name of letters, digits, '.', '_' or '-' that ends in .csv, .ndjson, .json or .parquet, and no name of \
                 another file of a suite",
            );
        }
        let table = Self {
            file,
            format: format?,
            answer,
            id,
            inputs,
            drop,
            cluster,
            groups,
            hidden_groups,
            n,
            text,
        };
        table.check(keys);
        Some(table)
    }

    fn check(&self, keys: &mut Keys<'_>) {
        for (key, names) in self.lists() {
            let mut seen = HashSet::new();
            for name in names {
                if !seen.insert(name) {
                    let message = format!("{} is named twice; remove one", shown(name));
                    keys.reject(key, BadSuiteCode::Duplicate, message);
                }
            }
        }
        let is_hidden = |name: &String| self.hidden_groups.contains(name);
        for name in self.groups.iter().filter(|name| is_hidden(name)) {
            let message = format!(
                "{} is in groups too; a group field is public or hidden",
                shown(name)
            );
            keys.reject("hidden_groups", BadSuiteCode::Value, message);
        }
        let cluster = self.cluster.iter().map(|name| ("cluster", name));
        let groups = self.groups.iter().map(|name| ("groups", name));
        let hidden = self
            .hidden_groups
            .iter()
            .map(|name| ("hidden_groups", name));
        for (key, name) in cluster.chain(groups).chain(hidden) {
            if !is_name(name) || name == "none" {
                let message = format!(
                    "{} cannot be a group field; rename the column: a lower-case letter, then lower-case letters, digits or '_', \
                     at most 40 characters, and not none",
                    shown(name)
                );
                keys.reject(key, BadSuiteCode::Value, message);
            }
        }
        // A column with two of these roles would disclose one by the other.
        let roles = [
            ("answer", Some(&self.answer)),
            ("id", self.id.as_ref()),
            ("cluster", self.cluster.as_ref()),
            ("n", self.n.as_ref()),
        ];
        for (at, (key, name)) in roles.iter().enumerate() {
            let Some(name) = name else { continue };
            if let Some((first, _)) = roles[..at].iter().find(|(_, other)| *other == Some(*name)) {
                let message = format!(
                    "{} is the column of {first} too; name another one",
                    shown(name)
                );
                keys.reject(key, BadSuiteCode::Duplicate, message);
            }
            let lists = [
                ("groups", &self.groups),
                ("hidden_groups", &self.hidden_groups),
            ];
            for (list, names) in lists {
                if *key != "cluster" && names.contains(*name) {
                    let message = format!("{} is the column of {key} too; remove it", shown(name));
                    keys.reject(list, BadSuiteCode::Duplicate, message);
                }
            }
        }
        for name in self.inputs.iter().flatten() {
            if self.is_never_input(name) {
                let message = format!(
                    "{} is named in answer, drop, cluster, hidden_groups or n too, and such a column is never in the input; \
                     remove it from one of them",
                    shown(name)
                );
                keys.reject("inputs", BadSuiteCode::Value, message);
            }
        }
        if self.text.contains(&self.answer) {
            let message = "the metric decides whether the answers are text; remove the column";
            keys.reject("text", BadSuiteCode::Value, message);
        }
    }

    fn lists(&self) -> [(&'static str, &[String]); 5] {
        [
            ("inputs", self.inputs.as_deref().unwrap_or_default()),
            ("drop", &self.drop),
            ("groups", &self.groups),
            ("hidden_groups", &self.hidden_groups),
            ("text", &self.text),
        ]
    }

    /// Returns each key with each column that it names.
    pub fn named_columns(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let single = [
            ("answer", Some(&self.answer)),
            ("id", self.id.as_ref()),
            ("cluster", self.cluster.as_ref()),
            ("n", self.n.as_ref()),
        ];
        let single = single
            .into_iter()
            .filter_map(|(key, name)| Some((key, name?.as_str())));
        let lists = self
            .lists()
            .into_iter()
            .flat_map(|(key, names)| names.iter().map(move |name| (key, name.as_str())));
        single.chain(lists)
    }
}

/// The files of a suite that are no table.
const RESERVED: [&str; 6] = [
    "items.ndjson",
    "answers.ndjson",
    "items.json",
    "answers.json",
    "retest.ndjson",
    "catalog.ndjson",
];
