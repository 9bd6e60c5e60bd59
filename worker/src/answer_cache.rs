//! The answer cache in memory, shared by all jobs in the process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use assay_core::model::slices::{StoredSlice, StoredSlices};
use assay_core::model::suite::SuiteId;
use assay_core::store::work::SuiteScoring;
use assay_core::store::{PrimaryPool, suite, within_response_timeout, work};
use assay_core::{Error, Result};
use assay_eval::score::{
    AnswerTable, Builder, CatalogBuilder, CeilingBuilder, SkillGroups, noise_floor_scores,
    score_skill_baseline,
};
use assay_eval::slices::FieldSlices;
use assay_eval::{DisclosurePolicy, Ladder, Metric, Scoring};
use tokio::sync::OnceCell;

/// One suite version's answers.
pub struct Answers {
    /// The version's metric and disclosure policy.
    pub scoring: Scoring,
    /// For each field with slices the grids of its slices, if the policy is a ladder.
    pub slice_grids: Vec<Vec<Ladder>>,
    /// The open items' answers; without sealed items, all answers.
    pub open: AnswerTable,
    /// The sealed items' answers, if there are any.
    pub sealed: Option<AnswerTable>,
}

impl Answers {
    fn bytes(&self) -> usize {
        self.open.bytes() + self.sealed.as_ref().map_or(0, AnswerTable::bytes)
    }
}

type Key = (SuiteId, String);
type Cell = Arc<OnceCell<Arc<Answers>>>;

/// An answer cache by suite and version, limited by memory. The least recently used answers are
/// removed first.
pub struct AnswerCache {
    db: PrimaryPool,
    /// Maximum memory for all tables. The most recently requested one stays, whatever its size.
    bytes_max: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    /// The number of each entry's last request, and the entry.
    by_key: HashMap<Key, (u64, Cell)>,
    /// Request count so far.
    requests: u64,
}

impl AnswerCache {
    /// Creates an empty cache whose tables may use `bytes_max` bytes together.
    pub fn new(db: PrimaryPool, bytes_max: usize) -> Self {
        Self {
            db,
            bytes_max,
            entries: Mutex::default(),
        }
    }

    /// Returns a suite version's answers. They never change; those of a removed version may still be here. Concurrent requests share one database
    /// read.
    pub async fn get(&self, suite_id: &SuiteId, version: &str) -> Result<Arc<Answers>> {
        let cell = self.cell((suite_id.clone(), version.to_owned()));
        let mut is_loaded_now = false;
        let load = async {
            is_loaded_now = true;
            self.load(suite_id, version).await
        };
        let answers = Arc::clone(cell.get_or_try_init(|| load).await?);
        if is_loaded_now {
            let mut entries = self.entries();
            let latest = entries.requests;
            entries.evict(latest, self.bytes_max);
        }
        Ok(answers)
    }

    /// Returns all tables' memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.entries().bytes()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the entry with this key, which is created empty if it is missing.
    fn cell(&self, key: Key) -> Cell {
        let mut entries = self.entries();
        entries.requests += 1;
        let request = entries.requests;
        let cell = {
            let (last_request, cell) = entries.by_key.entry(key).or_default();
            *last_request = request;
            Arc::clone(cell)
        };
        entries.evict(request, self.bytes_max);
        cell
    }

    /// Reads the answers.
    ///
    /// # Errors
    /// 409 if the version was removed: only some of its answers may have been left.
    async fn load(&self, suite_id: &SuiteId, version: &str) -> Result<Arc<Answers>> {
        let answers = self.read(suite_id, version).await;
        let db = self.db.get();
        let removed = suite::ensure_not_removed(&db, suite_id, version);
        within_response_timeout(removed).await?;
        answers
    }

    async fn read(&self, suite_id: &SuiteId, version: &str) -> Result<Arc<Answers>> {
        let SuiteScoring {
            scoring,
            n_items,
            n_sealed,
            slices,
            labels,
            skill,
            floors,
            quantiles,
        } = within_response_timeout(work::scoring(&self.db.get(), suite_id, version)).await?;
        let is_open = |field: &StoredSlices| {
            !(field.is_hidden && matches!(scoring.policy, DisclosurePolicy::Sealed(_)))
        };
        let for_table = |field: &StoredSlices| {
            let groups = field.groups.iter().map(|slice| slice.group.clone());
            FieldSlices::new(field.field.clone(), groups.collect())
        };
        let builder = |n, fields| {
            Builder::new(scoring.metric, n)
                .options(&labels)
                .clip(scoring.clip)
                .average(scoring.average)
                .quantiles(quantiles.clone())
                .slices(fields)
        };
        // Figures of open items by a hidden field would disclose it.
        let open_fields: Vec<&StoredSlices> =
            slices.iter().filter(|field| is_open(field)).collect();
        let open_slices = open_fields.iter().copied().map(for_table).collect();
        let mut open = builder(n_items - n_sealed, open_slices);
        let mut sealed = builder(n_sealed, slices.iter().map(for_table).collect());
        let mut open_codes = Vec::with_capacity(open_fields.len());
        let mut skill_groups = [Vec::new(), Vec::new()];
        work::answers(
            &self.db.get(),
            suite_id,
            version,
            scoring.metric,
            |item, answer| {
                let table = if item.is_sealed {
                    &mut sealed
                } else {
                    &mut open
                };
                table.push(item.item_id, answer)?;
                if let Some(cluster) = item.cluster {
                    table.put_into_cluster(cluster);
                }
                if let Some(n) = item.n_people {
                    table.add_people(n);
                }
                skill_groups[usize::from(item.is_sealed)].extend(item.skill_group);
                if item.is_sealed {
                    table.put_into_slices(item.slices);
                } else {
                    let codes = item.slices.iter().zip(&slices);
                    let codes = codes.filter(|(_, field)| is_open(field));
                    open_codes.clear();
                    open_codes.extend(codes.map(|(code, _)| *code));
                    table.put_into_slices(&open_codes);
                }
                Ok(())
            },
        )
        .await?;
        let mut open = open.finish()?;
        let mut sealed = if n_sealed > 0 {
            Some(sealed.finish()?)
        } else {
            None
        };
        let retest = work::retest(&self.db.get(), suite_id, version).await?;
        let tables = std::iter::once(&mut open).chain(&mut sealed);
        for ((table, floor), groups) in tables.zip(floors).zip(&skill_groups) {
            set_retest(table, scoring.metric, &retest)?;
            let floor = floor.and_then(|floor| noise_floor_scores(table, scoring.metric, floor));
            if let Some(floor) = floor {
                table.set_retest(floor);
            }
            if let Some((baseline, within)) = &skill {
                let groups = SkillGroups {
                    field: within.as_deref(),
                    labels: groups,
                    values: &[],
                };
                let scores = score_skill_baseline(table, scoring.metric, *baseline, groups);
                table.set_skill(scores.map_err(Error::internal)?);
            }
        }
        let catalog = work::catalog(&self.db.get(), suite_id, version).await?;
        if !catalog.is_empty() {
            let mut builder = CatalogBuilder::default();
            for (id, popularity) in &catalog {
                builder.push(id, *popularity).map_err(Error::internal)?;
            }
            open.set_catalog(builder.finish().map_err(Error::internal)?);
        }
        let grids = slices.iter().map(|field| {
            let grids = field.groups.iter().map(StoredSlice::grid);
            grids.collect::<Option<Vec<_>>>()
        });
        Ok(Arc::new(Answers {
            scoring,
            slice_grids: grids.collect::<Option<_>>().unwrap_or_default(),
            open,
            sealed,
        }))
    }
}

/// Scores the retest answers of the table's items, which publishing has checked.
fn set_retest(table: &mut AnswerTable, metric: Metric, retest: &[(String, String)]) -> Result<()> {
    if retest.is_empty() {
        return Ok(());
    }
    let mut ceiling = CeilingBuilder::new(table, metric);
    for (item_id, answers) in retest {
        ceiling.add(item_id, answers).map_err(Error::internal)?;
    }
    let scores = ceiling.finish().map_err(Error::internal)?;
    table.set_retest(scores);
    Ok(())
}

impl Entries {
    fn bytes(&self) -> usize {
        self.by_key
            .values()
            .filter_map(|(_, cell)| cell.get())
            .map(|answers| answers.bytes())
            .sum()
    }

    /// Removes the least recently used entries until the rest fits, but never the one with the
    /// request `latest`.
    fn evict(&mut self, latest: u64, bytes_max: usize) {
        while self.bytes() > bytes_max {
            let oldest = self
                .by_key
                .iter()
                .filter(|(_, (last_request, _))| *last_request < latest)
                .min_by_key(|(_, (last_request, _))| *last_request);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            self.by_key.remove(&oldest);
        }
    }
}
