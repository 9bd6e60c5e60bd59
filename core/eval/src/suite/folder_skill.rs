//! The skill of a folder: the groups of its items, and whether the skill is defined.

use super::bad_suite::BadSuite;
use super::folder_tables::FolderTables;
use super::groups::{GroupField, GroupLabels};
use super::lines::{FolderItem, missing_field};
use super::names::{ITEMS, SUITE};
use super::suite_toml::SkillKey;
use crate::disclosure::DisclosurePolicy;
use crate::metric::Metric;
use crate::score::{AnswerTable, SkillGroups, score_skill_baseline};

/// Sets the group of each item within which the skill is computed, and returns the groups' values by
/// label: none if all items are one group. `line` is that of the key in `suite.toml`.
///
/// # Errors
/// Returns the first item without a value of the field. The field must be public: two submissions that
/// differ in one item disclose the item's group by their skills.
pub(super) fn assign(
    items: &mut [FolderItem],
    key: Option<&SkillKey>,
    line: usize,
) -> Result<Vec<String>, BadSuite> {
    let Some(field) = key.and_then(|key| key.within.as_ref()) else {
        return Ok(Vec::new());
    };
    let mut values = GroupLabels::default();
    for item in items {
        let label = item
            .label(field, &mut values)
            .map_err(|reason| BadSuite::new(ITEMS, item.line, missing_field(&reason, "skill")))?;
        item.skill_group = Some(label);
    }
    if values.are_hidden() {
        let reason = format!(
            "skill: {field} is in the lines of answers, and skills would disclose it; within must name a field of the items"
        );
        return Err(BadSuite::new(SUITE, line, reason));
    }
    Ok(values.into_values())
}

/// Checks that the skill is defined for the open items and for the sealed ones.
///
/// # Errors
/// Returns the reason if the baseline has the best score for all items of a group.
pub(super) fn check(
    key: &SkillKey,
    metric: Metric,
    items: &[FolderItem],
    values: &[String],
    tables: &FolderTables,
) -> Result<(), String> {
    let check = |table: &AnswerTable, is_sealed: bool| {
        let items = items.iter().filter(|item| item.is_sealed == is_sealed);
        let labels: Vec<u32> = items.filter_map(|item| item.skill_group).collect();
        let groups = SkillGroups {
            field: key.within.as_ref().map(GroupField::as_str),
            labels: &labels,
            values,
        };
        score_skill_baseline(table, metric, key.baseline, groups).map(|_| ())
    };
    let FolderTables { open, sealed } = tables;
    let Some(sealed) = sealed else {
        return check(open, false).map_err(|reason| format!("skill: {reason}"));
    };
    for (name, table, is_sealed) in [("open", open, false), ("sealed", sealed, true)] {
        check(table, is_sealed)
            .map_err(|reason| format!("skill: of the {name} items alone: {reason}"))?;
    }
    Ok(())
}

/// Returns a warning if no result shows the skill.
pub(super) fn warning(policy: DisclosurePolicy) -> Option<String> {
    matches!(policy, DisclosurePolicy::Ladder(_))
        .then(|| format!("skill: with release = \"{policy}\" no result has it"))
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use crate::metric::Metric;
    use crate::suite::{FolderRules, SuiteFolder};
    use crate::{content, offline};

    /// Returns the texts of items and answers. The items are in two data sets.
    fn lines(answers: [&str; 4], is_hidden: bool) -> (String, String) {
        let (mut items, mut lines) = (String::new(), String::new());
        for at in 0..40 {
            let groups = format!(",\"groups\":{{\"dataset\":\"d{}\"}}", at % 2);
            let [public, hidden] =
                [!is_hidden, is_hidden].map(|is_here| if is_here { groups.as_str() } else { "" });
            _ = writeln!(items, "{{\"item_id\":\"i{at}\",\"input\":{{}}{public}}}");
            let answer = answers[at % 4];
            _ = writeln!(
                lines,
                "{{\"item_id\":\"i{at}\",\"answer\":{answer}{hidden}}}"
            );
        }
        (items, lines)
    }

    const LABELS: [&str; 4] = ["\"x\"", "\"x\"", "\"y\"", "\"z\""];

    fn head(metric: &str, keys: &str) -> String {
        format!("suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\n{keys}\n")
    }

    fn parse(metric: &str, keys: &str, answers: [&str; 4]) -> Result<SuiteFolder, String> {
        let (items, answers) = lines(answers, false);
        let found = SuiteFolder::parse(&head(metric, keys), &items, &answers);
        found.map_err(|error| error.to_string())
    }

    #[test]
    fn skill_is_read_with_groups() {
        let keys = "skill = {baseline = \"uniform\", within = \"dataset\"}";
        let folder = parse("brier", keys, LABELS).unwrap();
        let skill = folder.skill.as_ref().unwrap();
        assert_eq!(skill.baseline.as_str(), "uniform");
        assert_eq!(skill.within.as_ref().unwrap().as_str(), "dataset");
        let groups = folder.items[..3].iter().map(|item| item.skill_group);
        assert!(groups.eq([Some(0), Some(1), Some(0)]));
        assert_eq!(folder.scorer_min(), 3);
        assert_eq!(folder.warnings, Vec::<String>::new());
        let all = parse("brier", "skill = {baseline = \"uniform\"}", LABELS).unwrap();
        assert_eq!(all.items[0].skill_group, None);
        let other = parse("brier", "skill = {baseline = \"marginal\"}", LABELS).unwrap();
        let without = parse("brier", "", LABELS).unwrap();
        assert_eq!((without.skill.as_ref(), without.scorer_min()), (None, 1));
        let digests = [&folder, &all, &other, &without].map(|folder| folder.content_sha256);
        let distinct: std::collections::HashSet<_> = digests.into_iter().collect();
        assert_eq!(distinct.len(), 4);
        // Only the publication's own statement has the key, not the commitment.
        let commitments = [&folder, &without].map(|folder| folder.opening([0; 32]).commitment());
        assert_eq!(commitments[0], commitments[1]);
        let keys =
            "clip = [0.0, 5.0]\nrelease = \"ladder(0.1)\"\nskill = {baseline = \"marginal\"}";
        let warnings = parse("log_loss", keys, LABELS).unwrap().warnings;
        assert_eq!(
            warnings,
            ["skill: with release = \"ladder(0.1)\" no result has it"]
        );
    }

    #[test]
    fn bad_skills_are_rejected_with_location() {
        let error = |metric: &str, keys: &str, answers| parse(metric, keys, answers).err().unwrap();
        let numbers = ["1", "2", "3", "5"];
        for (metric, keys, answers, reason) in [
            (
                "brier",
                "skill = {baseline = \"best\"}",
                LABELS,
                "suite.toml:4: skill: baseline must be \"uniform\" or \"marginal\"",
            ),
            (
                "brier",
                "skill = {within = \"dataset\"}",
                LABELS,
                "suite.toml:4: skill.baseline: this key is required",
            ),
            (
                "brier",
                "skill = {baseline = \"uniform\", by = \"dataset\"}",
                LABELS,
                "suite.toml:4: skill.by: is no key of this table",
            ),
            (
                "brier",
                "\nskill = {baseline = \"uniform\", within = \"Dataset\"}",
                LABELS,
                "suite.toml:5: skill.within: must be the name of a group field",
            ),
            (
                "brier",
                "skill = {baseline = \"uniform\", within = \"country\"}",
                LABELS,
                "items.ndjson:1: groups.country is missing; skill in suite.toml names this field",
            ),
            (
                "f1_macro",
                "skill = {baseline = \"uniform\"}",
                LABELS,
                "suite.toml:4: skill: f1_macro is no mean over the scores of items",
            ),
            (
                "mae",
                "skill = {baseline = \"uniform\"}",
                numbers,
                "suite.toml:4: skill: with mae there is no uniform prediction of a number; write baseline",
            ),
            (
                "accuracy",
                "skill = {baseline = \"uniform\"}",
                LABELS,
                "suite.toml:4: skill: with accuracy there is no uniform ranking",
            ),
            (
                "accuracy",
                "cluster = \"dataset\"\naverage = \"cluster\"\nskill = {baseline = \"marginal\"}",
                LABELS,
                "suite.toml:6: skill: a value that averages clusters has no skill",
            ),
            (
                "accuracy",
                "skill = {baseline = \"marginal\", within = \"dataset\"}",
                ["\"x\"", "\"x\"", "\"y\"", "\"x\""],
                "suite.toml:4: skill: the marginal baseline has the best score for all items with one value \"d1\" of dataset",
            ),
        ] {
            let found = error(metric, keys, answers);
            assert!(found.contains(reason), "{found} instead of {reason}");
        }
        let (items, answers) = lines(LABELS, true);
        let keys = "skill = {baseline = \"uniform\", within = \"dataset\"}";
        let hidden = SuiteFolder::parse(&head("brier", keys), &items, &answers);
        let found = hidden.err().unwrap().to_string();
        assert!(
            found.starts_with("suite.toml:4: skill: dataset is in the lines of answers"),
            "{found}"
        );
    }

    #[test]
    fn skill_is_defined_for_open_and_sealed_items() {
        let keys = |seed: &str| {
            format!(
                "release = \"sealed(0.05)\"\nseal_seed = \"{seed}\"\ncloses_at = 2030-01-01T00:00:00Z\n\
                 skill = {{baseline = \"marginal\"}}"
            )
        };
        // Two items are sealed: with some seeds, both have the same answer.
        let found: Vec<Option<String>> = (0..20)
            .map(|seed| parse("exact_match", &keys(&format!("s{seed}")), LABELS).err())
            .collect();
        assert!(found.iter().any(Option::is_none));
        let reason = found.into_iter().flatten().next().unwrap();
        assert!(
            reason.starts_with(
                "suite.toml:7: skill: of the sealed items alone: the marginal baseline has the best score for all items, so"
            ),
            "{reason}"
        );
    }

    #[test]
    fn offline_report_has_skill() {
        let (items, answers) = lines(LABELS, false);
        let keys = "skill = {baseline = \"uniform\", within = \"dataset\"}";
        let name = format!("assay-skill-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [
            ("suite.toml", &head("exact_match", keys)),
            ("items.ndjson", &items),
            ("answers.ndjson", &answers),
        ] {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let predictions: String = (0..40)
            .map(|at| format!("{{\"item_id\":\"i{at}\",\"prediction\":\"x\"}}\n"))
            .collect();
        let report = |metric: Option<Metric>| {
            let rules = FolderRules::read(&folder, metric).unwrap();
            let table = offline::read_answers_at(&folder, &rules).unwrap();
            let (bytes, format) = content::open(predictions.as_bytes(), "p.ndjson").unwrap();
            offline::score(&table, rules.metric, bytes, format).unwrap()
        };
        let own = report(None);
        let other = report(Some(Metric::Accuracy));
        std::fs::remove_dir_all(&folder).unwrap();
        // One third is right by chance; half of the items are right in each data set.
        let skill = own.skill.clone().unwrap();
        assert!(
            (skill.value - (1.0 - 0.5 / (2.0 / 3.0))).abs() < 1e-12,
            "{skill:?}"
        );
        assert_eq!(skill.within.as_deref(), Some("dataset"));
        let json = serde_json::to_value(&own).unwrap();
        assert_eq!(json["skill"]["baseline"], "uniform");
        assert_eq!(other.skill, None);
        let json = serde_json::to_value(&other).unwrap();
        assert_eq!(json.get("skill"), None);
    }
}
