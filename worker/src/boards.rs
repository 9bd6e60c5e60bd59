//! Board computation: scores the entered jobs again from their predictions, tests each pair
//! of entries once, and stores the standings.
//!
//! No item score is stored, so that suites whose figures are held back can have boards. The
//! result depends on the entries only: an attempt that dies is repeated with the same figures.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use assay_core::model::ids::EntryId;
use assay_core::model::slices::FieldSlices;
use assay_core::store::board_computation::{
    self as store, BoardClaim, BoardEntry, ComputedRow, EntryPairs, LEASE,
};
use assay_core::store::{PrimaryPool, within_response_timeout};
use assay_core::{BestEffort as _, Error, Result};
use assay_eval::board::{EntryItems, Evidence, Standing, standings, test_pair};
use assay_eval::score::{AnswerTable, Figures, Progress, Score};
use assay_eval::{Ladder, Metric, Scoring};
use futures_util::future::{FutureExt as _, try_join_all};
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio_util::task::AbortOnDropHandle;

use crate::answer_cache::Answers;
use crate::context::AttemptContext;
use crate::evaluation::{ScoredSlices, score_input};
use crate::input::{InputPlace, fetch_input};

/// Time between two searches for a board that is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The memory for entries' items that are tested together, in bytes.
const BLOCK_BYTES: usize = 256 * 1024 * 1024;

/// The most entries that are tested together. After each block the tests are stored, and
/// another attempt continues there.
const BLOCK_ENTRIES: usize = 512;

/// Entries whose predictions are read by one statement.
const ENTRIES_PER_READ: usize = 64;

/// Entries that are scored at once.
const PARALLEL: usize = 4;

/// Computes boards until `stopped` is set.
pub async fn compute_boards(context: &AttemptContext, mut stopped: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            _ = stopped.wait_for(|stop| *stop) => return,
        }
        let claim = match within_response_timeout(store::claim(&context.db.get())).await {
            Ok(None) => {
                within_response_timeout(state_disclosed_figures(context))
                    .await
                    .best_effort("stating the figures of closed suites");
                continue;
            }
            Ok(Some(claim)) => claim,
            Err(error) => {
                tracing::warn!(error = error.log_text(), "looking for a board failed");
                continue;
            }
        };
        // Its own task: a computation occupies its thread for seconds.
        let renewal = tokio::spawn(keep_lease(context.db.clone(), claim.clone()));
        let mut renewal = AbortOnDropHandle::new(renewal);
        let computed = tokio::select! {
            computed = compute(context, &claim).boxed() => computed,
            _ = &mut renewal => Ok(()),
            _ = stopped.wait_for(|stop| *stop) => Err(Error::unavailable("the worker shuts down")),
        };
        drop(renewal);
        if let Err(error) = computed {
            tracing::warn!(
                suite_id = %claim.suite_id,
                version = claim.suite_version,
                error = error.log_text(),
                "computing a board failed; it is computed again"
            );
            within_response_timeout(store::release(&context.db.get(), &claim))
                .await
                .map(drop)
                .best_effort("releasing a board");
        }
    }
}

/// States the figures that the suites' close has disclosed, in receipts.
async fn state_disclosed_figures(context: &AttemptContext) -> Result<()> {
    let mut db = context.db.get().acquire().await?;
    while store::state_disclosed_figures(&mut db).await? > 0 {}
    Ok(())
}

/// Renews an attempt's lease until the attempt no longer holds the board.
async fn keep_lease(db: PrimaryPool, claim: BoardClaim) {
    loop {
        tokio::time::sleep(LEASE / 3).await;
        match within_response_timeout(store::renew(&db.get(), &claim)).await {
            Ok(true) => {}
            Ok(false) => return,
            failed => failed
                .map(drop)
                .best_effort("renewing the lease of a board"),
        }
    }
}

/// An entry whose predictions were scored again.
struct ScoredEntry {
    entry: BoardEntry,
    items: EntryItems,
    figures: Figures,
    n_missing: i64,
}

async fn compute(context: &AttemptContext, claim: &BoardClaim) -> Result<()> {
    let started = std::time::Instant::now();
    let answers = context
        .answers
        .get(&claim.suite_id, &claim.suite_version)
        .await?;
    let mut entries = store::entries(&context.db.get(), claim).await?;
    test_new_entries(context, claim, &answers, &mut entries).await?;
    let pairs = store::pairs(&context.db.get(), claim).await?;
    let counts = store::group_counts(&context.db.get(), claim).await?;
    let rows = block_in_place(|| computed_rows(answers.scoring.metric, &entries, &pairs, &counts));
    let seen: Vec<(&EntryId, i32)> = entries
        .iter()
        .map(|entry| (&entry.id, entry.revision))
        .collect();
    let mut transaction = context.db.get().begin().await?;
    let ranked = ranked(&answers);
    let n_items = i32::try_from(ranked.len()).map_err(Error::internal)?;
    let n_clusters = ranked
        .clusters()
        .map(|clusters| i32::try_from(clusters.sizes().len()))
        .transpose()
        .map_err(Error::internal)?;
    let counts = (n_items, n_clusters);
    if store::finish(&mut transaction, claim, &seen, counts, &rows).await? {
        transaction.commit().await?;
        tracing::info!(
            suite_id = %claim.suite_id,
            version = claim.suite_version,
            entries = rows.len(),
            seconds = started.elapsed().as_secs_f64(),
            is_final = claim.is_closed,
            "board computed"
        );
    }
    Ok(())
}

/// Returns the items in the tests: the sealed ones, if there are some.
fn ranked(answers: &Answers) -> &AnswerTable {
    answers.sealed.as_ref().unwrap_or(&answers.open)
}

/// Tests each entry without stored tests against all earlier ones, and stores the tests. Sets the
/// entries' positions. New entries are tested in blocks that fit into the memory, and each earlier
/// entry is scored once per block.
async fn test_new_entries(
    context: &AttemptContext,
    claim: &BoardClaim,
    answers: &Arc<Answers>,
    entries: &mut [BoardEntry],
) -> Result<()> {
    let metric = answers.scoring.metric;
    let ranked = ranked(answers);
    let entry_bytes = match ranked.clusters() {
        None => 9 * ranked.len(),
        Some(clusters) => 8 * clusters.sizes().len(),
    };
    let per_block = (BLOCK_BYTES / entry_bytes.max(1)).clamp(1, BLOCK_ENTRIES);
    let is_new = |entry: &BoardEntry| entry.is_tested && entry.position.is_none();
    let last = entries.iter().filter_map(|entry| entry.position).max();
    let mut next_position = last.map_or(0, |last| last + 1);
    let new: Vec<usize> = (0..entries.len())
        .filter(|at| is_new(&entries[*at]))
        .collect();
    for block in new.chunks(per_block) {
        let block_entries: Vec<BoardEntry> = block.iter().map(|at| entries[*at].clone()).collect();
        let mut scored: Vec<ScoredEntry> = Vec::with_capacity(block.len());
        score_entries(context, claim, answers, block_entries, |entry| {
            scored.push(entry);
        })
        .await?;
        let first_position = next_position;
        for scored in &mut scored {
            scored.entry.position = Some(next_position);
            next_position += 1;
        }
        let width = |position: i32| position.unsigned_abs() as usize;
        let mut evidence: Vec<Vec<f32>> = (first_position..next_position)
            .map(|position| vec![0.0; width(position)])
            .collect();
        let earlier = entries
            .iter()
            .filter(|entry| entry.is_tested && entry.position.is_some());
        score_entries(
            context,
            claim,
            answers,
            earlier.cloned().collect(),
            |earlier| {
                let position = width(earlier.entry.position.unwrap_or(0));
                block_in_place(|| {
                    for (scored, evidence) in scored.iter().zip(&mut evidence) {
                        evidence[position] = test_pair(metric, &earlier.items, &scored.items).0;
                    }
                });
            },
        )
        .await?;
        for later in 0..scored.len() {
            block_in_place(|| {
                for earlier in 0..later {
                    evidence[later][width(first_position) + earlier] =
                        test_pair(metric, &scored[earlier].items, &scored[later].items).0;
                }
            });
            // The worker can shut down here.
            tokio::task::yield_now().await;
        }
        store_pairs(context, claim, answers, &scored, &evidence).await?;
        let positions: HashMap<&EntryId, Option<i32>> = scored
            .iter()
            .map(|scored| (&scored.entry.id, scored.entry.position))
            .collect();
        for at in block {
            let position = positions.get(&entries[*at].id).copied().flatten();
            entries[*at].position = position;
        }
    }
    Ok(())
}

/// Stores a block's tests, if the attempt still holds the board.
async fn store_pairs(
    context: &AttemptContext,
    claim: &BoardClaim,
    answers: &Answers,
    scored: &[ScoredEntry],
    evidence: &[Vec<f32>],
) -> Result<()> {
    let Scoring { policy, ladder, .. } = answers.scoring;
    let mut transaction = context.db.get().begin().await?;
    for (scored, evidence) in scored.iter().zip(evidence) {
        // The board shows the job's own value, not its organization's best.
        let mut level = 0;
        let grid = ladder.map(|ladder| (ladder, &mut level));
        let mut figures = policy.disclose(scored.figures.clone(), grid)?;
        if !answers.slice_grids.is_empty() {
            let fields = scored.figures.slices.iter().cloned();
            figures.slices = fields
                .zip(&answers.slice_grids)
                .map(|(field, grids)| {
                    let on_grid = |place: usize, value| {
                        let grid: &Ladder = &grids[place];
                        grid.value(grid.climb(0, value))
                    };
                    field.values_only(on_grid)
                })
                .collect();
        }
        let slices: Vec<FieldSlices> = figures.slices.into_iter().map(FieldSlices::from).collect();
        let pairs = EntryPairs {
            entry_id: scored.entry.id.clone(),
            position: scored.entry.position.unwrap_or(0),
            value: figures.value,
            ci95: figures.estimate.map(|estimate| estimate.ci95.to_vec()),
            n_missing: i32::try_from(scored.n_missing).map_err(Error::internal)?,
            evidence: evidence
                .iter()
                .flat_map(|found| found.to_le_bytes())
                .collect(),
        };
        store::insert_pairs(&mut transaction, claim, &pairs, &slices).await?;
    }
    if store::renew(&mut *transaction, claim).await? {
        transaction.commit().await?;
        return Ok(());
    }
    Err(Error::unavailable("another attempt computes the board"))
}

/// Scores entries, and calls `add` with each, in their order.
async fn score_entries(
    context: &AttemptContext,
    claim: &BoardClaim,
    answers: &Arc<Answers>,
    entries: Vec<BoardEntry>,
    mut add: impl FnMut(ScoredEntry),
) -> Result<()> {
    for entries in entries.chunks(ENTRIES_PER_READ) {
        let job_ids: Vec<&str> = entries.iter().map(|entry| entry.job_id.as_str()).collect();
        let bodies = store::bodies(&context.db.get(), &job_ids).await?;
        let bodies: HashMap<&str, &[u8]> = bodies
            .iter()
            .map(|stored| (stored.job_id.as_str(), stored.body.as_slice()))
            .collect();
        for entries in entries.chunks(PARALLEL) {
            let mut scoring = Vec::with_capacity(PARALLEL);
            for entry in entries {
                let body = bodies.get(entry.job_id.as_str()).copied();
                scoring.push(score_entry(context, claim, answers, entry, body));
            }
            for scored in try_join_all(scoring).await?.into_iter().flatten() {
                add(scored);
            }
        }
    }
    Ok(())
}

/// Scores an entry's predictions. `None` if they are missing: a deleted organization's.
async fn score_entry(
    context: &AttemptContext,
    claim: &BoardClaim,
    answers: &Arc<Answers>,
    entry: &BoardEntry,
    body: Option<&[u8]>,
) -> Result<Option<ScoredEntry>> {
    let place = InputPlace {
        body,
        input_key: entry.input_key.as_deref(),
        upload_id: entry.upload_id.as_ref(),
    };
    let missing = || {
        tracing::warn!(
            entry_id = %entry.id,
            suite_id = %claim.suite_id,
            "the predictions of an entry are missing; its board is computed without it"
        );
        Ok(None)
    };
    let Some(input) = fetch_input(context, &entry.org_id, place).await? else {
        return missing();
    };
    let progress = Arc::<Progress>::default();
    let score = match score_input(
        context,
        Arc::clone(answers),
        input,
        progress,
        ScoredSlices::All,
    )
    .await?
    {
        None => return missing(),
        Some(Ok((score, _))) => score,
        Some(Err(failure)) => {
            return Err(Error::internal(format!(
                "a job that has succeeded cannot be scored again: {failure:?}"
            )));
        }
    };
    let Score {
        n_missing,
        figures,
        items,
        sealed,
        ..
    } = score;
    let (n_missing, figures, items) = match sealed {
        None => (n_missing, figures, items),
        Some(sealed) => (sealed.n_missing, sealed.figures, sealed.items),
    };
    let has_estimate = figures.estimate.is_some();
    let metric = answers.scoring.metric;
    Ok(Some(ScoredEntry {
        entry: entry.clone(),
        items: EntryItems::new(
            metric,
            &items,
            figures.value,
            has_estimate,
            ranked(answers).clusters(),
        ),
        figures,
        n_missing,
    }))
}

/// Returns the board's rows, in order.
fn computed_rows(
    metric: Metric,
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
        .filter(|entry| entry.is_tested)
        .filter_map(|entry| Some((entry, *by_id.get(&entry.id)?)))
        .collect();
    // The best value first. The sort is stable: entries with one value stay in entry order.
    let goodness = |pairs: &EntryPairs| {
        if metric.lower_is_better() {
            -pairs.value
        } else {
            pairs.value
        }
    };
    tested.sort_by(|(_, one), (_, other)| goodness(other).total_cmp(&goodness(one)));
    let found = standings(tested.len(), |i, j| evidence(tested[i].1, tested[j].1));
    let mut placed: Vec<(&BoardEntry, &EntryPairs, Standing)> = tested
        .into_iter()
        .zip(found)
        .map(|((entry, pairs), standing)| (entry, pairs, standing))
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
    placed.sort_by_cached_key(|(entry, _, standing)| key(entry, standing));
    let count = |entry: &BoardEntry, of: fn(&store::GroupCounts) -> i32| {
        counts.get(&entry.id).copied().map_or(0, of)
    };
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    placed
        .into_iter()
        .map(|(entry, pairs, standing)| ComputedRow {
            entry_id: entry.id.clone(),
            tier: number(standing.tier),
            rank_low: number(standing.rank_low),
            rank_high: number(standing.rank_high),
            value: pairs.value,
            ci95: pairs.ci95.as_deref().and_then(|ends| ends.try_into().ok()),
            n_missing: pairs.n_missing,
            n_submissions: count(entry, |counts| counts.n_submissions),
            n_withdrawn: count(entry, |counts| counts.n_withdrawn),
        })
        .collect()
}

/// Returns the result of the test between two entries. The later one stores it.
fn evidence(one: &EntryPairs, other: &EntryPairs) -> Evidence {
    let of = |later: &EntryPairs, earlier: &EntryPairs| {
        let start = 4 * earlier.position.unsigned_abs() as usize;
        let bytes = later.evidence.get(start..start + 4);
        let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0.0, f32::from_le_bytes)
    };
    if one.position < other.position {
        Evidence(of(other, one))
    } else {
        Evidence(-of(one, other))
    }
}
