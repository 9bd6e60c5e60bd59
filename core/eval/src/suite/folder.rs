//! The folder that an operator publishes as a suite's version: `suite.toml`, `items.ndjson`,
//! `answers.ndjson`, and possibly `retest.ndjson` and `catalog.ndjson`. It is accepted or rejected as a whole.

use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::access::Access;
use super::answers::{Answer, AnswersCheck};
use super::bad_suite::{BadSuite, BadSuiteCode, first};
use super::baselines::{Baseline, score_baselines};
use super::catalog::{self, FolderCatalog};
use super::commitment::{LinesDigest, Opening, SealSeed};
use super::folder_clusters;
use super::folder_floor::{self, FolderFloor};
use super::folder_skill;
use super::folder_slices::{self, FolderSlices};
use super::folder_tables::FolderTables;
use super::groups::{GroupField, GroupLabels, Groups};
use super::lines::{FolderItem, join_items, read_answers, read_required, without_item};
use super::metadata::{SuiteMetadata, Visibility};
use super::names::{ANSWERS, ITEMS, SUITE};
use super::retest::{self, FolderRetest};
use super::sequence_paths::SequencePaths;
use super::suite_files::{SuiteFiles, in_memory};
use super::suite_toml::{ClusterKey, Protection, SkillKey, SuiteDefinition};
use crate::clusters::Average;
use crate::disclosure::{DisclosurePolicy, Ladder};
use crate::metric::{Clip, Metric};
use crate::quantile_levels::QuantileLevels;
use crate::score::{AnswerTable, Builder, best_trivial, trivial_submissions};

/// A checked suite, ready to be published.
pub struct SuiteFolder {
    /// The suite's id: `suite:<name>`.
    pub suite_id: String,
    /// The version to publish.
    pub version: String,
    /// The metric that a score reports as its value.
    pub metric: Metric,
    /// Set if callers may read single items' scores.
    pub per_item_feedback: bool,
    /// The texts for people, which can change after the publication.
    pub metadata: SuiteMetadata,
    /// The organizations that can see the suite at first; `None` if `suite.toml` does not name it.
    pub visibility: Option<Visibility>,
    /// The organizations that may submit at first; `None` if `suite.toml` does not name it.
    pub access: Option<Access>,
    /// The fields that keep the answers from being computed from scores.
    pub protection: Protection,
    /// The levels of predicted quantiles, if the metric scores quantiles.
    pub quantiles: Option<QuantileLevels>,
    /// The sequence's places in each item's input, if the suite is about sequences. The
    /// content is not checked; see [`SuiteFolder::check_items`].
    pub sequence: Option<SequencePaths>,
    /// The options of the items, in their order; empty if the publisher names none.
    pub labels: Vec<String>,
    /// The publisher's statement about the independence of items, if there is one.
    pub cluster: Option<ClusterKey>,
    /// The unit that has equal weights in a value.
    pub average: Average,
    /// Set if the items' clusters are in the lines of answers.
    pub cluster_is_hidden: bool,
    /// The number of clusters, open and sealed; `None` without clusters. Clusters that an average leaves
    /// out do not count.
    pub n_clusters: Option<usize>,
    /// The slices by each field that `slices` names.
    pub slices: Vec<FolderSlices>,
    /// A slice's smallest item count.
    pub slice_min: usize,
    /// The baseline of the skill, if the suite has one.
    pub skill: Option<SkillKey>,
    /// The scored baselines; empty if the publisher names none.
    pub baselines: Vec<Baseline>,
    /// The items, in file order.
    pub items: Vec<FolderItem>,
    /// The second set of human answers, if there is one.
    pub retest: Option<FolderRetest>,
    /// The ids that a ranking can show, if there is a catalog.
    pub catalog: Option<FolderCatalog>,
    /// The noise floor, if there is no retest and the number of people is known for each item.
    pub floor: Option<FolderFloor>,
    /// Warnings for the publisher. The folder is accepted nevertheless.
    pub warnings: Vec<String>,
    /// The SHA-256 over all other fields but those that can change after the publication: `metadata`,
    /// `visibility` and the access.
    pub content_sha256: [u8; 32],
}

impl SuiteFolder {
    /// Reads and checks a folder. If items are sealed, `suite.toml` must have `seal_seed`; see
    /// [`SuiteFolder::read_files`].
    ///
    /// # Errors
    /// Returns the first error.
    pub fn read(folder: &Path) -> Result<Self, BadSuite> {
        Self::read_files(&folder, None).map_err(first)
    }

    /// Reads and checks the contents of `suite.toml`, `items.ndjson` and `answers.ndjson`, for a suite
    /// without further files.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn parse(suite_toml: &str, items: &str, answers: &str) -> Result<Self, BadSuite> {
        Self::read_files(&in_memory(suite_toml, items, answers, []), None).map_err(first)
    }

    /// Reads and checks all files.
    #[cfg(test)]
    pub(super) fn parse_files(files: &dyn SuiteFiles) -> Result<Self, BadSuite> {
        Self::read_files(files, None).map_err(first)
    }

    /// Reads and checks all files. `default_seed` is the `seal_seed` of a suite with sealed items that
    /// names none, see [`derived_seal_seed`](super::derived_seal_seed).
    ///
    /// # Errors
    /// Returns all errors in `suite.toml`, or another file's first one.
    pub fn read_files(
        files: &dyn SuiteFiles,
        default_seed: Option<&str>,
    ) -> Result<Self, Vec<BadSuite>> {
        let suite_toml = read_required(files, SUITE).map_err(|error| vec![error])?;
        let definition = SuiteDefinition::parse(&suite_toml)?;
        if let Some(data) = &definition.data {
            let message = format!(
                "data.file: {} is a table, which this command does not read; give {ITEMS} and {ANSWERS}",
                data.file
            );
            return Err(vec![
                BadSuite::new(SUITE, 0, message).with_field("data.file"),
            ]);
        }
        Self::read_lines(definition, files, default_seed).map_err(|error| vec![error])
    }

    /// Reads and checks the files of a definition, except for its table: `files` must have the lines of
    /// items and answers. `default_seed` is as in [`SuiteFolder::read_files`].
    ///
    /// # Errors
    /// Returns the first error.
    pub fn read_lines(
        definition: SuiteDefinition,
        files: &dyn SuiteFiles,
        default_seed: Option<&str>,
    ) -> Result<Self, BadSuite> {
        let seal_seed = definition.seal_seed(default_seed)?;
        let SuiteDefinition {
            suite_id,
            version,
            metric,
            per_item_feedback,
            metadata,
            visibility,
            access,
            protection,
            quantiles,
            sequence,
            labels,
            cluster,
            average,
            slices: slice_keys,
            skill,
            baselines,
            data: _,
            skill_line,
            release_line: _,
        } = definition;
        let protection = Protection {
            seal_seed,
            ..protection
        };
        let mut answers = read_answers(&read_required(files, ANSWERS)?, &metric, &labels)?;
        let mut items = join_items(&read_required(files, ITEMS)?, &mut answers)?;
        if let Some((item_id, answer)) = answers.iter().min_by_key(|(_, answer)| answer.line) {
            return Err(without_item(ANSWERS, answer.line, item_id));
        }
        if items.is_empty() {
            let error = BadSuite::new(ITEMS, 0, "a suite needs at least one item");
            return Err(error.with_code(BadSuiteCode::Required));
        }
        folder_clusters::check_places(&items)?;
        let field = cluster.as_ref().and_then(ClusterKey::field);
        let cluster_labels = field
            .map(|field| folder_clusters::assign(&mut items, field))
            .transpose()?;
        let cluster_is_hidden = cluster_labels.as_ref().is_some_and(GroupLabels::are_hidden);
        if let (DisclosurePolicy::Sealed(fraction), Some(seed)) =
            (protection.policy, &protection.seal_seed)
        {
            let n_sealed = fraction.of(items.len());
            let seed = SealSeed::from_text(seed);
            seal_items(&mut items, n_sealed, seed, cluster_labels, metric)
                .map_err(|error| error.with_code(BadSuiteCode::Seal))?;
        }
        let slices =
            folder_slices::assign(&mut items, &slice_keys, (metric, average), &protection)?;
        let skill_values = folder_skill::assign(&mut items, skill.as_ref(), skill_line)?;
        let found = field
            .map(|field| folder_clusters::check(&items, field, metric, average))
            .transpose()?;
        let n_clusters = found.as_ref().map(|found| found.n_clusters);
        let warnings = found.map_or_else(Vec::new, |found| found.warnings);
        let retest = retest::read_file(files)?;
        let mut folder = Self {
            suite_id,
            version,
            metric,
            per_item_feedback,
            metadata,
            visibility,
            access,
            protection,
            quantiles,
            sequence,
            labels,
            cluster,
            average,
            cluster_is_hidden,
            n_clusters,
            slices,
            slice_min: slice_keys.min,
            skill,
            baselines: Vec::new(),
            items,
            retest: None,
            catalog: None,
            floor: None,
            warnings,
            content_sha256: [0; 32],
        };
        let has_floor = retest.is_none()
            && metric.has_noise_floor()
            && folder.items.iter().all(|item| item.n.is_some());
        if retest.is_some() || has_floor || !baselines.is_empty() || folder.skill.is_some() {
            let tables = folder.tables()?;
            if let Some(key) = &folder.skill {
                let checked =
                    folder_skill::check(key, metric, &folder.items, &skill_values, &tables);
                checked.map_err(|reason| BadSuite::new(SUITE, skill_line, reason))?;
                folder
                    .warnings
                    .extend(folder_skill::warning(folder.protection.policy));
            }
            if has_floor && let Some((floor, warnings)) = folder_floor::read_folder(metric, &tables)
            {
                folder.floor = Some(floor);
                folder.warnings.extend(warnings);
            }
            if let Some(text) = retest {
                let (retest, warnings) = retest::read_folder(&text, metric, &tables)?;
                folder.retest = Some(retest);
                folder.warnings.extend(warnings);
            }
            if !baselines.is_empty() {
                folder.baselines = score_baselines(&baselines, metric, &tables, files)?;
            }
        }
        if let Some(text) = catalog::read_file(files)? {
            let (catalog, _) = FolderCatalog::parse(&text, metric)?;
            folder.catalog = Some(catalog);
        }
        folder.content_sha256 = folder.digest();
        Ok(folder)
    }

    /// Returns what opens the commitment to this folder, with this salt.
    pub fn opening(&self, salt: [u8; 32]) -> Opening {
        let (mut items, mut answers) = (LinesDigest::default(), LinesDigest::default());
        for item in &self.items {
            let groups = item.groups.as_ref().map(Groups::to_json);
            items.add(&item.item_id, "input", item.input.get(), groups.as_deref());
            let groups = item.hidden_groups.as_ref().map(Groups::to_json);
            let (item_id, answer) = (&item.item_id, item.answer.get());
            answers.add_answer(item_id, answer, item.n, groups.as_deref());
        }
        Opening {
            salt,
            items_sha256: items.finish(),
            answers_sha256: answers.finish(),
            seed: self
                .protection
                .seal_seed
                .as_deref()
                .map(SealSeed::from_text),
            retest_sha256: self.retest.as_ref().map(|retest| retest.sha256),
        }
    }

    /// Returns the least version of the scorer that knows all keys of the suite, see
    /// [`SCORER`](crate::SCORER).
    pub fn scorer_min(&self) -> i32 {
        let takes_distributions = self.metric.takes_distributions();
        let is_distribution = |item: &FolderItem| {
            item.n.is_some()
                || (takes_distributions && item.answer.get().trim_start().starts_with('{'))
        };
        let needs_third = self.metric.compares_distributions()
            || !self.labels.is_empty()
            || self.skill.is_some()
            || self.catalog.is_some()
            || self.quantiles.is_some()
            || self.items.iter().any(is_distribution);
        let needs_second =
            self.n_clusters.is_some() || !self.slices.is_empty() || self.retest.is_some();
        if needs_third {
            3
        } else if needs_second {
            2
        } else {
            1
        }
    }

    /// Checks each item with `check`, and returns the first error with the item's line.
    pub fn check_items(
        &self,
        check: impl Fn(&FolderItem) -> Result<(), String>,
    ) -> Result<(), BadSuite> {
        self.items.iter().try_for_each(|item| {
            check(item).map_err(|reason| BadSuite::new(ITEMS, item.line, reason))
        })
    }

    /// Returns the open items' answers; without sealed items, all answers.
    pub fn open_answers(&self) -> Result<AnswerTable, BadSuite> {
        self.answers(|item| !item.is_sealed)
    }

    fn tables(&self) -> Result<FolderTables, BadSuite> {
        let has_sealed = self.items.iter().any(|item| item.is_sealed);
        let sealed = has_sealed.then(|| self.answers(|item| item.is_sealed));
        Ok(FolderTables {
            open: self.open_answers()?,
            sealed: sealed.transpose()?,
        })
    }

    /// Returns the answers of the chosen items.
    pub(super) fn answers(
        &self,
        is_chosen: impl Fn(&FolderItem) -> bool,
    ) -> Result<AnswerTable, BadSuite> {
        self.answers_where(self.builder(), is_chosen)
    }

    /// Returns the value of each slice's best trivial submission, by field.
    pub fn slice_trivials(&self) -> Result<Vec<Vec<f64>>, BadSuite> {
        if self.slices.is_empty() {
            return Ok(Vec::new());
        }
        let all = self.answers(|_| true)?;
        let trivial = |field: usize, code: usize| {
            // A slice's bounds and scores are by the labels of all items.
            let mut builder = self.builder();
            let known = builder.know_labels(&all);
            known.map_err(|corrupt| BadSuite::new(ANSWERS, 0, corrupt.to_string()))?;
            let in_slice = |item: &FolderItem| usize::from(item.slices[field]) == code;
            let slice = self.answers_where(builder, in_slice)?;
            let best = best_trivial(&trivial_submissions(&slice, self.metric), self.metric);
            best.map(|best| best.value).ok_or_else(|| {
                let name = &self.slices[field].field;
                let reason = format!("slices: {name}: a slice has no trivial submission");
                BadSuite::new(SUITE, 0, reason)
            })
        };
        let fields = self.slices.iter().enumerate().map(|(field, slices)| {
            let codes = 0..slices.slices.len();
            codes.map(|code| trivial(field, code)).collect()
        });
        fields.collect()
    }

    fn builder(&self) -> Builder {
        Builder::new(self.metric, 0)
            .options(&self.labels)
            .clip(self.protection.clip)
            .quantiles(self.quantiles.clone())
            .average(self.average)
    }

    fn answers_where(
        &self,
        mut builder: Builder,
        is_in: impl Fn(&FolderItem) -> bool,
    ) -> Result<AnswerTable, BadSuite> {
        let bad = |reason: String| BadSuite::new(ANSWERS, 0, reason);
        for item in self.items.iter().filter(|item| is_in(item)) {
            let answer = Answer::parse(item.answer.get(), &self.metric).map_err(bad)?;
            builder
                .push(&item.item_id, &answer)
                .map_err(|corrupt| bad(corrupt.to_string()))?;
            if let Some(cluster) = item.cluster {
                builder.put_into_cluster(cluster);
            }
            if let Some(n) = item.n {
                builder.add_people(n);
            }
        }
        builder.finish().map_err(|corrupt| bad(corrupt.to_string()))
    }

    /// Returns the suite's ladder grid, or `None` if its policy is not a ladder. Fails if no
    /// level lies above the start.
    pub fn ladder(&self, open: &AnswerTable) -> Result<Option<Ladder>, BadSuite> {
        let DisclosurePolicy::Ladder(step) = self.protection.policy else {
            return Ok(None);
        };
        let ladder = Ladder::for_suite(step, self.metric, self.protection.clip, open);
        ladder.map(Some).ok_or_else(|| {
            let best = best_trivial(&trivial_submissions(open, self.metric), self.metric);
            let start = best.map_or_else(String::new, |best| {
                format!(
                    " of the best trivial submission ({}: {})",
                    best.name, best.value
                )
            });
            let reason = format!(
                "release: no step of the ladder lies above the value{start}; choose a smaller step or another policy"
            );
            let error = BadSuite::new(SUITE, 0, reason);
            error.with_code(BadSuiteCode::Ladder).with_field("release")
        })
    }

    fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |text: &str| add_with_length(&mut hash, text.as_bytes());
        [
            self.suite_id.as_str(),
            &self.version,
            &self.metric.to_string(),
            &self.per_item_feedback.to_string(),
        ]
        .into_iter()
        .for_each(&mut add);
        let Protection {
            policy,
            clip,
            max_submissions_per_day,
            max_submissions,
            access: _,
            closes_at,
            seal_seed,
            board,
        } = &self.protection;
        let sequence = self.sequence.as_ref();
        let optional_fields = [
            clip.map(|Clip { low, high }| format!("{low} {high}")),
            max_submissions_per_day.map(|max| max.to_string()),
            max_submissions.map(|max| max.to_string()),
            closes_at.clone(),
            seal_seed.clone(),
            sequence.map(|paths| paths.events.clone()),
            sequence.and_then(|paths| paths.options.clone()),
        ];
        [policy.to_string(), board.to_string()]
            .iter()
            .for_each(|text| add(text));
        for value in &optional_fields {
            // An absent field differs from an empty one.
            add(if value.is_some() { "set" } else { "unset" });
            add(value.as_deref().unwrap_or_default());
        }
        for item in &self.items {
            [&item.item_id, item.input.get(), item.answer.get()]
                .into_iter()
                .for_each(&mut add);
        }
        // What suites without these keys do not have comes last, and not as an item.
        if let Some(cluster) = &self.cluster {
            add("cluster");
            add(cluster.as_str());
        }
        if self.average != Average::default() {
            add("average");
            add(self.average.as_str());
        }
        if !self.labels.is_empty() {
            add("labels");
            self.labels.iter().for_each(|label| add(label));
        }
        for (item, n) in self.items.iter().filter_map(|item| Some((item, item.n?))) {
            ["n", &item.item_id, &n.to_string()]
                .into_iter()
                .for_each(&mut add);
        }
        if !self.slices.is_empty() {
            add("slices");
            add(&self.slice_min.to_string());
            self.slices.iter().for_each(|field| add(&field.field));
        }
        if let Some(SkillKey { baseline, within }) = &self.skill {
            let within = within.as_ref().map_or("", GroupField::as_str);
            ["skill", baseline.as_str(), within]
                .into_iter()
                .for_each(&mut add);
        }
        if let Some(levels) = &self.quantiles {
            add("quantiles");
            levels.names().for_each(&mut add);
        }
        let lines = self.items.iter().flat_map(|item| {
            let groups = [("groups", &item.groups), ("hidden", &item.hidden_groups)];
            groups.map(|(name, groups)| (&item.item_id, name, groups.as_ref()))
        });
        for (item_id, name, groups) in lines {
            if let Some(groups) = groups {
                [name, item_id, &groups.to_json()]
                    .into_iter()
                    .for_each(&mut add);
            }
        }
        if let Some(retest) = &self.retest {
            for bytes in [b"retest".as_slice(), &retest.sha256] {
                add_with_length(&mut hash, bytes);
            }
        }
        if let Some(catalog) = &self.catalog {
            for bytes in [b"catalog".as_slice(), &catalog.sha256] {
                add_with_length(&mut hash, bytes);
            }
        }
        for baseline in &self.baselines {
            let Baseline {
                name,
                kind,
                url,
                predictions_sha256,
                score: _,
            } = baseline;
            let url = url.as_deref().unwrap_or_default();
            for text in ["baseline", name, kind.as_str(), url] {
                add_with_length(&mut hash, text.as_bytes());
            }
            let sha256 = predictions_sha256.as_ref();
            add_with_length(&mut hash, sha256.map_or(&[], |digest| digest.as_slice()));
        }
        hash.finalize().into()
    }
}

/// Adds bytes after their length, so that no two contents have the same encoding.
fn add_with_length(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_le_bytes());
    hash.update(bytes);
}

/// Seals this many items, which the seed draws, or whole clusters with at least so many. The choice
/// depends neither on the file's order nor on any answer. Fails if the metric is not defined for the
/// open items alone, or for the sealed ones.
fn seal_items(
    items: &mut [FolderItem],
    n_sealed: usize,
    seed: SealSeed,
    labels: Option<GroupLabels>,
    metric: Metric,
) -> Result<(), BadSuite> {
    if items.len() < 2 {
        return Err(BadSuite::new(
            ITEMS,
            0,
            "a suite with sealed items needs at least two items",
        ));
    }
    if let Some(labels) = labels {
        let item_clusters: Vec<u32> = items.iter().filter_map(|item| item.cluster).collect();
        let is_sealed = seed.draw_clusters(&labels.into_values(), &item_clusters, n_sealed);
        for (item, is_sealed) in items.iter_mut().zip(is_sealed) {
            item.is_sealed = is_sealed;
        }
        folder_clusters::check_sealed(items)?;
    } else {
        let drawn = seed.draw(items.iter().map(|item| item.item_id.as_str()), n_sealed);
        for at in drawn {
            items[at].is_sealed = true;
        }
    }
    for is_sealed in [false, true] {
        let mut check = AnswersCheck::new(metric);
        let checked = items
            .iter()
            .filter(|item| item.is_sealed == is_sealed)
            .try_for_each(|item| check.add(&Answer::parse(item.answer.get(), &metric)?));
        checked.and_then(|()| check.finish()).map_err(|reason| {
            let which = if is_sealed { "sealed" } else { "open" };
            let reason = format!(
                "release: of the {which} items alone: {reason}; try another seal_seed or fraction"
            );
            BadSuite::new(SUITE, 0, reason)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder(suite: &str, items: &str, answers: &str) -> Result<SuiteFolder, String> {
        let path = std::env::temp_dir().join(format!(
            "assay-suite-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        fs::create_dir_all(&path).unwrap();
        for (file, text) in [(SUITE, suite), (ITEMS, items), (ANSWERS, answers)] {
            fs::write(path.join(file), text).unwrap();
        }
        let read = SuiteFolder::read(&path).map_err(|error| error.to_string());
        fs::remove_dir_all(path).unwrap();
        read
    }

    const GOOD: &str = "suite_id = \"suite:s\"\nversion = \"1\"\nmetric = \"accuracy\"\n";
    const ITEM: &str = "{\"item_id\":\"a\",\"input\":{\"prompt\": \"?\"}}\n";
    const ANSWER: &str = "{\"item_id\":\"a\",\"answer\":\"x\"}\n";

    #[test]
    fn inputs_are_stored_byte_for_byte() {
        let read = folder(GOOD, ITEM, ANSWER).unwrap();
        assert_eq!(read.items[0].input.get(), "{\"prompt\": \"?\"}");
    }

    #[test]
    fn digest_covers_every_field() {
        let digest = |more: &str| {
            folder(&format!("{GOOD}{more}"), ITEM, ANSWER)
                .unwrap()
                .content_sha256
        };
        let default = digest("");
        assert_eq!(default, digest("release = \"exact\"\n"));
        let others = [
            "release = \"rounded(2)\"\n",
            "release = \"ladder(0.01)\"\n",
            "max_submissions_per_day = 5\n",
            "[sequence]\nevents = \"past\"\n",
            "[sequence]\nevents = \"past\"\noptions = \"options\"\n",
        ]
        .map(digest);
        let all: std::collections::HashSet<_> = others.into_iter().chain([default]).collect();
        assert_eq!(all.len(), 6);
        for editable in [
            "title = \"T\"",
            "description = \"D\"",
            "license = \"MIT\"",
            "citation = \"C\"",
            "links = [{label = \"L\", url = \"https://a.example\"}]",
            "tags = [\"votes\"]",
            "contact = \"a@a.example\"",
            "visibility = \"public\"",
            "access = \"granted\"",
        ] {
            assert_eq!(digest(&format!("{editable}\n")), default, "{editable}");
        }
        let read = folder(
            &format!("{GOOD}release = \"ladder(0.01)\"\nmax_submissions_per_day = 5\n"),
            ITEM,
            ANSWER,
        )
        .unwrap();
        let Protection {
            policy,
            max_submissions_per_day,
            ..
        } = read.protection;
        assert_eq!(
            (policy.to_string().as_str(), max_submissions_per_day),
            ("ladder(0.01)", Some(5))
        );
    }

    #[test]
    fn seed_of_opening_key_seals_items() {
        let sealed = |seed: &str| {
            format!("{GOOD}release = \"sealed(0.5)\"\n{seed}closes_at = 2030-01-01T00:00:00Z\n")
        };
        let (items, answers) = person_lines(20, false);
        let without = in_memory(&sealed(""), &items, &answers, []);
        let error = SuiteFolder::read_files(&without, None).err().unwrap();
        assert!(
            error[0]
                .to_string()
                .starts_with("suite.toml:4: seal_seed: selects"),
            "{error:?}"
        );
        let read = SuiteFolder::read_files(&without, Some("s")).unwrap();
        let named = in_memory(&sealed("seal_seed = \"s\"\n"), &items, &answers, []);
        let other = SuiteFolder::read_files(&named, Some("t")).unwrap();
        assert_eq!(read.content_sha256, other.content_sha256);
        assert_eq!(read.protection.seal_seed.as_deref(), Some("s"));
    }

    #[test]
    fn sealed_items_depend_on_seed_only() {
        let lines = |order: &[usize], answer: &dyn Fn(usize) -> String| -> (String, String) {
            let lines_of = |at: &usize| {
                (
                    format!("{{\"item_id\":\"i{at}\",\"input\":{{}}}}\n"),
                    format!("{{\"item_id\":\"i{at}\",\"answer\":{}}}\n", answer(*at)),
                )
            };
            order.iter().map(lines_of).unzip()
        };
        let sealed = |head: &str, order: &[usize], answer: &dyn Fn(usize) -> String| {
            let (items, answers) = lines(order, answer);
            let read = folder(head, &items, &answers)?;
            let mut ids: Vec<String> = read
                .items
                .into_iter()
                .filter(|item| item.is_sealed)
                .map(|item| item.item_id)
                .collect();
            ids.sort();
            Ok::<_, String>(ids)
        };
        let head = |metric: &str, seed: &str| {
            format!(
                "{}release = \"sealed(0.3)\"\nseal_seed = \"{seed}\"\ncloses_at = 2030-01-01T00:00:00Z\n",
                GOOD.replace("accuracy", metric)
            )
        };
        let (up, down): (Vec<usize>, Vec<usize>) = ((0..20).collect(), (0..20).rev().collect());
        let one = sealed(&head("accuracy", "s"), &up, &|at| format!("\"{}\"", at % 2)).unwrap();
        assert_eq!(one.len(), 6);
        assert_eq!(
            sealed(&head("accuracy", "s"), &down, &|_| "\"x\"".into()).unwrap(),
            one,
            "order and answers do not matter"
        );
        assert_ne!(
            sealed(&head("accuracy", "t"), &up, &|_| "\"x\"".into()).unwrap(),
            one
        );
        // The metric must be defined for the open and for the sealed items.
        let with_one_label = |at: usize| {
            format!(
                "\"{}\"",
                if one.contains(&format!("i{at}")) {
                    "a"
                } else {
                    ["a", "b"][at % 2]
                }
            )
        };
        for (metric, reason) in [
            ("auc", "auc is for two labels"),
            ("mcc", "all answers are the same label: mcc is not defined"),
        ] {
            let error = sealed(&head(metric, "s"), &up, &with_one_label).unwrap_err();
            assert!(
                error.contains(&format!("of the sealed items alone: {reason}"))
                    && error.contains("try another seal_seed"),
                "{error}"
            );
        }
        let error = sealed(&head("accuracy", "s"), &[0], &|_| "\"x\"".into()).unwrap_err();
        assert!(error.contains("at least two items"), "{error}");
    }

    /// Returns the lines of items and answers of `n` persons with two items each.
    fn person_lines(n: usize, groups_in_answers: bool) -> (String, String) {
        let groups = |at: usize, here: bool| {
            if here {
                format!(",\"groups\":{{\"person\":\"p{}\"}}", at % n)
            } else {
                String::new()
            }
        };
        let lines_of = |at: usize| {
            (
                format!(
                    "{{\"item_id\":\"i{at}\",\"input\":{{}}{}}}\n",
                    groups(at, !groups_in_answers)
                ),
                format!(
                    "{{\"item_id\":\"i{at}\",\"answer\":\"x\"{}}}\n",
                    groups(at, groups_in_answers)
                ),
            )
        };
        (0..2 * n).map(lines_of).unzip()
    }

    #[test]
    fn items_of_a_person_are_one_cluster() {
        let head = format!("{GOOD}cluster = \"person\"\n");
        let (items, answers) = person_lines(30, false);
        let read = folder(&head, &items, &answers).unwrap();
        assert_eq!((read.n_clusters, read.cluster_is_hidden), (Some(30), false));
        assert_eq!(read.warnings, Vec::<String>::new());
        assert_eq!(read.items[31].cluster, Some(1));
        let (items, answers) = person_lines(5, true);
        let read = folder(&head, &items, &answers).unwrap();
        assert!(read.cluster_is_hidden);
        assert!(
            read.warnings[0].contains("no standard error"),
            "{:?}",
            read.warnings
        );
        let (items, answers) = person_lines(12, true);
        let read = folder(&head, &items, &answers).unwrap();
        assert!(
            read.warnings[0].contains("worth 12.0 equal ones"),
            "{:?}",
            read.warnings
        );
        // The groups are in the committed lines and in the digest of the content.
        let independent = folder(&format!("{GOOD}cluster = \"none\"\n"), &items, &answers).unwrap();
        assert_eq!(
            (independent.n_clusters, independent.items[0].cluster),
            (None, None)
        );
        let without = answers.replace(",\"groups\":{\"person\":\"p3\"}", "");
        let without = folder(GOOD, &items, &without).unwrap();
        let salt = [0; 32];
        let commitment = |folder: &SuiteFolder| folder.opening(salt).commitment();
        assert_eq!(commitment(&read), commitment(&independent));
        assert_ne!(commitment(&read), commitment(&without));
        let digests = [&read, &independent, &without].map(|folder| folder.content_sha256);
        assert!(digests[0] != digests[1] && digests[1] != digests[2]);
    }

    #[test]
    fn whole_clusters_are_sealed() {
        let head = format!(
            "{GOOD}cluster = \"person\"\nrelease = \"sealed(0.3)\"\nseal_seed = \"s\"\ncloses_at = 2030-01-01T00:00:00Z\n"
        );
        let (items, answers) = person_lines(40, true);
        let read = folder(&head, &items, &answers).unwrap();
        let sealed: Vec<bool> = read.items.iter().map(|item| item.is_sealed).collect();
        assert_eq!(sealed[..40], sealed[40..]);
        assert_eq!(sealed.iter().filter(|is_sealed| **is_sealed).count(), 24);
        let (items, answers) = person_lines(20, true);
        let error = folder(&head, &items, &answers).err().unwrap();
        assert!(
            error.contains("the sealed items have 6 clusters, but need 10"),
            "{error}"
        );
    }

    #[test]
    fn bad_clusters_are_rejected_with_location() {
        let (items, answers) = person_lines(12, false);
        let missing = items.replacen(",\"groups\":{\"person\":\"p3\"}", "", 1);
        let head = |cluster: &str| format!("{GOOD}cluster = \"{cluster}\"\n");
        let both = answers.replacen("\"x\"", "\"x\",\"groups\":{\"person\":\"q\"}", 1);
        let named = ITEM.replace("}\n", ",\"groups\":{\"Person\":\"a\"}}\n");
        let group = ITEM.replace("}\n", ",\"groups\":{\"person\":\"a\"}}\n");
        for (suite, items, answers, reason) in [
            (
                head("person"),
                &missing,
                &answers,
                "items.ndjson:4: groups.person is missing; cluster in suite.toml",
            ),
            (
                head("input.user"),
                &items,
                &answers,
                "items.ndjson:1: input.user is missing",
            ),
            (
                head("Person"),
                &items,
                &answers,
                "suite.toml:4: cluster: must be the name of a group field",
            ),
            (
                head("person"),
                &items,
                &both,
                "items.ndjson:1: groups.person is in lines of answers too",
            ),
            (
                head("person"),
                &group,
                &ANSWER.to_owned(),
                "cluster: all items have the same person",
            ),
            (
                GOOD.to_owned(),
                &named,
                &ANSWER.to_owned(),
                "items.ndjson:1: groups: \"Person\" is no name",
            ),
        ] {
            let error = folder(&suite, items, answers).err().unwrap();
            assert!(error.contains(reason), "{error} instead of {reason}");
        }
    }

    #[test]
    fn bad_folder_is_rejected_with_location() {
        let two = format!("{ANSWER}{ANSWER}");
        let cases = [
            (
                GOOD.replace("suite:s", "S"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:1: suite_id: must be",
            ),
            (
                GOOD.replace("accuracy", "speed"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:3: metric: expected one of",
            ),
            (
                format!("{GOOD}extra = 1\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:4: extra: is no key of this table",
            ),
            (
                GOOD.into(),
                format!("{ITEM}{{\n"),
                ANSWER.into(),
                "items.ndjson:2: ",
            ),
            (
                GOOD.into(),
                format!("{ITEM}{ITEM}"),
                ANSWER.into(),
                "items.ndjson:2: item_id \"a\" is repeated; it is also in line 1",
            ),
            (
                GOOD.into(),
                ITEM.replace("{\"prompt\": \"?\"}", "[]"),
                ANSWER.into(),
                "items.ndjson:1: input must be an object",
            ),
            (
                GOOD.into(),
                ITEM.replace('?', &"?".repeat(256 * 1024)),
                ANSWER.into(),
                "items.ndjson:1: input has 262158 bytes; it must not have more than 262144",
            ),
            (
                GOOD.into(),
                ITEM.replace("\"?\"", "1e999"),
                ANSWER.into(),
                "items.ndjson:1: input is not valid JSON (column 16): the number is too large",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                two,
                "answers.ndjson:2: item_id \"a\" is repeated; it is also in line 1",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                ANSWER.replace("\"x\"", "7"),
                "answers.ndjson:1: answer: ",
            ),
            (
                GOOD.replace("accuracy", "rmse"),
                ITEM.into(),
                ANSWER.into(),
                "answers.ndjson:1: answer: the metric rmse takes a number",
            ),
            (
                GOOD.replace("accuracy", "auc"),
                ITEM.into(),
                ANSWER.into(),
                "answers.ndjson: auc is for two labels",
            ),
            (
                GOOD.replace("accuracy", "auc") + "per_item_feedback = true\n",
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:4: per_item_feedback: with auc an item has no score of its own",
            ),
            (
                format!("{GOOD}release = \"rounded(9)\"\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:4: release: expected exact; rounded(d)",
            ),
            (
                format!("{GOOD}release = \"ladder(0.01)\"\nper_item_feedback = true\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:5: per_item_feedback: with release = \"ladder(0.01)\" the scores of single items must not be disclosed",
            ),
            (
                format!("{GOOD}[sequence]\nevents = \"a..b\"\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:5: sequence.events: must be the name of a field",
            ),
            (
                format!("{GOOD}[sequence]\noptions = \"a\"\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:5: sequence.events: this key is required",
            ),
            (
                format!("{GOOD}max_submissions_per_day = 0\n"),
                ITEM.into(),
                ANSWER.into(),
                "suite.toml:4: max_submissions_per_day: must be",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                String::new(),
                "items.ndjson:1: item \"a\" has no answer",
            ),
            (
                GOOD.into(),
                String::new(),
                ANSWER.into(),
                "answers.ndjson:1: there is no item \"a\"",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                "{\"item_id\": \"a\"}\n".into(),
                "answers.ndjson:1: answer: this field is required",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                "{\"item_id\": \"a\", \"answers\": 1, \"answer\": 1}\n".into(),
                "answers.ndjson:1: a line has item_id and answer, and may have n and groups; remove all other",
            ),
            (
                GOOD.into(),
                ITEM.into(),
                "{\"item_id\": \"a\", \"item_id\": \"a\", \"answer\": 1}\n".into(),
                "answers.ndjson:1: a field is given twice",
            ),
            (
                GOOD.into(),
                "{\"item_id\": 1, \"input\": {}}\n".into(),
                ANSWER.into(),
                "items.ndjson:1: item_id must be a string",
            ),
            (
                GOOD.into(),
                "[1]\n".into(),
                ANSWER.into(),
                "items.ndjson:1: must be an object with item_id and input",
            ),
            (
                GOOD.into(),
                "{\"item_id\": \"a\", \"input\": {\"x\": NaN}}\n".into(),
                ANSWER.into(),
                "items.ndjson:1: is not valid JSON (column 33): NaN and infinity are not numbers",
            ),
            (
                GOOD.into(),
                String::new(),
                String::new(),
                "items.ndjson: a suite needs at least one item",
            ),
        ];
        for (suite, items, answers, expected) in cases {
            let error = folder(&suite, &items, &answers).err().unwrap();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
