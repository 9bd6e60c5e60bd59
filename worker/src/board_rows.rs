//! A board's rows: they follow from the results of all tests.

use std::collections::HashMap;

use assay_core::model::baselines::VsBaseline;
use assay_core::model::ids::EntryId;
use assay_core::store::board_computation::{self as store, BoardEntry, ComputedRow, EntryPairs};
use assay_eval::board::{Evidence, Standing, standings, vs_baselines};

use crate::board_entries::BoardBasis;

/// Returns the board's rows, in order.
pub fn computed_rows(
    basis: &BoardBasis,
    entries: &[BoardEntry],
    pairs: &[EntryPairs],
    counts: &[store::GroupCounts],
) -> Vec<ComputedRow> {
    let by_id: HashMap<&EntryId, &EntryPairs> =
        pairs.iter().map(|pairs| (&pairs.entry_id, pairs)).collect();
    let counts: HashMap<&EntryId, &store::GroupCounts> = counts
        .iter()
        .map(|counts| (&counts.entry_id, counts))
        .collect();
    let mut tested: Vec<(&BoardEntry, &EntryPairs)> = entries
        .iter()
        .filter(|entry| entry.is_tested && !entry.is_removed)
        .filter_map(|entry| Some((entry, *by_id.get(&entry.id)?)))
        .collect();
    // The best value first. The sort is stable: entries with one value stay in entry order.
    let goodness = |pairs: &EntryPairs| {
        if basis.metric().lower_is_better() {
            -pairs.value
        } else {
            pairs.value
        }
    };
    tested.sort_by(|(_, one), (_, other)| goodness(other).total_cmp(&goodness(one)));
    let found = standings(tested.len(), |i, j| evidence(tested[i].1, tested[j].1));
    let baselines = &basis.baselines;
    let against = vs_baselines(tested.len(), baselines.len(), |entry, baseline| {
        Evidence(evidence_at(&tested[entry].1.vs_baselines, baseline))
    });
    let against = against.into_iter().map(|results| {
        let named = baselines.iter().zip(results);
        named
            .map(|((name, _), result)| VsBaseline {
                name: name.clone(),
                result: result.into(),
            })
            .collect()
    });
    let mut placed: Vec<PlacedEntry<'_>> = tested
        .into_iter()
        .zip(found)
        .zip(against)
        .map(|(((entry, pairs), standing), vs_baselines)| PlacedEntry {
            entry,
            pairs,
            standing,
            vs_baselines,
        })
        .collect();
    // The order within a tier is never the values' order.
    let key = |entry: &BoardEntry, standing: &Standing| {
        let name = if entry.is_withdrawn {
            entry.id.to_string()
        } else {
            entry.name.to_lowercase()
        };
        (standing.tier, entry.is_withdrawn, name)
    };
    placed.sort_by_cached_key(|placed| key(placed.entry, &placed.standing));
    let count = |entry: &BoardEntry, of: fn(&store::GroupCounts) -> i32| {
        counts.get(&entry.id).copied().map_or(0, of)
    };
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    placed
        .into_iter()
        .map(|placed| {
            let PlacedEntry {
                entry,
                pairs,
                standing,
                vs_baselines,
            } = placed;
            ComputedRow {
                entry_id: entry.id.clone(),
                tier: number(standing.tier),
                rank_low: number(standing.rank_low),
                rank_high: number(standing.rank_high),
                value: pairs.value,
                ci95: pairs.ci95.as_deref().and_then(|ends| ends.try_into().ok()),
                n_missing: pairs.n_missing,
                n_submissions: count(entry, |counts| counts.n_submissions),
                n_withdrawn: count(entry, |counts| counts.n_withdrawn),
                vs_baselines,
            }
        })
        .collect()
}

/// An entry with its place on the board.
struct PlacedEntry<'e> {
    entry: &'e BoardEntry,
    pairs: &'e EntryPairs,
    standing: Standing,
    vs_baselines: Vec<VsBaseline>,
}

/// Returns the result of the test between two entries. The later one stores it.
fn evidence(one: &EntryPairs, other: &EntryPairs) -> Evidence {
    let of = |later: &EntryPairs, earlier: &EntryPairs| {
        evidence_at(&later.evidence, earlier.position.unsigned_abs() as usize)
    };
    if one.position < other.position {
        Evidence(of(other, one))
    } else {
        Evidence(-of(one, other))
    }
}

/// Returns the stored result of a test at this place.
fn evidence_at(stored: &[u8], place: usize) -> f32 {
    let bytes = stored.as_chunks().0.get(place);
    bytes.copied().map_or(0.0, f32::from_le_bytes)
}
