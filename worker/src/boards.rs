//! Board computation: scores the entered jobs again from their predictions, tests each pair
//! of entries once, and stores the standings.
//!
//! No item score is stored, so that suites whose figures are held back can have boards. The
//! result depends on the entries only: an attempt that dies is repeated with the same figures.

use std::collections::HashMap;
use std::time::Duration;

use assay_core::model::ids::EntryId;
use assay_core::model::slices::FieldSlices;
use assay_core::store::baselines;
use assay_core::store::board_computation::{
    self as store, BoardClaim, BoardEntry, EntryPairs, LEASE,
};
use assay_core::store::{PrimaryPool, within_response_timeout};
use assay_core::{BestEffort as _, Error, Result};
use assay_eval::Scoring;
use assay_eval::board::test_pair;
use futures_util::future::FutureExt as _;
use tokio::sync::watch;
use tokio::task::block_in_place;
use tokio_util::task::AbortOnDropHandle;

use crate::board_entries::{BoardBasis, ScoredEntry, score_entries};
use crate::board_rows::computed_rows;
use crate::context::AttemptContext;

/// Time between two searches for a board that is due.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The memory for entries' items that are tested together, in bytes.
const BLOCK_BYTES: usize = 256 * 1024 * 1024;

/// The most entries that are tested together. After each block the tests are stored, and
/// another attempt continues there.
const BLOCK_ENTRIES: usize = 512;

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

async fn compute(context: &AttemptContext, claim: &BoardClaim) -> Result<()> {
    let started = std::time::Instant::now();
    let answers = context
        .answers
        .get(&claim.suite_id, &claim.suite_version)
        .await?;
    let mut entries = store::entries(&context.db.get(), claim).await?;
    let (suite_id, version) = (&claim.suite_id, &claim.suite_version);
    let baselines = baselines::tested(&context.db.get(), suite_id, version).await?;
    let basis = BoardBasis::new(answers, baselines)?;
    test_new_entries(context, claim, &basis, &mut entries).await?;
    let pairs = store::pairs(&context.db.get(), claim).await?;
    let counts = store::group_counts(&context.db.get(), claim).await?;
    let rows = block_in_place(|| computed_rows(&basis, &entries, &pairs, &counts));
    let seen: Vec<(&EntryId, i32)> = entries
        .iter()
        .map(|entry| (&entry.id, entry.revision))
        .collect();
    let mut transaction = context.db.get().begin().await?;
    let ranked = basis.ranked();
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

/// Tests each entry without stored tests against all earlier ones, and stores the tests. Sets the
/// entries' positions. New entries are tested in blocks that fit into the memory, and each earlier
/// entry is scored once per block.
async fn test_new_entries(
    context: &AttemptContext,
    claim: &BoardClaim,
    basis: &BoardBasis,
    entries: &mut [BoardEntry],
) -> Result<()> {
    let metric = basis.metric();
    let ranked = basis.ranked();
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
        score_entries(context, claim, basis, block_entries, |entry| {
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
            basis,
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
        store_pairs(context, claim, basis, &scored, &evidence).await?;
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
    basis: &BoardBasis,
    scored: &[ScoredEntry],
    evidence: &[Vec<f32>],
) -> Result<()> {
    let answers = &basis.answers;
    let Scoring { policy, ladder, .. } = answers.scoring;
    let mut entries = Vec::with_capacity(scored.len());
    for (scored, evidence) in scored.iter().zip(evidence) {
        let figures = scored.figures.clone();
        let figures = policy.disclose_own(figures, ladder, &answers.slice_grids)?;
        let slices: Vec<FieldSlices> = figures.slices.into_iter().map(FieldSlices::from).collect();
        let vs_baselines = block_in_place(|| {
            let tests = basis.baselines.iter();
            let tests = tests.map(|(_, items)| test_pair(basis.metric(), &scored.items, items).0);
            bytes(tests)
        });
        let pairs = EntryPairs {
            entry_id: scored.entry.id.clone(),
            position: scored.entry.position.unwrap_or(0),
            value: figures.value,
            ci95: figures.estimate.map(|estimate| estimate.ci95.to_vec()),
            n_missing: i32::try_from(scored.n_missing).map_err(Error::internal)?,
            vs_baselines,
            evidence: bytes(evidence.iter().copied()),
        };
        entries.push((pairs, slices));
    }
    let mut transaction = context.db.get().begin().await?;
    // First the board, then its entries, as those who withdraw and remove entries lock them.
    if !store::renew(&mut *transaction, claim).await? {
        return Err(Error::unavailable("another attempt computes the board"));
    }
    for (pairs, slices) in &entries {
        store::insert_pairs(&mut transaction, claim, pairs, slices).await?;
    }
    transaction.commit().await?;
    Ok(())
}

fn bytes(evidence: impl Iterator<Item = f32>) -> Vec<u8> {
    evidence.flat_map(f32::to_le_bytes).collect()
}
