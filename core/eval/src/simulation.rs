//! Simulated persons, for tests of the statistics by cluster.

use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_distr::StandardNormal;

use crate::clusters::Clusters;

/// Returns the number of simulated samples: the environment variable `TEST_SAMPLES`, or `default`.
pub(crate) fn n_samples(default: u64) -> u64 {
    std::env::var("TEST_SAMPLES").map_or(default, |number| number.parse().unwrap())
}

/// Returns two standard errors of a share among this many samples; 0 with at least 1,000, which a
/// test of the documented figures uses.
pub(crate) fn allowance(share: f64, samples: u64) -> f64 {
    if samples < 1_000 {
        2.0 * (share * (1.0 - share) / samples as f64).sqrt()
    } else {
        0.0
    }
}

/// Checks that a share among the samples is at most `most`, with an [`allowance`].
pub(crate) fn assert_at_most(what: &str, count: u64, samples: u64, most: f64) {
    let share = count as f64 / samples as f64;
    println!("{what}: {:.1} % of {samples}", 100.0 * share);
    assert!(share <= most + allowance(most, samples), "{what}: {share}");
}

/// Item counts of the persons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sizes {
    /// Nine for each.
    Equal,
    /// A log-normal distribution with a median of six.
    Unequal,
    /// As equal, but the first person has a fifth of all items.
    OneLarge,
}

impl Sizes {
    pub(crate) fn draw(self, random: &mut Xoshiro256PlusPlus, n_persons: usize) -> Vec<usize> {
        let mut sizes = vec![9; n_persons];
        match self {
            Self::Equal => {}
            Self::Unequal => sizes.iter_mut().for_each(|size| {
                let normal: f64 = random.sample(StandardNormal);
                *size = ((6.0 * (0.8 * normal).exp()).round() as usize).clamp(1, 60);
            }),
            Self::OneLarge => sizes[0] = 9 * (n_persons - 1) / 4,
        }
        sizes
    }

    pub(crate) fn clusters(sizes: &[usize]) -> Clusters {
        let labels = sizes.iter().enumerate();
        Clusters::from_labels(
            labels.flat_map(|(person, size)| std::iter::repeat_n(person as u32, *size)),
        )
    }
}

/// The items of simulated persons, and what models predict for them. The models differ, but their
/// names are permuted person by person, so all names are equally good.
pub(crate) struct Persons {
    pub(crate) clusters: Clusters,
    /// Each item's answer, one of three classes.
    pub(crate) answers: Vec<usize>,
    /// For each name and item, the predicted class.
    pub(crate) labels: Vec<Vec<usize>>,
    /// For each name and item, the negative logarithm of a probability.
    pub(crate) losses: Vec<Vec<f64>>,
}

impl Persons {
    pub(crate) const CLASSES: [&'static str; 3] = ["x", "y", "z"];

    /// Draws persons. A model suits one person better than another, for all items of the person.
    pub(crate) fn draw(seed: u64, n_persons: usize, n_models: usize, sizes: Sizes) -> Self {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let sizes = sizes.draw(&mut random, n_persons);
        let mut persons = Self {
            clusters: Sizes::clusters(&sizes),
            answers: Vec::new(),
            labels: vec![Vec::new(); n_models],
            losses: vec![Vec::new(); n_models],
        };
        let mut names: Vec<usize> = (0..n_models).collect();
        for size in sizes {
            let favorite = random.random_range(0..3_usize);
            let effects: Vec<f64> = (0..n_models)
                .map(|model| {
                    let spread = 0.8 + 0.4 * model as f64 / n_models as f64;
                    0.5 + spread * random.sample::<f64, _>(StandardNormal)
                })
                .collect();
            names.shuffle(&mut random);
            for _ in 0..size {
                let answer = if random.random_bool(0.5) {
                    favorite
                } else {
                    random.random_range(0..3)
                };
                persons.answers.push(answer);
                let ease = 0.5 * random.sample::<f64, _>(StandardNormal);
                for (effect, name) in effects.iter().zip(&names) {
                    let noise = 0.3 * random.sample::<f64, _>(StandardNormal);
                    let right = 1.0 / (1.0 + (-(effect + ease + noise)).exp());
                    let label = if random.random_bool(right) {
                        answer
                    } else {
                        (answer + random.random_range(1..3)) % 3
                    };
                    persons.labels[*name].push(label);
                    persons.losses[*name].push(-right.ln());
                }
            }
        }
        persons
    }

    /// Returns for each item 1 if a name's label is right, otherwise 0.
    pub(crate) fn hits(&self, name: usize) -> Vec<f64> {
        let pairs = self.labels[name].iter().zip(&self.answers);
        pairs
            .map(|(label, answer)| f64::from(u8::from(label == answer)))
            .collect()
    }
}
