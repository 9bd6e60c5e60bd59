//! `suite.toml`: a suite's description.

use std::str::FromStr;

use serde::Deserialize;
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcOffset};
use toml::Spanned;

use super::access::Access;
use super::bad_suite::BadSuite;
use super::board_mode::BoardMode;
use super::groups::GroupField;
use super::options::check_labels;
use super::sequence_paths::SequencePaths;
use crate::clusters::Average;
use crate::disclosure::DisclosurePolicy;
use crate::metric::{Clip, Family, Metric};
use crate::quantile_levels::QuantileLevels;
use crate::skill::SkillBaseline;
use crate::slices::SLICED_FIELDS_MAX;

/// The file's name.
pub(super) const SUITE: &str = "suite.toml";

/// The longest `seal_seed`, in bytes.
const SEED_BYTES_MAX: usize = 200;

/// The file's content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteToml {
    pub(super) suite_id: String,
    pub(super) version: String,
    metric: String,
    #[serde(default)]
    pub(super) per_item_feedback: bool,
    #[serde(default)]
    pub(super) description: String,
    release: Option<String>,
    max_submissions_per_day: Option<i64>,
    max_submissions: Option<i64>,
    clip: Option<Vec<f64>>,
    access: Option<String>,
    seal_seed: Option<String>,
    board: Option<Spanned<String>>,
    closes_at: Option<Spanned<toml::Value>>,
    sequence: Option<SequencePaths>,
    cluster: Option<Spanned<String>>,
    average: Option<Spanned<String>>,
    slices: Option<Spanned<Vec<String>>>,
    slice_min: Option<Spanned<i64>>,
    skill: Option<Spanned<SkillToml>>,
    labels: Option<Spanned<Vec<String>>>,
    quantiles: Option<Spanned<Vec<Spanned<f64>>>>,
    #[serde(default)]
    pub(super) baselines: Vec<BaselineToml>,
}

/// `[[baselines]]` in `suite.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BaselineToml {
    pub(super) name: Spanned<String>,
    pub(super) file: Spanned<String>,
    pub(super) kind: Spanned<String>,
    pub(super) url: Option<String>,
}

/// `skill` in `suite.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SkillToml {
    baseline: String,
    within: Option<String>,
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
    /// The secret that selects the sealed items. Present if and only if items are sealed. It must
    /// stay as secret as the answers.
    pub seal_seed: Option<String>,
    /// The times at which the board of the suite shows figures.
    pub board: BoardMode,
}

impl SuiteToml {
    pub(super) fn parse(text: &str) -> Result<Self, BadSuite> {
        toml::from_str(text).map_err(|error| BadSuite::new(SUITE, 0, error.to_string()))
    }

    pub(super) fn metric(&self) -> Result<Metric, BadSuite> {
        self.metric
            .parse()
            .map_err(|error| BadSuite::new(SUITE, 0, format!("metric: {error}")))
    }

    pub(super) fn sequence(&self) -> Result<Option<SequencePaths>, BadSuite> {
        let error = self.sequence.as_ref().and_then(SequencePaths::error);
        error.map_or_else(
            || Ok(self.sequence.clone()),
            |reason| Err(BadSuite::new(SUITE, 0, reason)),
        )
    }

    /// Returns the cluster key. `text` is the file, to name the error's line.
    pub(super) fn cluster(&self, text: &str) -> Result<Option<ClusterKey>, BadSuite> {
        let parse = |key: &Spanned<String>| {
            key.get_ref().parse().map_err(|reason: String| {
                let line = line_at(text, key.span().start);
                BadSuite::new(SUITE, line, format!("cluster: {reason}"))
            })
        };
        self.cluster.as_ref().map(parse).transpose()
    }

    /// Returns the unit that has equal weights in the value. `text` is the file, to name the error's line.
    pub(super) fn average(&self, metric: Metric, text: &str) -> Result<Average, BadSuite> {
        let Some(key) = &self.average else {
            return Ok(Average::Item);
        };
        let bad = |reason: &str| {
            let line = line_at(text, key.span().start);
            BadSuite::new(SUITE, line, format!("average: {reason}"))
        };
        let average = key.get_ref().parse().map_err(bad)?;
        if average == Average::Item {
            return Ok(average);
        }
        if !metric.can_average_clusters() {
            return Err(bad(&format!(
                "{metric} cannot be averaged over clusters; write average = \"item\", or choose a mean, rmse, auc, spearman, pearson or kendall as metric"
            )));
        }
        match self.cluster(text)? {
            Some(ClusterKey::Field(_)) => Ok(average),
            Some(ClusterKey::Independent) => Err(bad(
                "with cluster = \"none\" there are no clusters to average; name a group field in cluster, or write average = \"item\"",
            )),
            None => Err(bad(
                "there are no clusters to average; name their group field in cluster, such as cluster = \"person\"",
            )),
        }
    }

    /// Returns the options of the items, in their order; empty if the suite names none. `text` is the
    /// file, to name the error's line.
    pub(super) fn labels(&self, metric: Metric, text: &str) -> Result<Vec<String>, BadSuite> {
        let Some(labels) = &self.labels else {
            return Ok(Vec::new());
        };
        check_labels(labels.get_ref(), metric).map_err(|reason| {
            let line = line_at(text, labels.span().start);
            BadSuite::new(SUITE, line, format!("labels: {reason}"))
        })?;
        Ok(labels.get_ref().clone())
    }

    /// Returns the quantile levels, if the metric scores quantiles. `text` is the file, to name the error's
    /// line.
    pub(super) fn quantiles(
        &self,
        metric: Metric,
        text: &str,
    ) -> Result<Option<QuantileLevels>, BadSuite> {
        let bad = |line: usize, reason: String| {
            Err(BadSuite::new(SUITE, line, format!("quantiles: {reason}")))
        };
        let Some(key) = &self.quantiles else {
            return if metric.family() == Family::Quantiles {
                bad(
                    0,
                    format!("{metric} needs the levels, such as quantiles = [0.1, 0.5, 0.9]"),
                )
            } else {
                Ok(None)
            };
        };
        let values: Vec<f64> = key.get_ref().iter().map(|value| *value.get_ref()).collect();
        let levels = QuantileLevels::new(&values)
            .and_then(|levels| levels.check_metric(metric).map(|()| levels));
        let levels = match levels {
            Ok(levels) => levels,
            Err(reason) => return bad(line_at(text, key.span().start), reason),
        };
        // Predictions write the levels as the suite does, so there must be one way.
        for (value, name) in key.get_ref().iter().zip(levels.names()) {
            let written = &text[value.span()];
            if written != name {
                let line = line_at(text, value.span().start);
                return bad(line, format!("write {written} as {name}"));
            }
        }
        Ok(Some(levels))
    }

    /// Returns the group fields with slices. `text` is the file, to name the error's line.
    pub(super) fn slices(&self, text: &str) -> Result<SliceKeys, BadSuite> {
        let bad =
            |offset: usize, reason: String| BadSuite::new(SUITE, line_at(text, offset), reason);
        let mut keys = SliceKeys::NONE;
        if let Some(names) = &self.slices {
            let bad = |reason: String| bad(names.span().start, format!("slices: {reason}"));
            for name in names.get_ref() {
                let field: GroupField = name
                    .parse()
                    .map_err(|reason: String| bad(format!("{name:?} {reason}")))?;
                if keys.fields.contains(&field) {
                    return Err(bad(format!("{field} is named twice")));
                }
                keys.fields.push(field);
            }
            if keys.fields.len() > SLICED_FIELDS_MAX {
                return Err(bad(format!(
                    "{} fields are named; at most {SLICED_FIELDS_MAX} are possible",
                    keys.fields.len()
                )));
            }
        }
        if let Some(min) = &self.slice_min {
            let within_range = |min: &usize| (SliceKeys::MIN..=SliceKeys::MIN_MAX).contains(min);
            keys.min = usize::try_from(*min.get_ref())
                .ok()
                .filter(within_range)
                .ok_or_else(|| {
                    let reason = format!(
                        "slice_min: must be an integer from {} to {}",
                        SliceKeys::MIN,
                        SliceKeys::MIN_MAX
                    );
                    bad(min.span().start, reason)
                })?;
        }
        Ok(keys)
    }

    /// Returns the baseline of the skill. `text` is the file, to name the error's line.
    pub(super) fn skill(
        &self,
        metric: Metric,
        average: Average,
        text: &str,
    ) -> Result<Option<SkillKey>, BadSuite> {
        let Some(key) = &self.skill else {
            return Ok(None);
        };
        let bad = |reason: String| {
            let line = line_at(text, key.span().start);
            BadSuite::new(SUITE, line, format!("skill: {reason}"))
        };
        let SkillToml { baseline, within } = key.get_ref();
        let baseline: SkillBaseline = baseline
            .parse()
            .map_err(|reason: &str| bad(reason.to_owned()))?;
        baseline.check(metric, average).map_err(bad)?;
        let within = within.as_ref().map(|field| {
            let field = field.parse();
            field.map_err(|reason: String| bad(format!("within {reason}")))
        });
        Ok(Some(SkillKey {
            baseline,
            within: within.transpose()?,
        }))
    }

    /// Returns the line of the key `skill`, or 0 without it. `text` is the file.
    pub(super) fn skill_line(&self, text: &str) -> usize {
        let key = self.skill.as_ref();
        key.map_or(0, |key| line_at(text, key.span().start))
    }

    /// Checks the protection fields. `text` is the file, to name errors' lines.
    pub(super) fn protection(&self, metric: Metric, text: &str) -> Result<Protection, BadSuite> {
        self.checked_protection(metric).map_err(|error| {
            let line = error.offset.map_or(0, |offset| line_at(text, offset));
            BadSuite::new(SUITE, line, error.reason)
        })
    }

    fn checked_protection(&self, metric: Metric) -> Result<Protection, BadField> {
        let policy = self
            .release
            .as_deref()
            .map_or(Ok(DisclosurePolicy::Exact), str::parse)
            .map_err(|error| format!("release: {error}"))?;
        let is_ladder = matches!(policy, DisclosurePolicy::Ladder(_));
        if is_ladder && !metric.takes_clip() && metric.bounds(None, 2).is_none() {
            return Err(BadField::from(format!(
                "release: a ladder needs a lower bound of the value, which {metric} does not have; choose another policy, such as \
                 release = \"sealed(0.5)\", or another metric"
            )));
        }
        if self.per_item_feedback && policy != DisclosurePolicy::Exact {
            return Err(BadField::from(format!(
                "per_item_feedback: with release = \"{policy}\" the scores of single items must not be disclosed"
            )));
        }
        let max_submissions_per_day =
            limit("max_submissions_per_day", self.max_submissions_per_day)?;
        let max_submissions = limit("max_submissions", self.max_submissions)?;
        let access = self
            .access
            .as_deref()
            .map_or(Ok(Access::Everyone), str::parse)
            .map_err(|error| format!("access: {error}"))?;
        let clip = self.clip(metric, policy)?;
        let board = self.board(policy)?;
        let closes_at = self.closes_at(policy, board)?;
        let seal_seed = self.seal_seed(policy)?;
        Ok(Protection {
            policy,
            clip,
            max_submissions_per_day,
            max_submissions,
            access,
            closes_at,
            seal_seed,
            board,
        })
    }

    fn clip(&self, metric: Metric, policy: DisclosurePolicy) -> Result<Option<Clip>, String> {
        match self.clip.as_deref() {
            Some([low, high]) => metric.clip(*low, *high).map(Some),
            Some(_) => Err(format!("clip: {}", Clip::FORM)),
            None if metric.takes_clip() && matches!(policy, DisclosurePolicy::Ladder(_)) => {
                Err(format!(
                    "clip: a ladder needs bounds of the loss of one item, which {metric} does not have; write for example \
                     clip = [0.0, 10.0]"
                ))
            }
            None => Ok(None),
        }
    }

    fn board(&self, policy: DisclosurePolicy) -> Result<BoardMode, BadField> {
        let Some(name) = &self.board else {
            return Ok(BoardMode::Off);
        };
        let bad = |reason: String| BadField::at(name, format!("board: {reason}"));
        let mode = name.get_ref().parse();
        let mode = mode.map_err(|error: &str| bad(error.to_owned()))?;
        let is_live = mode == BoardMode::Live;
        if is_live && policy.hides_figures() {
            // Rank changes would measure the hidden answers.
            return Err(bad(format!(
                "a live board would disclose what release = \"{policy}\" hides; use \"at_close\""
            )));
        }
        Ok(mode)
    }

    fn closes_at(
        &self,
        policy: DisclosurePolicy,
        board: BoardMode,
    ) -> Result<Option<String>, BadField> {
        let is_sealed = matches!(policy, DisclosurePolicy::Sealed(_));
        match &self.closes_at {
            Some(at) if is_sealed || board != BoardMode::Off => {
                let date_time = at.get_ref().as_datetime();
                let closes_at = date_time.and_then(|at| canonical_utc(&at.to_string()));
                closes_at.map(Some).ok_or_else(|| {
                    let example = "2027-01-31T12:00:00Z";
                    let reason =
                        format!("closes_at: must be a time with an offset and without quotes, such as {example}");
                    BadField::at(at, reason)
                })
            }
            Some(at) => Err(BadField::at(
                at,
                format!(
                    "closes_at: is for release = \"sealed(fraction)\" or a board, not for \"{policy}\" without a board"
                ),
            )),
            None if is_sealed => Err(BadField::from(String::from(
                "closes_at: sealed items need the time at which the suite closes",
            ))),
            None => match &self.board {
                Some(mode) if board == BoardMode::AtClose => Err(BadField::at(
                    mode,
                    "board: \"at_close\" needs closes_at, the time at which the board closes"
                        .into(),
                )),
                _ => Ok(None),
            },
        }
    }

    fn seal_seed(&self, policy: DisclosurePolicy) -> Result<Option<String>, String> {
        match (policy, &self.seal_seed) {
            (DisclosurePolicy::Sealed(_), Some(seed))
                if (1..=SEED_BYTES_MAX).contains(&seed.len()) =>
            {
                Ok(Some(seed.clone()))
            }
            (DisclosurePolicy::Sealed(_), _) => Err(format!(
                "seal_seed: selects the sealed items; give a string of 1 to {SEED_BYTES_MAX} bytes that nobody can guess"
            )),
            (_, Some(_)) => Err(format!(
                "seal_seed: is for release = \"sealed(fraction)\", not for \"{policy}\""
            )),
            (_, None) => Ok(None),
        }
    }
}

/// Returns the line at this place in the text, from 1.
pub(super) fn line_at(text: &str, offset: usize) -> usize {
    1 + text[..offset].matches('\n').count()
}

/// The reason why a field is rejected.
struct BadField {
    /// The field value's place in the file, in bytes; `None` if the field is missing or the
    /// message names it.
    offset: Option<usize>,
    reason: String,
}

impl BadField {
    fn at<T>(value: &Spanned<T>, reason: String) -> Self {
        Self {
            offset: Some(value.span().start),
            reason,
        }
    }
}

impl From<String> for BadField {
    fn from(reason: String) -> Self {
        Self {
            offset: None,
            reason,
        }
    }
}

fn limit(field: &str, max: Option<i64>) -> Result<Option<i32>, String> {
    let within_range = |max: i64| i32::try_from(max).ok().filter(|max| *max > 0);
    max.map(|max| {
        within_range(max)
            .ok_or_else(|| format!("{field}: must be an integer from 1 to {}", i32::MAX))
    })
    .transpose()
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
}
