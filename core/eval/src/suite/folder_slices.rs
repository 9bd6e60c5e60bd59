//! The slices of a folder's items.

use super::answers::{Answer, AnswersCheck};
use super::bad_suite::BadSuite;
use super::board_mode::BoardMode;
use super::folder_clusters::averaged_clusters;
use super::groups::{GroupField, GroupLabels};
use super::lines::{FolderItem, missing_field};
use super::names::{ITEMS, SUITE};
use super::suite_toml::{Protection, SliceKeys};
use crate::clusters::Average;
use crate::disclosure::DisclosurePolicy;
use crate::metric::Metric;
use crate::slices::{FieldValues, SLICE_NAMES_BYTES_MAX, SLICES_MAX, Slice};

/// The slices by one group field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderSlices {
    /// The field's name.
    pub field: String,
    /// Set if the field is in the lines of answers.
    pub is_hidden: bool,
    /// The slices, in byte order of their names and `_other` last.
    pub slices: Vec<Slice>,
}

/// Sets the slices of each item, and returns the slices by field. The items' clusters and seals are
/// set.
pub(super) fn assign(
    items: &mut [FolderItem],
    keys: &SliceKeys,
    (metric, average): (Metric, Average),
    protection: &Protection,
) -> Result<Vec<FolderSlices>, BadSuite> {
    let mut fields = Vec::new();
    let is_sealed: Vec<bool> = items.iter().map(|item| item.is_sealed).collect();
    let clusters: Vec<u32> = items.iter().filter_map(|item| item.cluster).collect();
    for field in &keys.fields {
        let bad = |reason: String| BadSuite::new(SUITE, 0, format!("slices: {field}: {reason}"));
        let (values, labels) = labels_of(items, field)?;
        let is_hidden = values.are_hidden();
        check_policy(protection, is_hidden).map_err(bad)?;
        let chosen = FieldValues {
            values: &values.into_values(),
            labels: &labels,
            clusters: &clusters,
            is_sealed: match protection.policy {
                DisclosurePolicy::Sealed(_) => &is_sealed,
                _ => &[],
            },
            min: keys.min,
        };
        let (slices, codes) = chosen.slices().map_err(bad)?;
        for (item, code) in items.iter_mut().zip(codes) {
            item.slices.push(code);
        }
        fields.push(FolderSlices {
            field: field.to_string(),
            is_hidden,
            slices,
        });
        check_answers(items, &fields, metric, average).map_err(bad)?;
    }
    let sum_all = |of: fn(&Slice) -> usize| -> usize {
        fields.iter().flat_map(|field| &field.slices).map(of).sum()
    };
    let n = sum_all(|_| 1);
    let bytes = sum_all(|slice| slice.group.len());
    if n > SLICES_MAX || bytes > SLICE_NAMES_BYTES_MAX {
        let reason = format!(
            "slices: the suite has {n} slices, whose names have {bytes} bytes; at most {SLICES_MAX} slices and {SLICE_NAMES_BYTES_MAX} \
             bytes are possible"
        );
        return Err(BadSuite::new(SUITE, 0, reason));
    }
    Ok(fields)
}

/// Returns the values of a field, and each item's label.
fn labels_of(
    items: &[FolderItem],
    field: &GroupField,
) -> Result<(GroupLabels, Vec<u32>), BadSuite> {
    let mut values = GroupLabels::default();
    let mut label = |item: &FolderItem| {
        item.label(field, &mut values)
            .map_err(|reason| BadSuite::new(ITEMS, item.line, missing_field(&reason, "slices")))
    };
    let labels = items.iter().map(&mut label).collect::<Result<_, _>>()?;
    Ok((values, labels))
}

/// Checks that the figures of slices disclose no more than the policy allows.
fn check_policy(protection: &Protection, is_hidden: bool) -> Result<(), String> {
    let Protection { policy, board, .. } = protection;
    match policy {
        DisclosurePolicy::Exact | DisclosurePolicy::Rounded(_) if is_hidden => Err(format!(
            "this field is in the lines of answers, and exact figures of a slice disclose its items; with release = \"{policy}\" the \
             field must be public"
        )),
        DisclosurePolicy::Ladder(_) if *board != BoardMode::AtClose => {
            Err("a ladder shows slices on its final board only; write board = \"at_close\"".into())
        }
        _ => Ok(()),
    }
}

/// Checks that the metric is defined for the answers in each slice by the last field: open ones and
/// sealed ones. An average needs enough clusters that it does not leave out.
fn check_answers(
    items: &[FolderItem],
    fields: &[FolderSlices],
    metric: Metric,
    average: Average,
) -> Result<(), String> {
    let (Some(field), true) = (fields.last(), metric.needs_different_answers()) else {
        return Ok(());
    };
    for (code, Slice { group, .. }) in field.slices.iter().enumerate() {
        for is_sealed in [false, true] {
            let in_slice = |item: &&FolderItem| {
                item.is_sealed == is_sealed
                    && item.slices.last().copied().map(usize::from) == Some(code)
            };
            let mut part = items.iter().filter(in_slice).peekable();
            if part.peek().is_none() {
                continue;
            }
            let named = |reason: String| {
                let part = if is_sealed { "sealed items" } else { "items" };
                format!("of the {part} of {group:?} alone: {reason}")
            };
            let mut check = AnswersCheck::new(metric);
            part.try_for_each(|item| check.add(&Answer::parse(item.answer.get(), &metric)?))
                .and_then(|()| check.finish())
                .map_err(named)?;
            if average == Average::Cluster {
                averaged_clusters(items.iter().filter(in_slice), metric).map_err(named)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::SuiteFolder;

    #[test]
    fn slice_with_undefined_metric_is_rejected() {
        let error = |metric: &str, answers_of_b: [&str; 3]| {
            let head = format!(
                "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"{metric}\"\nslices = [\"group\"]\n"
            );
            let (mut items, mut answers) = (String::new(), String::new());
            for item in 0..120 {
                let group = ["a", "b"][item % 2];
                items += &format!(
                    "{{\"item_id\":\"i{item}\",\"input\":{{}},\"groups\":{{\"group\":\"{group}\"}}}}\n"
                );
                let labels = [["x", "y", "z"], answers_of_b][item % 2];
                let answer = labels[item / 2 % 3];
                answers += &format!("{{\"item_id\":\"i{item}\",\"answer\":\"{answer}\"}}\n");
            }
            let found = SuiteFolder::parse(&head, &items, &answers);
            found.err().map(|error| error.to_string())
        };
        for (metric, reason) in [
            ("mcc", "all answers are the same label: mcc is not defined"),
            (
                "kappa",
                "all answers are the same label: kappa is not defined",
            ),
            (
                "auc_ovr",
                "auc_ovr is for 3 to 100 labels, and the answers have 1; auc is for two",
            ),
        ] {
            assert_eq!(error(metric, ["z", "y", "x"]), None);
            let found = error(metric, ["x", "x", "x"]).unwrap();
            let expected = format!("slices: group: of the items of \"b\" alone: {reason}");
            assert!(found.contains(&expected), "{found}");
        }
        assert_eq!(error("balanced_accuracy", ["x", "x", "x"]), None);
    }
}
