//! An audit: the share of a suite's answers that callers can compute from its scores, measured
//! before it is published. Proven bounds come from `assay_eval::disclosure`, attacks from
//! `assay-adversary`.

use assay_adversary::{
    Caps, ITEMS_MAX, Item, Outcome, Rules, Suite, SuiteError, attack, read_shares,
    submissions_until_known,
};
use assay_eval::board::ENTRIES_MAX;
use assay_eval::known_at_most;
use assay_eval::score::{AnswerTable, Trivial, best_trivial, trivial_submissions};
use assay_eval::slices::FieldSlices;
use assay_eval::suite::{
    Access, BadSuite, BoardMode, FolderItem, FolderSlices, Protection, SuiteFolder,
};
use assay_eval::{Answer, DisclosurePolicy, Ladder};
use serde_json::{Value, json};

/// The numbers of submissions that are tried if the suite has no total cap.
const TRIED: [u32; 3] = [18, 50, 500];

/// The policies that are compared with the suite's own.
const OTHERS: [&str; 4] = ["exact", "ladder(0.05)", "ladder(0.1)", "sealed(0.5)"];

/// The largest difference between the proven share of a recommended ladder and chance.
pub const EXCESS_MAX: f64 = 0.1;

/// The ladders that may be recommended, the one with the finest step first.
const LADDERS: [&str; 5] = [
    "ladder(0.01)",
    "ladder(0.02)",
    "ladder(0.05)",
    "ladder(0.1)",
    "ladder(0.2)",
];

/// A cap that allows fewer submissions is not recommended, if a coarser step allows more.
const RECOMMENDED_MIN: u32 = 10;

/// The largest cap that is recommended.
const RECOMMENDED_MAX: u32 = 10_000;

/// The seed of the attacks, so that a repeated audit returns the same figures.
const SEED: u64 = 1;

/// The reason why a suite cannot be audited, nor published.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The folder has an error.
    #[error(transparent)]
    Folder(#[from] BadSuite),
    /// Nobody could submit to the suite.
    #[error(transparent)]
    Suite(#[from] SuiteError),
}

/// A suite and the figures that both the report and the summary contain.
pub struct Audit<'f> {
    folder: &'f SuiteFolder,
    open: AnswerTable,
    ladder: Option<Ladder>,
    /// The share of answers that anybody knows without submissions, by guessing the most frequent
    /// answer.
    chance: f64,
    /// The number of submissions that disclose every open answer.
    known_after: Option<u32>,
    suite: Suite,
    /// Each slice's best trivial value, by field.
    slice_trivials: Vec<Vec<f64>>,
}

impl<'f> Audit<'f> {
    /// Builds the suite as its publication would, and returns the same errors.
    pub fn new(folder: &'f SuiteFolder) -> Result<Self, AuditError> {
        let open = folder.open_answers()?;
        let ladder = folder.ladder(&open)?;
        let suite = attacked(folder, folder.protection.policy)?;
        let (chance, _) = suite.chance();
        let known_after = known_after(folder, &suite);
        let slice_trivials = folder.slice_trivials()?;
        Ok(Self {
            folder,
            open,
            ladder,
            chance,
            known_after,
            suite,
            slice_trivials,
        })
    }

    /// Returns the grids of each field's slices, if the policy is a ladder.
    pub fn slice_ladders(&self) -> Option<Vec<Vec<Ladder>>> {
        self.ladder.map(|ladder| self.slice_grids(ladder))
    }

    /// Returns the grids that slices have under this ladder.
    fn slice_grids(&self, ladder: Ladder) -> Vec<Vec<Ladder>> {
        let clip = self.protection().clip;
        let bounds = self.folder.metric.bounds(clip, self.open.n_options());
        let grid =
            |trivial: &f64| bounds.map_or(ladder, |bounds| ladder.for_slice(bounds, *trivial));
        let fields = self.slice_trivials.iter();
        fields
            .map(|field| field.iter().map(grid).collect())
            .collect()
    }

    /// Returns the most bits that one entry's slices disclose under a ladder.
    fn slice_bits(&self, ladder: Ladder) -> f64 {
        let grids = self.slice_grids(ladder);
        let grids = grids.into_iter().flatten();
        grids.map(Ladder::constant_bits).sum()
    }

    /// Returns the most bits that the suite's constants disclose under a ladder, which are the same in all
    /// results: the ceiling or the noise floor, and the baselines.
    fn constant_bits(&self, ladder: Ladder) -> f64 {
        let SuiteFolder { retest, floor, .. } = self.folder;
        let n_ceilings = f64::from(u8::from(retest.is_some() || floor.is_some()));
        (n_ceilings + self.n_baselines()) * ladder.constant_bits()
    }

    /// Returns the most bits that so many submissions disclose under a ladder: in their scores, in the
    /// suite's constants, and in the slices of all entries that an organization can have.
    fn bits(&self, ladder: Ladder, submissions: u32) -> f64 {
        ladder.bits(submissions)
            + self.constant_bits(ladder)
            + ENTRIES_MAX as f64 * self.slice_bits(ladder)
    }

    fn n_baselines(&self) -> f64 {
        self.folder.baselines.len() as f64
    }

    /// Returns the grid of the suite's ladder.
    pub fn ladder(&self) -> Option<Ladder> {
        self.ladder
    }

    /// Returns the number of open items, the ones that an attacker can learn about.
    fn n_open(&self) -> usize {
        self.open.len()
    }

    /// Returns `true` if an answer is a distribution. It is no symbol that could be known.
    fn has_distributions(&self) -> bool {
        self.suite.public().has_distributions
    }

    /// Returns the answer share that anybody knows without submissions. Null for distributions.
    fn chance(&self) -> Value {
        if self.has_distributions() {
            return Value::Null;
        }
        rounded(self.chance, 4).into()
    }

    fn protection(&self) -> &Protection {
        &self.folder.protection
    }

    /// Returns the total number of submissions that an organization may make.
    fn cap(&self) -> Option<u32> {
        self.protection().max_submissions.map(i32::unsigned_abs)
    }

    /// Returns the caps to try: the suite's own, or [`TRIED`].
    fn tried(&self) -> Vec<u32> {
        self.cap().map_or_else(|| TRIED.to_vec(), |cap| vec![cap])
    }

    /// Returns the summary of a publication, without attacks.
    pub fn summary(&self) -> Value {
        let bound = self
            .ladder
            .zip(self.cap())
            .map(|(ladder, cap)| self.bound(ladder, cap));
        json!({
            "release": self.protection().policy.to_string(),
            "chance": self.chance(),
            "all_open_answers_known_after": self.known_after,
            "ladder": self.ladder.map(grid),
            "bound": bound,
            "warnings": self.warnings(),
        })
    }

    /// Returns the report with the outcomes of the attacks.
    pub fn report(&self) -> Value {
        self.report_while(&|| true)
    }

    /// Does the same, but begins no attack once `may_go_on` returns `false`: `attacks` of the policy is then null.
    pub fn report_while(&self, may_go_on: &dyn Fn() -> bool) -> Value {
        let SuiteFolder {
            suite_id,
            version,
            metric,
            items,
            ..
        } = self.folder;
        let Protection {
            policy,
            clip,
            max_submissions_per_day,
            max_submissions,
            access,
            closes_at,
            seal_seed: _,
            board,
        } = self.protection();
        let trivial = trivial_submissions(&self.open, *metric);
        let recommended = self.recommended(&trivial);
        let own = self.attacks(&self.suite, self.known_after, may_go_on);
        let others = OTHERS
            .iter()
            .filter(|other| **other != policy.to_string())
            .map(|other| self.attacks_under(other, may_go_on));
        let trivial: Vec<Value> = trivial
            .iter()
            .map(|Trivial { name, value, .. }| json!({"submission": name, "value": value}))
            .collect();
        json!({
            "suite_id": suite_id,
            "version": version,
            "metric": metric.to_string(),
            "n_items": items.len(),
            "n_sealed": items.len() - self.n_open(),
            "n_attacked": self.suite.n(),
            "access": access,
            "clip": clip.map(|clip| [clip.low, clip.high]),
            "max_submissions": max_submissions,
            "max_submissions_per_day": max_submissions_per_day,
            "closes_at": closes_at,
            "board": board,
            "board_discloses": self.board_bits(),
            "chance": self.chance(),
            "trivial": trivial,
            "policies": std::iter::once(own).chain(others).collect::<Vec<_>>(),
            "recommended": recommended,
            "warnings": self.warnings(),
        })
    }

    /// Returns the largest number of bits that each entry of the board can disclose under a ladder:
    /// its value on the grid, its tier, its two ranks, its slices and its results against baselines. Null
    /// without a board or a ladder.
    fn board_bits(&self) -> Value {
        let ladder = self
            .ladder
            .filter(|_| self.protection().board != BoardMode::Off);
        let bits_with_entries = |ladder: Ladder, entries: u32| {
            let value_and_ranks =
                f64::from(ladder.levels + 1).log2() + 3.0 * f64::from(entries).log2();
            let slices = self.slice_bits(ladder);
            // Better, worse or not separated.
            let vs_baselines = self.n_baselines() * 3_f64.log2();
            let all = value_and_ranks + slices + vs_baselines;
            json!({
                "entries": entries, "bits_per_entry": rounded(all, 1), "bits_of_slices": rounded(slices, 1),
            })
        };
        ladder.map_or(Value::Null, |ladder| {
            json!([10, 100, 1000].map(|entries| bits_with_entries(ladder, entries)))
        })
    }

    /// Attacks the suite under a policy that is not its own.
    fn attacks_under(&self, release: &str, may_go_on: &dyn Fn() -> bool) -> Value {
        match release
            .parse()
            .map_err(|_| SuiteError::NoGrid)
            .and_then(|policy| attacked(self.folder, policy))
        {
            Ok(suite) => self.attacks(&suite, known_after(self.folder, &suite), may_go_on),
            Err(error) => json!({"release": release, "not_possible": error.to_string()}),
        }
    }

    /// Attacks a suite under its policy, with each cap that is tried.
    fn attacks(
        &self,
        suite: &Suite,
        known_after: Option<u32>,
        may_go_on: &dyn Fn() -> bool,
    ) -> Value {
        let report_with_cap = |submissions: u32| {
            let caps = Caps {
                submissions,
                organizations: 1,
                comparisons_count: has_cap(self.folder),
                entries: ENTRIES_MAX as u32,
            };
            let bound = suite.ladder().map(|ladder| self.bound(ladder, submissions));
            if suite.public().has_distributions {
                let read = read_shares(suite, submissions);
                return json!({
                    "submissions": submissions, "distributions_read": read.map(|read| rounded(read.known, 4)), "bound": bound,
                });
            }
            let Outcome {
                strategy,
                known,
                known_sealed,
                ..
            } = attack(suite, caps, SEED);
            let known_sealed = known_sealed.map(|known| rounded(known, 4));
            json!({
                "submissions": submissions, "known": rounded(known, 4), "known_sealed": known_sealed, "strategy": strategy, "bound": bound,
            })
        };
        // All caps or none, so that the caps of a report can be compared.
        let attacks = may_go_on().then(|| {
            let caps = self.tried().into_iter();
            caps.map(report_with_cap).collect::<Vec<_>>()
        });
        let policy = suite.public().policy;
        json!({
            "release": policy.to_string(),
            "is_configured": policy == self.protection().policy,
            "ladder": suite.ladder().map(grid),
            "all_open_answers_known_after": known_after,
            "attacks": attacks,
        })
    }

    /// Returns the largest share of the open answers that anybody can know after this number of
    /// submissions.
    fn known_at_most(&self, ladder: Ladder, submissions: u32) -> f64 {
        known_at_most(self.bits(ladder, submissions), self.n_open(), self.chance)
    }

    /// Returns the information in the responses to this number of submissions, in bits, and the
    /// bound that it proves: for distributions the bits for each item.
    fn bound(&self, ladder: Ladder, submissions: u32) -> Value {
        let bits = self.bits(ladder, submissions);
        let mut bound = json!({"submissions": submissions, "bits": rounded(bits, 1)});
        if self.has_distributions() {
            bound["bits_per_item"] = rounded(bits / self.n_open() as f64, 4).into();
        } else {
            let known = self.known_at_most(ladder, submissions);
            bound["known_at_most"] = rounded(known, 4).into();
        }
        bound
    }

    /// Returns the largest cap with which a ladder proves at most [`EXCESS_MAX`] above chance.
    fn largest_cap(&self, ladder: Ladder) -> u32 {
        let mut low = 0;
        let mut high = RECOMMENDED_MAX + 1;
        while low + 1 < high {
            let middle = u32::midpoint(low, high);
            if self.known_at_most(ladder, middle) <= self.chance + EXCESS_MAX {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Returns the finest step with a cap of at least [`RECOMMENDED_MIN`] that proves little above
    /// chance, otherwise the step with the largest cap. Returns null if a ladder has no grid, and for
    /// distributions.
    fn recommended(&self, trivial: &[Trivial]) -> Value {
        let SuiteFolder {
            metric, protection, ..
        } = self.folder;
        // A recommendation limits the share of answers that is known.
        let best = best_trivial(trivial, *metric).filter(|_| !self.has_distributions());
        let Some(trivial) = best else {
            return Value::Null;
        };
        let with_cap = |release: &&'static str| {
            let DisclosurePolicy::Ladder(step) = release.parse().ok()? else {
                return None;
            };
            let ladder = Ladder::new(
                step,
                *metric,
                protection.clip,
                self.open.n_options(),
                trivial.value,
            )?;
            Some((*release, ladder, self.largest_cap(ladder))).filter(|(.., cap)| *cap > 0)
        };
        let possible: Vec<(&str, Ladder, u32)> = LADDERS.iter().filter_map(with_cap).collect();
        let finest = possible.iter().find(|(.., cap)| *cap >= RECOMMENDED_MIN);
        let best = finest.or_else(|| possible.iter().max_by_key(|(.., cap)| *cap));
        let Some((release, ladder, cap)) = best.copied() else {
            return Value::Null;
        };
        json!({
            "release": release,
            "max_submissions": cap,
            "levels": ladder.levels,
            "bits": rounded(self.bits(ladder, cap), 1),
            "known_at_most": rounded(self.known_at_most(ladder, cap), 4),
        })
    }

    /// Returns warnings for the time before publication, because a published version never changes.
    fn warnings(&self) -> Vec<String> {
        let Protection {
            policy,
            access,
            max_submissions_per_day,
            ..
        } = self.protection();
        let mut warnings = Vec::new();
        let soon = self
            .known_after
            .map_or_else(|| "some tens to hundreds of".to_owned(), |n| n.to_string());
        let daily = max_submissions_per_day.map_or(String::new(), |_| {
            " A daily cap does not change that: it decides in how many days.".into()
        });
        match policy {
            DisclosurePolicy::Exact => warnings.push(format!(
                "With release = \"exact\" an attacker knows every answer after {soon} submissions.{daily} Use it for open practice only."
            )),
            DisclosurePolicy::Rounded(_) => warnings.push(format!(
                "Rounding does not protect: an attacker knows about every answer after {soon} submissions.{daily} It is for readability."
            )),
            DisclosurePolicy::Sealed(_) => warnings.push(format!(
                "The open items are disclosed as with release = \"exact\": an attacker knows their answers after {soon} submissions. The \
                 sealed ones stay hidden until the close."
            )),
            DisclosurePolicy::Ladder(_) => warnings.extend(self.ladder_warning()),
        }
        if *access == Access::Everyone
            && !matches!(
                policy,
                DisclosurePolicy::Exact | DisclosurePolicy::Rounded(_)
            )
        {
            warnings.push(
                "access = \"everyone\": each user with another email address has an allowance of their own; k of them disclose k times as \
                 much. Use \"verified_domain\" or \"granted\" where that matters."
                    .into(),
            );
        }
        warnings
    }

    fn ladder_warning(&self) -> Option<String> {
        let ladder = self.ladder?;
        let Some(cap) = self.cap() else {
            return Some("A ladder without max_submissions discloses more with every submission; suite audit recommends a cap.".into());
        };
        if self.has_distributions() {
            return None;
        }
        let known = self.known_at_most(ladder, cap);
        (known > self.chance + EXCESS_MAX).then(|| {
            format!(
                "The bound for {cap} submissions is {:.0} % of the answers, where {:.0} % are known without; suite audit recommends a coarser \
                 step or a smaller cap.",
                known * 100.0,
                self.chance * 100.0
            )
        })
    }
}

/// Returns true if each submission and each comparison consumes a part of an allowance.
fn has_cap(folder: &SuiteFolder) -> bool {
    folder.protection.max_submissions.is_some()
        || folder.protection.max_submissions_per_day.is_some()
}

/// Returns the number of submissions that disclose every open answer of the folder's suite under
/// the policy of `suite`. Each slice is one more figure of a submission, and so is the skill.
fn known_after(folder: &SuiteFolder, suite: &Suite) -> Option<u32> {
    let shown = folder.slices.iter().filter(|field| !field.is_hidden);
    let n_slices: usize = shown.map(|field| field.slices.len()).sum();
    let n_figures = 1 + n_slices + usize::from(folder.skill.is_some());
    let figures = u32::try_from(n_figures).unwrap_or(u32::MAX);
    submissions_until_known(suite, folder.items.len(), has_cap(folder))
        .map(|submissions| submissions.div_ceil(figures))
}

/// Rounds a figure to a number of decimals.
fn rounded(figure: f64, decimals: i32) -> f64 {
    let unit = 10_f64.powi(decimals);
    (figure * unit).round() / unit
}

fn grid(ladder: Ladder) -> Value {
    let Ladder {
        start,
        step,
        levels,
    } = ladder;
    json!({"start": start, "step": step, "levels": levels})
}

/// Returns the suite that an attacker would attack under this policy. If no item is sealed, the
/// policy's share of the items is sealed, at regular distances. Under a ladder, the suite's final board
/// has the folder's slices.
fn attacked(folder: &SuiteFolder, policy: DisclosurePolicy) -> Result<Suite, SuiteError> {
    let SuiteFolder {
        metric,
        protection,
        items,
        ..
    } = folder;
    let has_sealed = items.iter().any(|item| item.is_sealed);
    let every = match policy {
        DisclosurePolicy::Sealed(fraction) if !has_sealed => items.len() / fraction.of(items.len()),
        _ => usize::MAX,
    };
    // A large suite is sampled: as many items as are attacked, at regular distances.
    let spread = items.len().div_ceil(ITEMS_MAX).max(1);
    let mut sample = Vec::new();
    for (
        at,
        FolderItem {
            item_id,
            answer,
            is_sealed,
            ..
        },
    ) in items.iter().step_by(spread).enumerate()
    {
        let answer = Answer::parse(answer.get(), metric).map_err(SuiteError::Corrupt)?;
        sample.push(Item {
            item_id: item_id.as_str().into(),
            answer,
            is_sealed: *is_sealed || at % every == every - 1,
        });
    }
    let sampled_slices = |(at, FolderSlices { field, slices, .. }): (usize, &FolderSlices)| {
        let groups = slices.iter().map(|slice| slice.group.clone()).collect();
        let codes = items.iter().step_by(spread).map(|item| item.slices[at]);
        FieldSlices {
            codes: codes.collect(),
            ..FieldSlices::new(field.clone(), groups)
        }
    };
    let fields = folder.slices.iter().enumerate().map(sampled_slices);
    let rules = Rules {
        metric: *metric,
        clip: protection.clip,
        options: &folder.labels,
        levels: folder.quantiles.as_ref(),
    };
    Suite::with_rules(rules, policy, sample)?.with_slices(fields.collect())
}
