//! The noise floor of a folder without a retest.

use super::folder_tables::FolderTables;
use crate::metric::Metric;
use crate::score::{AnswerTable, Ceiling, RetestScores, noise_floor, noise_floor_scores};

/// The expected losses of a perfect model.
#[derive(Debug)]
pub struct FolderFloor {
    /// The floor of the open items.
    pub open: Ceiling,
    /// The floor of the sealed items; `None` without sealed items.
    pub sealed: Option<Ceiling>,
}

/// Returns the floors, with warnings about them. `None` if the metric has none, or if the number of
/// people is unknown for some item.
pub(super) fn read_folder(
    metric: Metric,
    tables: &FolderTables,
) -> Option<(FolderFloor, Vec<String>)> {
    let scores = |table: &AnswerTable| {
        let floor = noise_floor(table, metric)?;
        noise_floor_scores(table, metric, floor)
    };
    let open = scores(&tables.open)?;
    let sealed = tables.sealed.as_ref().map(scores);
    // The number of people is known for all items, or for none.
    let sealed = sealed.map_or(Some(None), |sealed| sealed.map(Some))?;
    let all = [(Some(&open), "open "), (sealed.as_ref(), "sealed ")];
    let warnings = all.into_iter().filter_map(|(scores, name)| {
        let name = if sealed.is_some() { name } else { "" };
        let warning = scores?.warning()?;
        Some(format!("n: of the {name}items, {warning}"))
    });
    let warnings = warnings.collect();
    let floor = FolderFloor {
        open: open.ceiling(),
        sealed: sealed.as_ref().map(RetestScores::ceiling),
    };
    Some((floor, warnings))
}
