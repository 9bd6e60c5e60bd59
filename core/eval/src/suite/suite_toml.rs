//! `suite.toml`: a suite's description.

use std::str::FromStr;

use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};

use super::access::Access;
use super::bad_suite::{BadSuite, BadSuiteCode, shown};
use super::baselines::BaselineKey;
use super::board_mode::BoardMode;
use super::data_table::DataTable;
use super::groups::GroupField;
use super::metadata::{SuiteLink, SuiteMetadata, Visibility};
use super::names::SUITE;
use super::names::{is_suite_id, is_version};
use super::options::check_labels;
use super::sequence_paths::SequencePaths;
use super::toml_keys::Keys;
use crate::clusters::Average;
use crate::disclosure::DisclosurePolicy;
use crate::metric::{Clip, Family, Metric};
use crate::quantile_levels::QuantileLevels;
use crate::skill::SkillBaseline;
use crate::slices::SLICED_FIELDS_MAX;

/// The longest `seal_seed`, in bytes.
const SEED_BYTES_MAX: usize = 200;

/// The content of `suite.toml`. All its rules hold that need no other file.
#[derive(Debug, Clone, PartialEq)]
pub struct SuiteDefinition {
    /// The suite's id: `suite:<name>`.
    pub suite_id: String,
    /// The version to publish.
    pub version: String,
    /// The metric that a score reports as its value.
    pub metric: Metric,
    /// Set if callers may read single items' scores.
    pub per_item_feedback: bool,
    /// The texts for people.
    pub metadata: SuiteMetadata,
    /// The organizations that can see the suite; `None` if the file does not name it.
    pub visibility: Option<Visibility>,
    /// The organizations that may submit; `None` if the file does not name it.
    pub access: Option<Access>,
    /// The fields that keep the answers from being computed from scores.
    pub protection: Protection,
    /// The levels of predicted quantiles, if the metric scores quantiles.
    pub quantiles: Option<QuantileLevels>,
    /// The sequence's places in each item's input, if the suite is about sequences.
    pub sequence: Option<SequencePaths>,
    /// The options of the items, in their order; empty if the publisher names none.
    pub labels: Vec<String>,
    /// The publisher's statement about the independence of items, if there is one.
    pub cluster: Option<ClusterKey>,
    /// The unit that has equal weights in a value.
    pub average: Average,
    /// The group fields with slices.
    pub slices: SliceKeys,
    /// The baseline of the skill, if the suite has one.
    pub skill: Option<SkillKey>,
    /// The baselines that the publisher names.
    pub baselines: Vec<BaselineKey>,
    /// The table with items and answers, if they are in one.
    pub data: Option<DataTable>,
    /// The line of the key `skill`; 0 without it.
    pub(super) skill_line: usize,
    /// The line of the key `release`; 0 without it.
    pub(super) release_line: usize,
}

/// The baseline of a suite's skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillKey {
    /// The submission whose skill is 0.
    pub baseline: SkillBaseline,
    /// The field within whose groups the skill is computed; `None` if all items are one group.
    pub within: Option<GroupField>,
}

/// The group fields whose slices are scored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SliceKeys {
    /// The fields, all different.
    pub fields: Vec<GroupField>,
    /// A slice's smallest item count.
    pub min: usize,
}

impl SliceKeys {
    /// The keys of a suite without slices.
    pub const NONE: Self = Self {
        fields: Vec::new(),
        min: Self::MIN,
    };

    /// The least value of `slice_min`, and its default.
    const MIN: usize = 50;

    const MIN_MAX: usize = 100_000;
}

/// `cluster` in `suite.toml`: whether items are independent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterKey {
    /// The publisher states that items are independent.
    Independent,
    /// Items with one value of this field are not independent.
    Field(GroupField),
}

impl ClusterKey {
    /// The key's value for independent items.
    const INDEPENDENT: &str = "none";

    /// Returns the key's value in `suite.toml`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Independent => Self::INDEPENDENT,
            Self::Field(field) => field.as_str(),
        }
    }

    /// Returns the field that a published key names, or `None` if it says that items are independent.
    pub fn published_field(key: &str) -> Option<&str> {
        (key != Self::INDEPENDENT).then_some(key)
    }

    /// Returns the field, unless items are independent.
    pub fn field(&self) -> Option<&GroupField> {
        match self {
            Self::Independent => None,
            Self::Field(field) => Some(field),
        }
    }
}

impl FromStr for ClusterKey {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == Self::INDEPENDENT {
            return Ok(Self::Independent);
        }
        text.parse().map(Self::Field).map_err(|reason: String| {
            format!("{reason}; or \"none\" if the items of the suite are independent")
        })
    }
}

/// The suite fields that keep its answers from being computed from scores.
#[derive(Debug, Clone, PartialEq)]
pub struct Protection {
    /// The disclosure policy; `exact` if `release` is missing.
    pub policy: DisclosurePolicy,
    /// The bounds of one item's loss, if the suite has them.
    pub clip: Option<Clip>,
    /// Submissions that an organization may make per day, at least 1; `None` without a
    /// limit.
    pub max_submissions_per_day: Option<i32>,
    /// Submissions that an organization may make for this version in total, at least 1;
    /// `None` without a limit.
    pub max_submissions: Option<i32>,
    /// The organizations that may submit.
    pub access: Access,
    /// The time at which the suite and its board close, in UTC with microseconds:
    /// `2026-01-31T23:59:59.000000Z`. Present if items are sealed or the board is
    /// [`BoardMode::AtClose`].
    pub closes_at: Option<String>,
    /// The secret that selects the sealed items. It must stay as secret as the answers. In a folder that
    /// was read, present if and only if items are sealed; in a definition, `None` as well if the seed
    /// comes from the opening key.
    pub seal_seed: Option<String>,
    /// The times at which the board of the suite shows figures.
    pub board: BoardMode,
}

impl SuiteDefinition {
    /// Reads the file, before any other file of the suite exists.
    ///
    /// # Errors
    /// Returns all errors by line: syntax errors, or else the errors in keys.
    pub fn parse(text: &str) -> Result<Self, Vec<BadSuite>> {
        let mut keys = Keys::parse(text)?;
        let found = Self::read(&mut keys);
        let errors = keys.finish();
        match found {
            Some(definition) if errors.is_empty() => Ok(definition),
            _ => Err(errors),
        }
    }

    /// Returns the names of the files that the definition names, in its order.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let table = self.data.iter().map(|table| table.file.as_str());
        table.chain(self.baselines.iter().map(|baseline| baseline.file.as_str()))
    }

    /// Returns `true` if items are sealed.
    pub fn has_sealed(&self) -> bool {
        matches!(self.protection.policy, DisclosurePolicy::Sealed(_))
    }

    /// Returns the secret that selects the sealed items: that of the file, or else `default`. `None`
    /// without sealed items.
    ///
    /// # Errors
    /// Returns the error if items are sealed and neither is given.
    pub(super) fn seal_seed(&self, default: Option<&str>) -> Result<Option<String>, BadSuite> {
        if !self.has_sealed() {
            return Ok(None);
        }
        let seed = self.protection.seal_seed.as_deref().or(default);
        seed.map(|seed| Some(seed.to_owned())).ok_or_else(|| {
            let message = format!(
                "seal_seed: selects the sealed items; give a string of 1 to {SEED_BYTES_MAX} bytes that nobody can guess, or the \
                 opening key from which it is derived"
            );
            let error = BadSuite::new(SUITE, self.release_line, message);
            error.with_code(BadSuiteCode::Required).with_field("seal_seed")
        })
    }

    /// Reads all keys, and adds the errors to them. `None` only if there are errors.
    fn read(keys: &mut Keys<'_>) -> Option<Self> {
        let suite_id = checked(keys, "suite_id", "\"suite:votes\"", is_suite_id, SUITE_ID);
        let version = checked(keys, "version", "\"1\"", is_version, VERSION);
        let metric = metric(keys);
        let release_line = keys.line("release");
        let policy = policy(keys, metric);
        let per_item_feedback = per_item_feedback(keys, metric, policy);
        let access = parsed(keys, "access");
        let visibility = parsed(keys, "visibility");
        let metadata = metadata(keys);
        let protection = protection(keys, metric, policy, access);
        let quantiles = quantiles(keys, metric);
        let sequence = sequence(keys);
        let labels = labels(keys, metric);
        let data = DataTable::read(keys);
        let cluster = cluster(keys, data.as_ref());
        let average = average(keys, metric, cluster.as_ref());
        let slices = slices(keys);
        let skill_line = keys.line("skill");
        let skill = skill(keys, metric, average);
        let baselines = BaselineKey::read(keys);
        Some(Self {
            suite_id: suite_id?,
            version: version?,
            metric: metric?,
            per_item_feedback,
            metadata,
            visibility,
            access,
            protection: protection?,
            quantiles,
            sequence,
            labels,
            cluster,
            average,
            slices,
            skill,
            baselines,
            data,
            skill_line,
            release_line,
        })
    }
}

const SUITE_ID: &str = "must be \"suite:\" and a name of lower-case letters, digits, '.', '_' or '-', at most 64 characters";
const VERSION: &str = "must be 1 to 64 letters, digits, '.', '_', '-' or '+'";

/// Returns a required string that passes the check.
fn checked(
    keys: &mut Keys<'_>,
    key: &str,
    example: &str,
    check: fn(&str) -> bool,
    message: &str,
) -> Option<String> {
    let found = keys.required_string(key, example)?.value;
    if check(&found) {
        return Some(found);
    }
    keys.reject(key, BadSuiteCode::Value, message);
    None
}

/// Returns the parsed value of a string, if the table has one.
fn parsed<T: FromStr<Err: std::fmt::Display>>(keys: &mut Keys<'_>, key: &str) -> Option<T> {
    let parsed = keys.string(key)?.value.parse();
    let rejected = parsed.map_err(|reason: T::Err| keys.reject(key, BadSuiteCode::Value, reason));
    rejected.ok()
}

fn metric(keys: &mut Keys<'_>) -> Option<Metric> {
    let parsed = keys
        .required_string("metric", "\"accuracy\"")?
        .value
        .parse();
    let rejected = parsed.map_err(|reason| keys.reject("metric", BadSuiteCode::Metric, reason));
    rejected.ok()
}

/// Returns the disclosure policy: `exact` without the key, `None` if it is invalid.
fn policy(keys: &mut Keys<'_>, metric: Option<Metric>) -> Option<DisclosurePolicy> {
    if !keys.has("release") {
        return Some(DisclosurePolicy::Exact);
    }
    let policy = parsed(keys, "release")?;
    if let Some(metric) = metric
        && matches!(policy, DisclosurePolicy::Ladder(_))
        && !metric.takes_clip()
        && metric.bounds(None, 2).is_none()
    {
        let message = format!(
            "a ladder needs a lower bound of the value, which {metric} does not have; choose another policy, such as \
             release = \"sealed(0.5)\", or another metric"
        );
        keys.reject("release", BadSuiteCode::Ladder, message);
    }
    Some(policy)
}

fn per_item_feedback(
    keys: &mut Keys<'_>,
    metric: Option<Metric>,
    policy: Option<DisclosurePolicy>,
) -> bool {
    const KEY: &str = "per_item_feedback";
    let is_set = keys.boolean(KEY).unwrap_or(false);
    if !is_set {
        return false;
    }
    if let Some(metric) = metric.filter(|metric| !metric.has_item_scores()) {
        let message = format!("with {metric} an item has no score of its own");
        keys.reject(KEY, BadSuiteCode::Value, message);
    }
    if let Some(policy) = policy.filter(|policy| *policy != DisclosurePolicy::Exact) {
        let message =
            format!("with release = \"{policy}\" the scores of single items must not be disclosed");
        keys.reject(KEY, BadSuiteCode::Value, message);
    }
    true
}

fn metadata(keys: &mut Keys<'_>) -> SuiteMetadata {
    let mut text = |key: &str| keys.string(key).map(|found| found.value);
    let [title, description, license, citation, contact] =
        ["title", "description", "license", "citation", "contact"].map(&mut text);
    let metadata = SuiteMetadata {
        title,
        description,
        license,
        citation,
        links: links(keys),
        tags: keys.strings("tags").map(|found| found.value),
        contact,
    };
    for error in metadata.check() {
        let key = error.field.split('[').next().unwrap_or_default();
        let code = match error.reason {
            "required" => BadSuiteCode::Required,
            "too_long" => BadSuiteCode::TooLong,
            "duplicate" => BadSuiteCode::Duplicate,
            _ => BadSuiteCode::Value,
        };
        let line = keys.line(key);
        keys.reject_at(line, &error.field, code, error.message);
    }
    metadata
}

fn links(keys: &mut Keys<'_>) -> Option<Vec<SuiteLink>> {
    let mut links = Vec::new();
    for mut table in keys.tables("links")? {
        let label = table.required_string("label", "\"Paper\"");
        let url = table.required_string("url", "\"https://acme.example/votes\"");
        if let (Some(label), Some(url)) = (label, url) {
            links.push(SuiteLink {
                label: label.value,
                url: url.value,
            });
        }
        keys.extend(table.finish());
    }
    Some(links)
}

/// Returns the cluster key, which `[data]` sets as well.
fn cluster(keys: &mut Keys<'_>, data: Option<&DataTable>) -> Option<ClusterKey> {
    let column = data.and_then(|data| data.cluster.as_deref());
    let key = parsed(keys, "cluster");
    let Some(column) = column else {
        return key;
    };
    if let Some(key) = &key
        && key.as_str() != column
    {
        let message = format!(
            "must be {}, as in [data]; remove the key, or name the same column",
            shown(column)
        );
        keys.reject("cluster", BadSuiteCode::Value, message);
    }
    key.or_else(|| column.parse().ok())
}

fn average(keys: &mut Keys<'_>, metric: Option<Metric>, cluster: Option<&ClusterKey>) -> Average {
    const KEY: &str = "average";
    let average = parsed(keys, KEY).unwrap_or(Average::Item);
    if average == Average::Item {
        return average;
    }
    if let Some(metric) = metric.filter(|metric| !metric.can_average_clusters()) {
        let message = format!(
            "{metric} cannot be averaged over clusters; write average = \"item\", or choose a mean, rmse, auc, spearman, pearson or \
             kendall as metric"
        );
        keys.reject(KEY, BadSuiteCode::Metric, message);
    }
    match cluster {
        Some(ClusterKey::Field(_)) => {}
        Some(ClusterKey::Independent) => keys.reject(
            KEY,
            BadSuiteCode::Value,
            "with cluster = \"none\" there are no clusters to average; name a group field in cluster, or write average = \"item\"",
        ),
        // The key itself may be wrong.
        None if keys.has("cluster") => {}
        None => keys.reject(
            KEY,
            BadSuiteCode::Required,
            "there are no clusters to average; name their group field in cluster, such as cluster = \"person\"",
        ),
    }
    average
}

fn labels(keys: &mut Keys<'_>, metric: Option<Metric>) -> Vec<String> {
    let Some(labels) = keys.strings("labels") else {
        return Vec::new();
    };
    if let Some(metric) = metric
        && let Err(reason) = check_labels(&labels.value, metric)
    {
        keys.reject("labels", BadSuiteCode::Value, reason);
    }
    labels.value
}

/// Returns the quantile levels, if the metric scores quantiles.
fn quantiles(keys: &mut Keys<'_>, metric: Option<Metric>) -> Option<QuantileLevels> {
    const KEY: &str = "quantiles";
    let is_given = keys.has(KEY);
    let written = keys.numbers(KEY);
    let metric = metric?;
    let Some(written) = written else {
        if !is_given && metric.family() == Family::Quantiles {
            let message = format!("{metric} needs the levels, such as quantiles = [0.1, 0.5, 0.9]");
            keys.reject(KEY, BadSuiteCode::Required, message);
        }
        return None;
    };
    let values: Vec<f64> = written.iter().map(|number| number.value.0).collect();
    let levels = QuantileLevels::new(&values)
        .and_then(|levels| levels.check_metric(metric).map(|()| levels));
    let levels = match levels {
        Ok(levels) => levels,
        Err(reason) => {
            keys.reject(KEY, BadSuiteCode::Value, reason);
            return None;
        }
    };
    // Predictions write the levels as the suite does, so there must be one way.
    for (number, name) in written.iter().zip(levels.names()) {
        let text = number.value.1;
        if text != name {
            let message = format!("write {text} as {name}");
            keys.reject_at(number.line, KEY, BadSuiteCode::Value, message);
        }
    }
    Some(levels)
}

fn sequence(keys: &mut Keys<'_>) -> Option<SequencePaths> {
    let mut table = keys.table("sequence")?;
    let events = table.required_string("events", "\"history\"");
    let options = table.string("options");
    let paths = events.map(|events| SequencePaths {
        events: events.value,
        options: options.map(|options| options.value),
    });
    if let Some((key, message)) = paths.as_ref().and_then(SequencePaths::error) {
        table.reject(key, BadSuiteCode::Value, message);
    }
    keys.extend(table.finish());
    paths
}

fn slices(keys: &mut Keys<'_>) -> SliceKeys {
    let mut found = SliceKeys::NONE;
    for name in keys
        .strings("slices")
        .map_or_else(Vec::new, |names| names.value)
    {
        match name.parse::<GroupField>() {
            Ok(field) if found.fields.contains(&field) => {
                let message = format!("{field} is named twice");
                keys.reject("slices", BadSuiteCode::Duplicate, message);
            }
            Ok(field) => found.fields.push(field),
            Err(reason) => {
                let message = format!("{} {reason}", shown(&name));
                keys.reject("slices", BadSuiteCode::Value, message);
            }
        }
    }
    if found.fields.len() > SLICED_FIELDS_MAX {
        let message = format!(
            "{} fields are named; at most {SLICED_FIELDS_MAX} are possible",
            found.fields.len()
        );
        keys.reject("slices", BadSuiteCode::TooLong, message);
    }
    if let Some(min) = keys.integer("slice_min") {
        let within_range = |min: &usize| (SliceKeys::MIN..=SliceKeys::MIN_MAX).contains(min);
        let min = min.and_then(|min| usize::try_from(min).ok());
        match min.filter(within_range) {
            Some(min) => found.min = min,
            None => {
                let message = format!(
                    "must be an integer from {} to {}",
                    SliceKeys::MIN,
                    SliceKeys::MIN_MAX
                );
                keys.reject("slice_min", BadSuiteCode::Value, message);
            }
        }
    }
    found
}

fn skill(keys: &mut Keys<'_>, metric: Option<Metric>, average: Average) -> Option<SkillKey> {
    let mut table = keys.table("skill")?;
    let baseline = table.required_string("baseline", "\"marginal\"");
    let within = parsed(&mut table, "within");
    keys.extend(table.finish());
    let checked = baseline?.value.parse().map_err(str::to_owned);
    let checked = checked.and_then(|baseline: SkillBaseline| {
        let fits = metric.map_or(Ok(()), |metric| baseline.check(metric, average));
        fits.map(|()| baseline)
    });
    match checked {
        Ok(baseline) => Some(SkillKey { baseline, within }),
        Err(reason) => {
            keys.reject("skill", BadSuiteCode::Value, reason);
            None
        }
    }
}

/// Returns the protection fields. `None` if the policy is invalid.
fn protection(
    keys: &mut Keys<'_>,
    metric: Option<Metric>,
    policy: Option<DisclosurePolicy>,
    access: Option<Access>,
) -> Option<Protection> {
    let max_submissions_per_day = limit(keys, "max_submissions_per_day");
    let max_submissions = limit(keys, "max_submissions");
    let clip = clip(keys, metric, policy);
    let board = parsed(keys, "board");
    let knows_board = board.is_some() || !keys.has("board");
    let closes_at = closes_at(keys);
    let seal_seed = keys.string("seal_seed").map(|seed| seed.value);
    let protection = Protection {
        policy: policy?,
        clip,
        max_submissions_per_day,
        max_submissions,
        access: access.unwrap_or(Access::Everyone),
        closes_at,
        seal_seed,
        board: board.unwrap_or(BoardMode::Off),
    };
    check_protection(keys, &protection, knows_board);
    Some(protection)
}

fn limit(keys: &mut Keys<'_>, key: &str) -> Option<i32> {
    let max = keys.integer(key)?;
    let max = max.and_then(|max| i32::try_from(max).ok().filter(|max| *max > 0));
    if max.is_none() {
        let message = format!("must be an integer from 1 to {}", i32::MAX);
        keys.reject(key, BadSuiteCode::Value, message);
    }
    max
}

fn clip(
    keys: &mut Keys<'_>,
    metric: Option<Metric>,
    policy: Option<DisclosurePolicy>,
) -> Option<Clip> {
    const KEY: &str = "clip";
    let is_given = keys.has(KEY);
    let bounds = keys.numbers(KEY);
    let metric = metric?;
    match bounds.as_deref() {
        Some([low, high]) => {
            let clip = metric.clip(low.value.0, high.value.0);
            let rejected = clip.map_err(|reason| {
                let reason = reason.strip_prefix("clip: ").unwrap_or(&reason);
                keys.reject(KEY, BadSuiteCode::Value, reason);
            });
            rejected.ok()
        }
        Some(_) => {
            keys.reject(KEY, BadSuiteCode::Value, Clip::FORM);
            None
        }
        None => {
            if !is_given
                && metric.takes_clip()
                && matches!(policy, Some(DisclosurePolicy::Ladder(_)))
            {
                let message = format!(
                    "a ladder needs bounds of the loss of one item, which {metric} does not have; write for example \
                     clip = [0.0, 10.0]"
                );
                keys.reject_at(keys.line("release"), KEY, BadSuiteCode::Ladder, message);
            }
            None
        }
    }
}

/// Returns the closing time in UTC.
fn closes_at(keys: &mut Keys<'_>) -> Option<String> {
    let written = keys.datetime("closes_at")?;
    let closes_at = canonical_utc(&written.value);
    if closes_at.is_none() {
        let message =
            "must be a time with an offset and without quotes, such as 2027-01-31T12:00:00Z";
        keys.reject("closes_at", BadSuiteCode::Value, message);
    }
    closes_at
}

/// Checks the keys that depend on the policy. A key that is given and invalid has its own error, as has
/// the board unless `knows_board`.
fn check_protection(keys: &mut Keys<'_>, protection: &Protection, knows_board: bool) {
    let Protection { policy, board, .. } = protection;
    let is_sealed = matches!(policy, DisclosurePolicy::Sealed(_));
    if *board == BoardMode::Live && policy.hides_figures() {
        // Rank changes would measure the hidden answers.
        let message = format!(
            "a live board would disclose what release = \"{policy}\" hides; use \"at_close\""
        );
        keys.reject("board", BadSuiteCode::Value, message);
    }
    if keys.has("closes_at") {
        if !is_sealed && *board == BoardMode::Off && knows_board {
            let message = format!(
                "is for release = \"sealed(fraction)\" or a board, not for \"{policy}\" without a board"
            );
            keys.reject("closes_at", BadSuiteCode::Value, message);
        }
    } else if is_sealed {
        let message = "sealed items need the time at which the suite closes";
        keys.reject_at(
            keys.line("release"),
            "closes_at",
            BadSuiteCode::Required,
            message,
        );
    } else if *board == BoardMode::AtClose {
        let message = "\"at_close\" needs closes_at, the time at which the board closes";
        keys.reject("board", BadSuiteCode::Required, message);
    }
    if !is_sealed && keys.has("seal_seed") {
        let message = format!("is for release = \"sealed(fraction)\", not for \"{policy}\"");
        keys.reject("seal_seed", BadSuiteCode::Seal, message);
    }
    let seed = protection.seal_seed.as_deref();
    if is_sealed && seed.is_some_and(|seed| !(1..=SEED_BYTES_MAX).contains(&seed.len())) {
        let message = format!(
            "selects the sealed items; give a string of 1 to {SEED_BYTES_MAX} bytes that nobody can guess"
        );
        keys.reject("seal_seed", BadSuiteCode::Seal, message);
    }
}

/// Converts RFC 3339 to UTC with microseconds. `None` if the text is not RFC 3339, or its year in
/// UTC is not 1 to 9999.
fn canonical_utc(text: &str) -> Option<String> {
    let at = OffsetDateTime::parse(text, &Rfc3339)
        .ok()?
        .checked_to_offset(UtcOffset::UTC)
        .filter(|at| (1..=9999).contains(&at.year()))?;
    Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
        at.year(),
        u8::from(at.month()),
        at.day(),
        at.hour(),
        at.minute(),
        at.second(),
        at.microsecond()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_time_is_converted_to_utc() {
        for (text, expected) in [
            ("2027-01-31T12:00:00Z", Some("2027-01-31T12:00:00.000000Z")),
            (
                "2026-01-31T23:59:59.1234567+01:00",
                Some("2026-01-31T22:59:59.123456Z"),
            ),
            ("2027-01-31T12:00:00", None),
            ("2027-01-31", None),
            ("9999-12-31T23:59:59-01:00", None),
            ("0001-01-01T00:00:00+01:00", None),
        ] {
            assert_eq!(canonical_utc(text).as_deref(), expected, "{text}");
        }
    }

    const GOOD: &str = "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\n";

    fn errors(text: &str) -> Vec<String> {
        let errors = SuiteDefinition::parse(text).err().unwrap_or_default();
        let shown = |error: &BadSuite| {
            let field = error.field.as_deref().unwrap_or_default();
            format!("{field} {} {error}", error.code.as_str())
        };
        errors.iter().map(shown).collect()
    }

    #[test]
    fn all_keys_are_read() {
        let text = format!(
            "{GOOD}title = \"Votes\"\ndescription = \"\"\"Plain\ntext\"\"\"\nlicense = \"CC-BY-4.0\"\n\
             citation = \"x\"\nlinks = [{{label = \"Paper\", url = \"https://acme.example/votes\"}}]\n\
             tags = [\"votes\", \"choice\"]\ncontact = \"votes@acme.example\"\nvisibility = \"private\"\n\
             access = \"granted\"\nrelease = \"sealed(0.5)\"\ncloses_at = 2027-01-31T12:00:00+01:00\n\
             [[baselines]]\nname = \"People\"\nfile = \"people.ndjson\"\nkind = \"human\"\n\
             [data]\nfile = \"votes.csv\"\nanswer = \"vote\"\nid = \"row_id\"\ninputs = [\"question\", \"age\"]\n\
             drop = [\"email\"]\ncluster = \"person\"\nhidden_groups = [\"party\"]\nn = \"people\"\ntext = [\"age\"]\n"
        );
        let found = SuiteDefinition::parse(&text).unwrap();
        let metadata = &found.metadata;
        assert_eq!(metadata.description.as_deref(), Some("Plain\ntext"));
        assert_eq!(metadata.tags.as_ref().map(Vec::len), Some(2));
        assert_eq!(found.visibility, Some(Visibility::Private));
        assert_eq!(found.access, Some(Access::Granted));
        assert_eq!(
            found.protection.closes_at.as_deref(),
            Some("2027-01-31T11:00:00.000000Z")
        );
        assert!(found.has_sealed());
        assert_eq!(
            found.files().collect::<Vec<_>>(),
            ["votes.csv", "people.ndjson"]
        );
        assert_eq!(found.cluster.unwrap().as_str(), "person");
        let data = found.data.unwrap();
        assert!(data.is_kept("row_id") && data.is_kept("party") && !data.is_kept("age"));
        assert_eq!(data.public_groups().collect::<Vec<_>>(), ["person"]);
    }

    #[test]
    fn all_errors_are_returned_by_line() {
        let text = "suite_id = \"Votes\"\nversion = 1\nmetric = \"speed\"\nrelease = \"sealed(0.5)\"\n\
                    closes_at = \"2027-01-31T12:00:00Z\"\nmax_submissions = 0\nper_item_feedback = true\n\
                    tags = [\"A\"]\nunknown = 1\nslice_min = \"50\"\nlinks = [{label = \"x\"}]\n";
        let found = errors(text);
        let expected = [
            "suite_id value suite.toml:1: suite_id: must be \"suite:\"",
            "version type suite.toml:2: version: must be a string in quotes; write version = \"1\"",
            "metric metric suite.toml:3: metric: expected one of",
            "closes_at type suite.toml:5: closes_at: must be a time with an offset and without quotes; write closes_at = 2027-01-31T12:00:00Z",
            "max_submissions value suite.toml:6: ",
            "per_item_feedback value suite.toml:7: ",
            "tags[0] value suite.toml:8: tags[0]: must have 2 to 30",
            "unknown value suite.toml:9: unknown: is no key",
            "slice_min type suite.toml:10: ",
            "links[0].url required suite.toml:11: ",
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found} instead of {expected}");
        }
        assert_eq!(found.len(), expected.len(), "{found:?}");
        let required = ["suite_id", "version", "metric"];
        let found = errors("");
        assert_eq!(found.len(), required.len());
        for (found, key) in found.iter().zip(required) {
            let expected =
                format!("{key} required suite.toml: {key}: this key is required, such as {key} = ");
            assert!(found.starts_with(&expected), "{found}");
        }
    }

    #[test]
    fn syntax_errors_quote_nothing() {
        for text in [
            "seal_seed = \"SECRET",
            "seal_seed = SECRET\n",
            "seal_seed = \"x\" SECRET\n",
            "seal_seed = 12\nseal_seed = 7\n",
            "seal_seed = [\"SECRET\"\n",
            "[a]\n[a]\n",
            "\u{0}",
        ] {
            let found = errors(text);
            assert!(!found.is_empty(), "{text}");
            assert!(
                found.iter().all(|error| !error.contains("SECRET")),
                "{found:?}"
            );
        }
        let found = errors("a = \nb = 1\nb = 2\nc\n");
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(
            found[1].starts_with(" duplicate suite.toml:3: "),
            "{found:?}"
        );
        let found = errors(&format!("{GOOD}seal_seed = 77777777\n"));
        assert!(!found.concat().contains("777"), "{found:?}");
    }

    #[test]
    fn roles_of_columns_are_checked() {
        let with = |data: &str| {
            let head = format!("{GOOD}[data]\nfile = \"v.csv\"\nanswer = \"vote\"\n");
            errors(&format!("{head}{data}\n"))
        };
        assert_eq!(with(""), Vec::<String>::new());
        for (data, expected) in [
            ("id = \"vote\"", "data.id duplicate suite.toml:7: "),
            ("cluster = \"Person\"", "data.cluster value suite.toml:7: "),
            ("cluster = \"none\"", "data.cluster value suite.toml:7: "),
            (
                "groups = [\"a\", \"a\"]",
                "data.groups duplicate suite.toml:7: ",
            ),
            (
                "groups = [\"a\"]\nhidden_groups = [\"a\"]",
                "data.hidden_groups value suite.toml:8: ",
            ),
            (
                "hidden_groups = [\"vote\"]",
                "data.hidden_groups duplicate suite.toml:7: ",
            ),
            ("inputs = [\"vote\"]", "data.inputs value suite.toml:7: "),
            (
                "drop = [\"a\"]\ninputs = [\"a\"]",
                "data.inputs value suite.toml:8: ",
            ),
            ("text = [\"vote\"]", "data.text value suite.toml:7: "),
            ("inputs = \"a\"", "data.inputs type suite.toml:7: "),
            ("columns = []", "data.columns value suite.toml:7: "),
        ] {
            let found = with(data);
            assert_eq!(found.len(), 1, "{data}: {found:?}");
            assert!(found[0].starts_with(expected), "{data}: {found:?}");
        }
        for file in [
            "",
            "votes.txt",
            "a/votes.csv",
            "../votes.csv",
            "items.ndjson",
            "csv",
        ] {
            let found = errors(&format!(
                "{GOOD}[data]\nfile = \"{file}\"\nanswer = \"vote\"\n"
            ));
            assert!(
                found[0].starts_with("data.file value suite.toml:5: "),
                "{file}: {found:?}"
            );
        }
        let found = errors(&format!(
            "{GOOD}cluster = \"a\"\n[data]\nfile = \"v.csv\"\nanswer = \"vote\"\ncluster = \"b\"\n"
        ));
        assert!(
            found[0].starts_with("cluster value suite.toml:4: "),
            "{found:?}"
        );
    }
}
