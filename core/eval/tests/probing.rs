//! What each way of releasing scores is worth: attackers who want the answers of 500 items, each right or wrong, by nothing
//! but submissions, and who know the policy. No server is needed: the rules are pure. The table is in `docs/threats.md`;
//! `cargo test -p assay-eval --test probing -- --nocapture` prints it.
#![expect(clippy::unwrap_used, reason = "these are tests")]

use assay_eval::{Ladder, Metric, Release};

/// How many items there are.
const N: usize = 500;

/// On how many installations each attack is tried.
const TRIALS: u64 = 4;

/// A reproducible source of chance (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// All items, in any order.
    fn order(&mut self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..N).collect();
        for at in (1..N).rev() {
            order.swap(at, (self.next() % (at as u64 + 1)) as usize);
        }
        order
    }
}

/// For each item a label, or none.
type Guess = Vec<Option<bool>>;

/// The platform, as an attacker sees it.
struct Board {
    answers: Vec<bool>,
    release: Release,
    best: Option<f64>,
    /// How many submissions may still come.
    left: usize,
}

impl Board {
    /// What is told of so many right ones, as things stand.
    fn told_of(&self, right: usize) -> f64 {
        let value = right as f64 / N as f64;
        match self.release {
            Release::Exact => value,
            Release::Rounded(decimals) => decimals.round(value),
            Release::Ladder(step) => Ladder { step, metric: Metric::Accuracy }.climb(self.best, value),
        }
    }

    /// The fewest right ones of which at least this is told, as things stand; one more than there are if there are none.
    fn fewest(&self, told: f64) -> usize {
        let (mut low, mut high) = (0, N + 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.told_of(middle) >= told { high = middle } else { low = middle + 1 }
        }
        low
    }

    /// Submits: what is told, and the fewest and the most right ones of which it would have been.
    fn submit(&mut self, guess: &[Option<bool>]) -> Option<(f64, usize, usize)> {
        self.left = self.left.checked_sub(1)?;
        let right = guess.iter().zip(&self.answers).filter(|(guess, answer)| **guess == Some(**answer)).count();
        let told = self.told_of(right);
        let between = (self.fewest(told), self.fewest(told.next_up()) - 1);
        if matches!(self.release, Release::Ladder(_)) {
            self.best = Some(told);
        }
        Some((told, between.0, between.1))
    }
}

/// Sets one label after the other in a base of which just one more right one would be noticed. Where figures are exact any
/// base is such; where they are rounded it is found by leaving items out: which takes no luck, and nine submissions.
fn one_by_one(board: &mut Board, chance: &mut Chance) -> Vec<bool> {
    let mut label: Vec<bool> = (0..N).map(|_| chance.coin()).collect();
    let first = |label: &[bool], n: usize| -> Guess { (0..N).map(|at| (at < n).then_some(label[at])).collect() };
    let Some((full, ..)) = board.submit(&first(&label, N)) else { return label };
    let (mut below, mut enough) = (0, N);
    // Of the first `enough` items as much is told as of all, of the first `below` less.
    while below + 1 < enough {
        let middle = usize::midpoint(below, enough);
        match board.submit(&first(&label, middle)) {
            Some((told, ..)) if told >= full => enough = middle,
            Some(_) => below = middle,
            None => return label,
        }
    }
    let base = first(&label, below);
    for at in (0..N).filter(|at| *at != below) {
        let mut changed = base.clone();
        changed[at] = Some(label[at] ^ (at < below));
        match board.submit(&changed) {
            Some((told, ..)) if told >= full => label[at] = changed[at] == Some(true),
            Some(_) => label[at] = changed[at] != Some(true),
            None => break,
        }
    }
    label
}

/// The same where all figures are told: the last item follows from the number.
fn count_down(board: &mut Board, chance: &mut Chance) -> Vec<bool> {
    let mut label: Vec<bool> = (0..N).map(|_| chance.coin()).collect();
    let base: Guess = label.iter().copied().map(Some).collect();
    let Some((_, right, _)) = board.submit(&base) else { return label };
    let (mut wrong, mut rest) = (N - right, 0..N);
    while rest.len() > 1 {
        let at = rest.start;
        let mut changed = base.clone();
        changed[at] = Some(!label[at]);
        let Some((_, now, _)) = board.submit(&changed) else { break };
        if now > right {
            label[at] = !label[at];
            wrong -= 1;
        }
        rest.start += 1;
    }
    // Of those that are left, more are wrong than right: then all the other way round.
    if 2 * wrong > rest.len() {
        rest.for_each(|at| label[at] = !label[at]);
    }
    label
}

/// Climbs: blocks of items are changed, and stay so when that is told to be better.
fn blocks(size: usize) -> impl Fn(&mut Board, &mut Chance) -> Vec<bool> {
    move |board, chance| {
        let mut label: Vec<bool> = (0..N).map(|_| chance.coin()).collect();
        let whole = |label: &[bool]| -> Guess { label.iter().copied().map(Some).collect() };
        let Some((mut best, ..)) = board.submit(&whole(&label)) else { return label };
        loop {
            let mut changed = label.clone();
            for at in chance.order().into_iter().take(size) {
                changed[at] = !changed[at];
            }
            let Some((told, ..)) = board.submit(&whole(&changed)) else { return label };
            if told > best {
                (best, label) = (told, changed);
            }
        }
    }
}

/// The share of a normal distribution below.
fn normal(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * (z.abs() / std::f64::consts::SQRT_2));
    let poly = t * (0.254_829_592 + t * (-0.284_496_736 + t * (1.421_413_741 + t * (-1.453_152_027 + t * 1.061_405_429))));
    let upper = 0.5 * poly * (-z * z / 2.0).exp();
    if z > 0.0 { 1.0 - upper } else { upper }
}

/// Learns from every answer what it says of each item: by the chance of what was told if the item's label were right, and if
/// it were wrong (assumed density filtering; with exact figures this is boosting by random guesses). As many items are left
/// out as bring what is expected to where the next figure begins, less `reach` deviations; `sure` is how often the likelier
/// label is taken, in place of one by chance.
fn filter(reach: f64, sure: f64) -> impl Fn(&mut Board, &mut Chance) -> Vec<bool> {
    move |board, chance| {
        let mut belief = vec![0.5_f64; N];
        while board.left > 0 {
            let (guess, odds) = draw(board, chance, &belief, reach, sure);
            let Some((_, low, high)) = board.submit(&guess) else { break };
            let (mean, spread) = odds.iter().fold((0.0, 0.0), |(mean, spread), odds| (mean + odds, spread + odds * (1.0 - odds)));
            for at in (0..N).filter(|at| guess[*at].is_some()) {
                let others = (spread - odds[at] * (1.0 - odds[at])).max(0.01).sqrt();
                let share = |mean: f64| {
                    let z = |edge: f64| normal((edge - mean) / others);
                    let below = if low == 0 { 0.0 } else { z(low as f64 - 0.5) };
                    let above = if high == N { 1.0 } else { z(high as f64 + 0.5) };
                    (above - below).max(1e-9)
                };
                let (right, wrong) = (odds[at] * share(mean - odds[at] + 1.0), (1.0 - odds[at]) * share(mean - odds[at]));
                let odds = (right / (right + wrong)).clamp(0.001, 0.999);
                belief[at] = if guess[at] == Some(true) { odds } else { 1.0 - odds };
            }
        }
        belief.into_iter().map(|belief| belief > 0.5).collect()
    }
}

/// A guess of such a kind, and how likely each of its labels is right.
fn draw(board: &Board, chance: &mut Chance, belief: &[f64], reach: f64, sure: f64) -> (Guess, Vec<f64>) {
    let labels: Vec<bool> =
        belief.iter().map(|belief| if chance.unit() < sure && *belief != 0.5 { *belief > 0.5 } else { chance.coin() }).collect();
    let odds_of = |at: usize| if labels[at] { belief[at] } else { 1.0 - belief[at] };
    let expected: f64 = (0..N).map(odds_of).sum();
    // Of a ladder the next rung is all that there is to reach; otherwise the highest figure that can be.
    let next = match board.release {
        Release::Ladder(_) => board.best.map_or(0, |best| board.fewest(best.next_up())),
        Release::Exact | Release::Rounded(_) => board.fewest(board.told_of(expected as usize)),
    };
    let (mut guess, mut odds, mut mean, mut spread) = (vec![None; N], vec![0.0; N], 0.0, 0.0_f64);
    for at in chance.order() {
        if mean + 0.5 + reach * spread.sqrt() >= next as f64 {
            break;
        }
        (guess[at], odds[at]) = (Some(labels[at]), odds_of(at));
        mean += odds[at];
        spread += odds[at] * (1.0 - odds[at]);
    }
    (guess, odds)
}

type Attack = Box<dyn Fn(&mut Board, &mut Chance) -> Vec<bool> + Send + Sync>;

/// Attacks, by name. Of many that were tried these are the best, each against some policy and some number of submissions.
fn attacks(submissions: usize, release: Release) -> Vec<(&'static str, Attack)> {
    let mut all: Vec<(&'static str, Attack)> = vec![
        ("count down", Box::new(count_down)),
        ("one by one", Box::new(one_by_one)),
        ("blocks of 10", Box::new(blocks(10))),
        ("blocks of 40", Box::new(blocks(40))),
    ];
    // Where one by one gets everything, learning from many at once takes long and gets less.
    if submissions < N || matches!(release, Release::Ladder(_)) {
        all.push(("filter, far", Box::new(filter(1.5, 0.6))));
        all.push(("filter, farther", Box::new(filter(2.0, 0.95))));
    }
    if submissions < N {
        all.push(("filter, by chance", Box::new(filter(0.5, 0.0))));
        all.push(("filter, near", Box::new(filter(0.0, 0.3))));
        all.push(("filter, sure", Box::new(filter(0.5, 0.95))));
    }
    all
}

/// How many answers an attack finds, on average.
fn mean(attack: &Attack, release: Release, submissions: usize) -> f64 {
    let right = (1..=TRIALS).map(|trial| {
        let mut chance = Chance(trial);
        let answers: Vec<bool> = (0..N).map(|_| chance.coin()).collect();
        let mut board = Board { answers, release, best: None, left: submissions };
        let told = attack(&mut board, &mut chance);
        told.iter().zip(&board.answers).filter(|(told, answer)| told == answer).count()
    });
    right.sum::<usize>() as f64 / TRIALS as f64
}

/// How many answers the best attack finds, on average, by so many submissions; and its name.
fn found(release: &str, submissions: usize) -> (f64, &'static str) {
    let release: Release = release.parse().unwrap();
    let all = attacks(submissions, release).into_iter().map(|(name, attack)| (mean(&attack, release, submissions), name));
    all.max_by(|one, other| one.0.total_cmp(&other.0)).unwrap()
}

/// The policy, what the best attack finds by 500 submissions and by 50, and by how much the first may differ.
const TABLE: [(&str, f64, f64, f64); 5] = [
    ("exact", 500.0, 318.0, 0.0),
    ("rounded(2)", 495.0, 313.0, 1.0),
    ("rounded(1)", 496.0, 304.0, 1.0),
    ("ladder(0.01)", 362.0, 310.0, 3.0),
    ("ladder(0.05)", 325.0, 295.0, 3.0),
];

#[test]
fn what_each_policy_keeps_from_the_best_attack_is_what_the_documents_say() {
    let rows = std::thread::scope(|scope| {
        let rows = TABLE.map(|(release, ..)| scope.spawn(move || [found(release, 500), found(release, 50)]));
        rows.map(|row| row.join().unwrap())
    });
    for ((release, ..), [many, few]) in TABLE.iter().zip(&rows) {
        println!("| `{release}` | {:.0} ({}) | {:.0} ({}) |", many.0, many.1, few.0, few.1);
    }
    for ((release, by_500, by_50, leeway), [many, few]) in TABLE.iter().zip(&rows) {
        assert!((many.0 - by_500).abs() <= *leeway, "{release}, 500 submissions: {many:?}, not {by_500}");
        assert!((few.0 - by_50).abs() <= 3.0, "{release}, 50 submissions: {few:?}, not {by_50}");
    }
}

#[test]
fn without_submissions_nothing_is_found_but_by_chance() {
    let (right, _) = found("exact", 0);
    assert!((230.0..270.0).contains(&right), "{right}");
}
