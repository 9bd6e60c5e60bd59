//! Answers in memory, shared by the jobs of one suite's version.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assay_core::Result;
use assay_core::model::suite::SuiteId;
use assay_core::store::work::SuiteScoring;
use assay_core::store::{PgPool, within_response_timeout, work};
use assay_eval::Scoring;
use tokio::sync::OnceCell;

use assay_eval::score::{AnswerTable, Builder};

/// The answers of one suite's version.
pub struct Answers {
    /// How they are scored and disclosed.
    pub scoring: Scoring,
    /// The answers of the open items; without sealed items, of all.
    pub open: AnswerTable,
    /// The answers of the sealed items, if there are any.
    pub sealed: Option<AnswerTable>,
}

impl Answers {
    fn bytes(&self) -> usize {
        self.open.bytes() + self.sealed.as_ref().map_or(0, AnswerTable::bytes)
    }
}

type Key = (SuiteId, String);
type Cell = Arc<OnceCell<Arc<Answers>>>;

/// The tables at hand.
pub struct AnswerCache {
    db: PgPool,
    /// Beyond, tables are dropped, the one used longest ago first. The one in use stays, whatever its size.
    bytes_max: usize,
    cells: Mutex<Cells>,
}

#[derive(Default)]
struct Cells {
    by_key: HashMap<Key, (u64, Cell)>,
    uses: u64,
}

impl AnswerCache {
    /// No tables yet. All together may have this many bytes.
    pub fn new(db: PgPool, bytes_max: usize) -> Self {
        Self {
            db,
            bytes_max,
            cells: Mutex::default(),
        }
    }

    /// The answers of a suite's version. They never change, so they are read once, however many ask at once.
    pub async fn get(&self, suite_id: &SuiteId, version: &str) -> Result<Arc<Answers>> {
        let cell = self.cell((suite_id.clone(), version.to_owned()));
        let mut loaded = false;
        let load = async {
            loaded = true;
            self.load(suite_id, version).await
        };
        let answers = Arc::clone(cell.get_or_try_init(|| load).await?);
        if loaded {
            let mut cells = self.cells();
            let latest = cells.uses;
            cells.shrink(latest, self.bytes_max);
        }
        Ok(answers)
    }

    /// Memory that all tables take.
    pub fn bytes(&self) -> usize {
        self.cells().bytes()
    }

    fn cells(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cell(&self, key: Key) -> Cell {
        let mut cells = self.cells();
        cells.uses += 1;
        let uses = cells.uses;
        let cell = {
            let (used, cell) = cells.by_key.entry(key).or_default();
            *used = uses;
            Arc::clone(cell)
        };
        cells.shrink(uses, self.bytes_max);
        cell
    }

    async fn load(&self, suite_id: &SuiteId, version: &str) -> Result<Arc<Answers>> {
        let SuiteScoring {
            scoring,
            n_items,
            n_sealed,
        } = within_response_timeout(work::scoring(&self.db, suite_id, version)).await?;
        let builder = |n| Builder::new(scoring.metric, n).clip(scoring.clip);
        let (mut open, mut sealed) = (builder(n_items - n_sealed), builder(n_sealed));
        work::answers(
            &self.db,
            suite_id,
            version,
            scoring.metric,
            |item_id, answer, is_sealed| {
                Ok(if is_sealed { &mut sealed } else { &mut open }.push(item_id, answer)?)
            },
        )
        .await?;
        let sealed = if n_sealed > 0 {
            Some(sealed.finish()?)
        } else {
            None
        };
        Ok(Arc::new(Answers {
            scoring,
            open: open.finish()?,
            sealed,
        }))
    }
}

impl Cells {
    fn bytes(&self) -> usize {
        self.by_key
            .values()
            .filter_map(|(_, cell)| cell.get())
            .map(|answers| answers.bytes())
            .sum()
    }

    fn shrink(&mut self, latest: u64, bytes_max: usize) {
        while self.bytes() > bytes_max {
            let oldest = self
                .by_key
                .iter()
                .filter(|(_, (used, _))| *used < latest)
                .min_by_key(|(_, (used, _))| *used);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.by_key.remove(&oldest);
        }
    }
}
