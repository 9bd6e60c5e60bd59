//! `suite audit`: what callers can compute of a suite's answers from its scores, before it is published. Proven bounds come from
//! `assay_eval::disclosure`, attacks from `assay-adversary`.

use assay_adversary::{Caps, ITEMS_MAX, Item, Outcome, Suite, SuiteError, attack, submissions_until_known};
use assay_core::suite::SuiteAccess;
use assay_core::suite_folder::{FolderItem, Protection, SuiteFolder};
use assay_core::{Answer, DisclosurePolicy, Error, Ladder, Result, Step};
use assay_eval::known_at_most;
use assay_eval::score::{AnswerTable, Trivial, trivial_submissions};
use serde_json::{Value, json};

/// How many submissions are tried where the suite has no cap for good.
const TRIED: [u32; 3] = [18, 50, 500];

/// The policies that are compared with the suite's own.
const OTHERS: [&str; 4] = ["exact", "ladder(0.05)", "ladder(0.1)", "sealed(0.5)"];

/// How many points above chance the proven share of a recommended ladder may lie.
const EXCESS_MAX: f64 = 0.1;

/// The steps that may be recommended, the finest first.
const STEPS: [&str; 5] = ["0.01", "0.02", "0.05", "0.1", "0.2"];

/// A cap that allows fewer submissions is not recommended, if a coarser step allows more.
const RECOMMENDED_MIN: u32 = 10;

/// A larger cap is not looked for.
const RECOMMENDED_MAX: u32 = 10_000;

/// The attacks are the same each time.
const SEED: u64 = 1;

/// What a suite discloses, from which the report and the warnings are made.
pub struct Audit<'f> {
    folder: &'f SuiteFolder,
    open: AnswerTable,
    trivial: Vec<Trivial>,
    ladder: Option<Ladder>,
    /// The share of answers that anybody knows without submissions: the most frequent one for each item.
    chance: f64,
    suite: Suite,
}

impl<'f> Audit<'f> {
    /// Builds the suite as it would be published. The error is that of `suite publish`.
    pub fn new(folder: &'f SuiteFolder) -> Result<Self> {
        let unusable = |error: &dyn ToString| Error::field("command", "refused", error.to_string());
        let open = folder.open_answers().map_err(|error| unusable(&error))?;
        let ladder = folder.ladder(&open).map_err(|error| unusable(&error))?;
        let trivial = trivial_submissions(&open, folder.metric);
        let suite = attacked(folder, folder.protection.policy).map_err(|error| unusable(&error))?;
        let chance = attack(&suite, Caps { submissions: 0, organizations: 1, comparisons_count: true }, SEED).chance;
        Ok(Self { folder, open, trivial, ladder, chance, suite })
    }

    /// The grid of the suite's ladder.
    pub fn ladder(&self) -> Option<Ladder> {
        self.ladder
    }

    /// The number of open items: those that an attacker learns something of.
    fn n_open(&self) -> usize {
        self.open.len()
    }

    fn protection(&self) -> &Protection {
        &self.folder.protection
    }

    fn has_cap(&self) -> bool {
        self.protection().max_submissions.is_some() || self.protection().max_submissions_per_day.is_some()
    }

    /// How many submissions an organization may make for good.
    fn cap(&self) -> Option<u32> {
        self.protection().max_submissions.map(i32::unsigned_abs)
    }

    /// The caps to try: the suite's own, or some.
    fn tried(&self) -> Vec<u32> {
        self.cap().map_or_else(|| TRIED.to_vec(), |cap| vec![cap])
    }

    /// The summary that `suite publish` prints, without attacks.
    pub fn summary(&self) -> Value {
        let bound = self.ladder.zip(self.cap()).map(|(ladder, cap)| self.bound(ladder, cap));
        json!({
            "release": self.protection().policy.to_string(),
            "chance": rounded(self.chance, 4),
            "all_open_answers_known_after": submissions_until_known(&self.suite, self.folder.items.len(), self.has_cap()),
            "ladder": self.ladder.map(grid),
            "bound": bound,
            "warnings": self.warnings(),
        })
    }

    /// The whole report, with what the attacks find.
    pub fn report(&self) -> Value {
        let SuiteFolder { suite_id, version, metric, items, .. } = self.folder;
        let Protection { policy, clip, max_submissions_per_day, max_submissions, access, closes_at, seal_seed: _ } = self.protection();
        let own = self.policy(&policy.to_string(), Some(&self.suite));
        let others = OTHERS.iter().filter(|other| **other != policy.to_string()).map(|other| self.policy(other, None));
        let trivial: Vec<Value> = self.trivial.iter().map(|Trivial { name, value }| json!({"submission": name, "value": value})).collect();
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
            "chance": rounded(self.chance, 4),
            "trivial": trivial,
            "policies": std::iter::once(own).chain(others).collect::<Vec<_>>(),
            "recommended": self.recommended(),
            "warnings": self.warnings(),
        })
    }

    /// One policy: its grid and bound, and what the attacks know, for each cap that is tried.
    fn policy(&self, text: &str, own: Option<&Suite>) -> Value {
        let built;
        let suite = match own {
            Some(suite) => suite,
            None => match text.parse().map_err(|_| SuiteError::NoGrid).and_then(|policy| attacked(self.folder, policy)) {
                Ok(suite) => {
                    built = suite;
                    &built
                }
                Err(error) => return json!({"release": text, "not_possible": error.to_string()}),
            },
        };
        let caps = self.tried();
        let of_cap = |submissions: u32| {
            let caps = Caps { submissions, organizations: 1, comparisons_count: self.has_cap() };
            let Outcome { strategy, known, known_sealed, .. } = attack(suite, caps, SEED);
            let bound = suite.ladder().map(|ladder| self.bound(ladder, submissions));
            let known_sealed = known_sealed.map(|known| rounded(known, 4));
            json!({
                "submissions": submissions, "known": rounded(known, 4), "known_sealed": known_sealed, "strategy": strategy, "bound": bound,
            })
        };
        json!({
            "release": text,
            "is_configured": own.is_some(),
            "ladder": suite.ladder().map(grid),
            "all_open_answers_known_after": submissions_until_known(suite, self.folder.items.len(), self.has_cap()),
            "attacks": caps.into_iter().map(of_cap).collect::<Vec<_>>(),
        })
    }

    /// What the responses to this many submissions can carry at most.
    fn bound(&self, ladder: Ladder, submissions: u32) -> Value {
        let bits = ladder.bits(submissions);
        let known = known_at_most(bits, self.n_open(), self.chance);
        json!({"submissions": submissions, "bits": rounded(bits, 1), "known_at_most": rounded(known, 4)})
    }

    /// The largest cap with which a ladder proves at most [`EXCESS_MAX`] above chance.
    fn largest_cap(&self, ladder: Ladder) -> u32 {
        let is_enough = |k: &u32| known_at_most(ladder.bits(*k), self.n_open(), self.chance) <= self.chance + EXCESS_MAX;
        let (mut low, mut high) = (0, RECOMMENDED_MAX + 1);
        while low + 1 < high {
            let middle = u32::midpoint(low, high);
            if is_enough(&middle) { low = middle } else { high = middle }
        }
        low
    }

    /// The finest step with a cap of at least [`RECOMMENDED_MIN`] that proves little above chance; else the step with the
    /// largest cap. Null where a ladder has no grid.
    fn recommended(&self) -> Value {
        let SuiteFolder { metric, protection, .. } = self.folder;
        let of_step = |step: &&str| {
            let DisclosurePolicy::Ladder(step) = format!("ladder({step})").parse().ok()? else { return None };
            let ladder = Ladder::of_suite(step, *metric, protection.clip, &self.open)?;
            Some((step, ladder, self.largest_cap(ladder))).filter(|(.., cap)| *cap > 0)
        };
        let possible: Vec<(Step, Ladder, u32)> = STEPS.iter().filter_map(of_step).collect();
        let finest = possible.iter().find(|(.., cap)| *cap >= RECOMMENDED_MIN);
        let Some((step, ladder, cap)) = finest.or_else(|| possible.iter().max_by_key(|(.., cap)| *cap)) else { return Value::Null };
        let bits = ladder.bits(*cap);
        json!({
            "release": DisclosurePolicy::Ladder(*step).to_string(),
            "max_submissions": cap,
            "levels": ladder.levels,
            "bits": rounded(bits, 1),
            "known_at_most": rounded(known_at_most(bits, self.n_open(), self.chance), 4),
        })
    }

    /// What the publisher should know: a published version cannot be changed.
    fn warnings(&self) -> Vec<String> {
        let Protection { policy, access, max_submissions_per_day, .. } = self.protection();
        let mut warnings = Vec::new();
        let soon = submissions_until_known(&self.suite, self.folder.items.len(), self.has_cap());
        let soon = soon.map_or_else(|| "some tens to hundreds of".to_owned(), |n| n.to_string());
        let daily =
            max_submissions_per_day.map_or(String::new(), |_| " A daily cap does not change that: it decides in how many days.".into());
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
        if *access == SuiteAccess::Everyone && !matches!(policy, DisclosurePolicy::Exact | DisclosurePolicy::Rounded(_)) {
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
        let known = known_at_most(ladder.bits(cap), self.n_open(), self.chance);
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

/// A figure with so many decimals, for people.
fn rounded(figure: f64, decimals: i32) -> f64 {
    let unit = 10_f64.powi(decimals);
    (figure * unit).round() / unit
}

fn grid(ladder: Ladder) -> Value {
    let Ladder { start, step, levels } = ladder;
    json!({"start": start, "step": step, "levels": levels})
}

/// The suite as an attacker would meet it with this policy. Of one without sealed items of its own, the policy's share is
/// sealed, by the items' places.
fn attacked(folder: &SuiteFolder, policy: DisclosurePolicy) -> Result<Suite, SuiteError> {
    let SuiteFolder { metric, protection, items, .. } = folder;
    let has_sealed = items.iter().any(|item| item.is_sealed);
    let every = match policy {
        DisclosurePolicy::Sealed(fraction) if !has_sealed => items.len() / fraction.of(items.len()),
        _ => usize::MAX,
    };
    // Of a large suite as many items as are attacked, evenly spread.
    let spread = items.len().div_ceil(ITEMS_MAX).max(1);
    let mut sample = Vec::new();
    for (at, FolderItem { item_id, answer, is_sealed, input: _ }) in items.iter().step_by(spread).enumerate() {
        let answer = Answer::parse(answer.get(), metric).map_err(SuiteError::Corrupt)?;
        sample.push(Item { item_id: item_id.as_str().into(), answer, is_sealed: *is_sealed || at % every == every - 1 });
    }
    Suite::new(*metric, protection.clip, policy, sample)
}
