//! A board's entries: scored again from their predictions, and reduced to the terms of the tests.

use std::collections::HashMap;
use std::sync::Arc;

use assay_core::store::baselines::TestedBaseline;
use assay_core::store::board_computation::{self as store, BoardClaim, BoardEntry};
use assay_core::{Error, Result};
use assay_eval::Metric;
use assay_eval::board::EntryItems;
use assay_eval::item_scores::ItemScores;
use assay_eval::score::{AnswerTable, Figures, Progress, Score};
use futures_util::future::try_join_all;

use crate::answer_cache::Answers;
use crate::context::AttemptContext;
use crate::evaluation::{ScoredSlices, score_input};
use crate::input::{InputPlace, fetch_input};

/// Entries whose predictions are read by one statement.
const ENTRIES_PER_READ: usize = 64;

/// Entries that are scored at once.
const PARALLEL: usize = 4;

/// An entry whose predictions were scored again.
pub struct ScoredEntry {
    pub entry: BoardEntry,
    pub items: EntryItems,
    pub figures: Figures,
    pub n_missing: i64,
}

/// A board's answers and baselines: entries are scored against the first and tested against the second.
pub struct BoardBasis {
    pub answers: Arc<Answers>,
    /// The names and the items of the suite's baselines, in their order.
    pub baselines: Vec<(String, EntryItems)>,
}

impl BoardBasis {
    pub fn new(answers: Arc<Answers>, baselines: Vec<TestedBaseline>) -> Result<Self> {
        let mut basis = Self {
            answers,
            baselines: Vec::with_capacity(baselines.len()),
        };
        for baseline in baselines {
            let TestedBaseline {
                name,
                value,
                has_stderr,
                item_scores,
            } = baseline;
            let items = ItemScores::read(&item_scores)?;
            let items = basis.terms(&items, value, has_stderr);
            basis.baselines.push((name, items));
        }
        Ok(basis)
    }

    pub fn metric(&self) -> Metric {
        self.answers.scoring.metric
    }

    /// Returns the items in the tests: the sealed ones, if there are some.
    pub fn ranked(&self) -> &AnswerTable {
        let Answers { open, sealed, .. } = &*self.answers;
        sealed.as_ref().unwrap_or(open)
    }

    /// Reduces a submission's item scores to the terms of the tests.
    fn terms(&self, items: &ItemScores, value: f64, has_estimate: bool) -> EntryItems {
        let clusters = self.ranked().clusters();
        EntryItems::new(self.metric(), items, value, has_estimate, clusters)
    }
}

/// Scores entries, and calls `add` with each, in their order.
pub async fn score_entries(
    context: &AttemptContext,
    claim: &BoardClaim,
    basis: &BoardBasis,
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
                scoring.push(score_entry(context, claim, basis, entry, body));
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
    basis: &BoardBasis,
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
        Arc::clone(&basis.answers),
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
    Ok(Some(ScoredEntry {
        entry: entry.clone(),
        items: basis.terms(&items, figures.value, has_estimate),
        figures,
        n_missing,
    }))
}
