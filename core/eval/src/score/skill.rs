//! The skill: the share of the way from a baseline to the best value, within groups of items.

use std::collections::HashMap;

use serde::Serialize;

use crate::clusters::Clusters;
use crate::skill::SkillBaseline;
use crate::stats::clustered;
use crate::stats::compensated_sum::Sum;
use crate::stats::confidence::{Estimate, estimate_within, stderr_of_mean};

/// A group whose baseline has a smaller share of the largest distance to the best score has no skill:
/// such a distance is a rounding error.
const DISTANCE_MIN: f64 = 1e-12;

/// The range of a skill: no value is better than the best, and a bad one has no bound.
const RANGE: [f64; 2] = [f64::NEG_INFINITY, 1.0];

/// A job's skill: 0 if it is as good as the baseline, 1 if it has the best value, negative if it is worse
/// than the baseline.
///
/// With the mean distances l and u to the best value of the job and of the baseline within a group, the
/// group's skill is 1 − l/u. The value is the mean over the groups, weighted by their numbers of items.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Skill {
    /// The submission whose skill is 0.
    pub baseline: SkillBaseline,
    /// The group field within whose groups the skill is computed. `None`: all items are one group.
    pub within: Option<String>,
    /// The skill, at most 1.
    pub value: f64,
    /// The standard error. `None` if there are too few items or clusters to estimate it.
    pub stderr: Option<f64>,
    /// The 95 % confidence interval: lower and upper end. `None` without a standard error.
    pub ci95: Option<[f64; 2]>,
    /// The method of the interval: `delta`, or with clusters `cluster_t`. `None` without a standard error.
    pub ci_method: Option<&'static str>,
}

impl Skill {
    /// Returns the skill with rounded figures.
    #[must_use]
    pub(crate) fn rounded(self, round: impl Fn(f64) -> f64) -> Self {
        Self {
            value: round(self.value),
            stderr: self.stderr.map(&round),
            ci95: self.ci95.map(|ends| ends.map(&round)),
            ..self
        }
    }
}

/// The scores of a suite's baseline, from which a job's skill is computed.
#[derive(Debug)]
pub struct SkillScores {
    baseline: SkillBaseline,
    within: Option<String>,
    /// The best score of an item.
    best: f64,
    /// The distance of the baseline's score from the best, by ordinal.
    distances: Vec<f64>,
    /// Each item's group, numbered by first appearance. Empty if all items are one group.
    item_groups: Vec<u32>,
    groups: Vec<Group>,
}

/// The items of one group.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    n: f64,
    /// The sum over the baseline's distances.
    distance: f64,
}

impl SkillScores {
    /// Creates the scores from the baseline's score of each item. `labels` has each item's value of the
    /// field `within`; it is empty without such a field.
    ///
    /// # Errors
    /// Returns the label of the first group in which the baseline has the best score for all items; 0
    /// without groups.
    pub(super) fn new(
        (baseline, within): (SkillBaseline, Option<String>),
        best: f64,
        scores: &[f64],
        labels: &[u32],
    ) -> Result<Self, u32> {
        let mut numbers = HashMap::new();
        let item_groups: Vec<u32> = labels
            .iter()
            .map(|label| {
                let next = numbers.len() as u32;
                *numbers.entry(*label).or_insert(next)
            })
            .collect();
        let distances: Vec<f64> = scores.iter().map(|score| (score - best).abs()).collect();
        let mut skill = Self {
            baseline,
            within,
            best,
            distances,
            item_groups,
            groups: vec![Group::default(); numbers.len().max(1)],
        };
        let sums = skill.sums(skill.distances.iter().copied());
        for (group, sum) in skill.groups.iter_mut().zip(sums) {
            group.distance = sum;
        }
        for item in 0..scores.len() {
            let group = skill.group_of(item);
            skill.groups[group].n += 1.0;
        }
        let largest = skill.distances.iter().copied().fold(0.0, f64::max);
        let is_best = |group: &Group| group.distance <= DISTANCE_MIN * largest * group.n;
        match skill.groups.iter().position(is_best) {
            Some(group) => {
                let mut found = numbers.iter();
                let label = found.find(|(_, number)| **number as usize == group);
                Err(label.map_or(0, |(label, _)| *label))
            }
            None => Ok(skill),
        }
    }

    /// Returns the group of the item at this place.
    #[inline]
    fn group_of(&self, item: usize) -> usize {
        self.item_groups
            .get(item)
            .map_or(0, |group| *group as usize)
    }

    /// Returns the sum over each group's terms, which come in the suite's order.
    fn sums(&self, terms: impl Iterator<Item = f64>) -> Vec<f64> {
        let mut sums = vec![Sum::default(); self.groups.len()];
        terms
            .enumerate()
            .for_each(|(item, term)| sums[self.group_of(item)].add(term));
        sums.into_iter().map(Sum::total).collect()
    }

    /// Returns the skill of a job with these scores of the items, which come in the suite's order.
    pub(super) fn skill(
        &self,
        scores: impl Iterator<Item = f64> + Clone,
        clusters: Option<&Clusters>,
    ) -> Skill {
        let distances = scores.map(|score| (score - self.best).abs());
        let ratios = self.ratios(distances.clone());
        let n = self.distances.len();
        let group_skills = ratios.iter().zip(&self.groups);
        let group_skills = group_skills.map(|(ratio, group)| group.n * (1.0 - ratio));
        let value = group_skills.collect::<Sum>().total() / n.max(1) as f64;
        let contributions = self.contributions(&ratios, distances);
        let independent = stderr_of_mean(value, n, contributions.clone());
        let independent = independent.map(|stderr| estimate_within(RANGE, value, stderr, "delta"));
        let estimate = match clusters {
            Some(clusters) => independent.and_then(|independent| {
                clustered::estimate(clusters, &independent, value, RANGE, contributions)
            }),
            None => independent,
        };
        let Self {
            baseline, within, ..
        } = self;
        Skill {
            baseline: *baseline,
            within: within.clone(),
            value,
            stderr: estimate.map(|Estimate { stderr, .. }| stderr),
            ci95: estimate.map(|Estimate { ci95, .. }| ci95),
            ci_method: estimate.map(|Estimate { method, .. }| method),
        }
    }

    /// Returns each group's ratio of the job's mean distance to that of the baseline.
    fn ratios(&self, distances: impl Iterator<Item = f64>) -> Vec<f64> {
        let sums = self.sums(distances).into_iter();
        sums.zip(&self.groups)
            .map(|(sum, group)| sum / group.distance)
            .collect()
    }

    /// Returns the items' contributions, whose mean is the skill: the delta method for ratios of means.
    fn contributions(
        &self,
        ratios: &[f64],
        distances: impl Iterator<Item = f64> + Clone,
    ) -> impl Iterator<Item = f64> + Clone {
        let pairs = distances.zip(&self.distances).enumerate();
        pairs.map(|(item, (distance, of_baseline))| {
            let group = self.group_of(item);
            let (ratio, Group { n, distance: sum }) = (ratios[group], self.groups[group]);
            (1.0 - ratio) - (distance - ratio * of_baseline) * n / sum
        })
    }

    /// Returns the heap memory in bytes: 8 for each item, and 4 more with groups.
    pub fn bytes(&self) -> usize {
        size_of::<f64>() * self.distances.capacity()
            + size_of::<u32>() * self.item_groups.capacity()
            + size_of::<Group>() * self.groups.capacity()
            + self.within.as_ref().map_or(0, String::capacity)
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_distr::StandardNormal;
    use serde_json::Value;

    use super::*;
    use crate::simulation::{allowance, n_samples};

    fn scores_of(best: f64, scores: &[f64], labels: &[u32]) -> SkillScores {
        let within = Some("dataset".to_owned());
        SkillScores::new((SkillBaseline::Uniform, within), best, scores, labels).unwrap()
    }

    #[test]
    fn skill_within_datasets_is_simbench_score() {
        let vectors = include_str!("../../../../tests/vectors/skill.json");
        let vectors: Value = serde_json::from_str(vectors).unwrap();
        let cases = vectors["simbench"].as_array().unwrap();
        assert_eq!(cases.len(), 1000);
        let mut worst = 0.0_f64;
        for case in cases {
            let numbers = |field: &str| -> Vec<f64> {
                let numbers = case[field].as_array().unwrap().iter();
                numbers.map(|number| number.as_f64().unwrap()).collect()
            };
            let labels: Vec<u32> = numbers("groups")
                .iter()
                .map(|label| *label as u32)
                .collect();
            let scores = scores_of(0.0, &numbers("baseline"), &labels);
            let found = scores.skill(numbers("losses").into_iter(), None).value;
            worst = worst.max((100.0 * found - case["score"].as_f64().unwrap()).abs());
        }
        println!("{worst:e}");
        assert!(worst <= 1e-12, "{worst:e}");
    }

    /// Losses of a job and of a baseline, with persons that are good or bad at both.
    struct Sample {
        clusters: Clusters,
        labels: Vec<u32>,
        losses: Vec<f64>,
        baseline: Vec<f64>,
        best: f64,
    }

    /// The kind of a simulated score.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Scores {
        /// Log-normal losses in three groups.
        Losses,
        /// Right or wrong labels in two groups.
        Hits,
    }

    impl Scores {
        /// The shares of the groups among the items.
        fn shares(self) -> &'static [f64] {
            match self {
                Self::Losses => &[0.6, 0.3, 0.1],
                Self::Hits => &[0.7, 0.3],
            }
        }

        /// Returns the means of the losses, or of right labels, of the job and the baseline in a group.
        fn means(self, group: usize) -> [f64; 2] {
            match self {
                Self::Losses => [[0.2, 0.4], [0.5, 0.45], [0.1, 0.6]][group],
                Self::Hits => [[0.7, 0.4], [0.5, 0.3]][group],
            }
        }

        fn best(self) -> f64 {
            match self {
                Self::Losses => 0.0,
                Self::Hits => 1.0,
            }
        }

        fn truth(self) -> f64 {
            let groups = self.shares().iter().enumerate();
            let skill = |(group, share): (usize, &f64)| {
                let [job, baseline] = self.means(group).map(|mean| (mean - self.best()).abs());
                share * (1.0 - job / baseline)
            };
            groups.map(skill).sum()
        }

        /// Draws persons with six items each, in random groups.
        fn draw(self, random: &mut Xoshiro256PlusPlus, n_persons: usize) -> Sample {
            let mut sample = Sample {
                clusters: Clusters::from_labels((0..6 * n_persons).map(|item| (item / 6) as u32)),
                labels: Vec::new(),
                losses: Vec::new(),
                baseline: Vec::new(),
                best: self.best(),
            };
            for _ in 0..n_persons {
                let shared: f64 = random.sample(StandardNormal);
                let persons =
                    [(); 2].map(|()| 0.6 * shared + 0.8 * random.sample::<f64, _>(StandardNormal));
                for _ in 0..6 {
                    let at: f64 = random.random();
                    let mut group = 0;
                    let mut up_to = self.shares()[0];
                    while at >= up_to && group + 1 < self.shares().len() {
                        group += 1;
                        up_to += self.shares()[group];
                    }
                    let means = self.means(group);
                    let [job, baseline] = [0, 1].map(|who| match self {
                        Self::Losses => {
                            let noise: f64 = random.sample(StandardNormal);
                            let spread = 0.3 * persons[who] + 0.3 * noise;
                            means[who] * (spread - 0.09).exp()
                        }
                        // Half of the persons are better by as much as the others are worse.
                        Self::Hits => {
                            let share = means[who] + if persons[who] > 0.0 { 0.25 } else { -0.25 };
                            f64::from(random.random_bool(share))
                        }
                    });
                    sample.labels.push(group as u32);
                    sample.losses.push(job);
                    sample.baseline.push(baseline);
                }
            }
            sample
        }
    }

    impl Sample {
        fn scores(&self) -> SkillScores {
            scores_of(self.best, &self.baseline, &self.labels)
        }
    }

    #[test]
    fn intervals_contain_skill() {
        let samples = n_samples(200);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(34);
        for kind in [Scores::Losses, Scores::Hits] {
            for n_persons in [20, 50, 100, 300] {
                let mut covered = [0_u64; 2];
                for _ in 0..samples {
                    let sample = kind.draw(&mut random, n_persons);
                    let scores = sample.scores();
                    for (count, clusters) in covered.iter_mut().zip([Some(&sample.clusters), None])
                    {
                        let skill = scores.skill(sample.losses.iter().copied(), clusters);
                        let [low, high] = skill.ci95.unwrap();
                        *count += u64::from(low <= kind.truth() && kind.truth() <= high);
                    }
                }
                let [by_cluster, by_item] = covered.map(|count| count as f64 / samples as f64);
                println!(
                    "{kind:?}, {n_persons} persons: {:.1} % by cluster, {:.1} % by item",
                    100.0 * by_cluster,
                    100.0 * by_item
                );
                let allowed = allowance(0.95, samples) + if samples < 1_000 { 0.01 } else { 0.0 };
                assert!(
                    (0.93 - allowed..=0.96 + allowed).contains(&by_cluster),
                    "{kind:?} {n_persons} {by_cluster}"
                );
                assert!(by_item < 0.90, "{kind:?} {n_persons} {by_item}");
            }
        }
    }

    #[test]
    fn stderr_is_that_of_the_jackknife() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        for kind in [Scores::Losses, Scores::Hits] {
            let sample = kind.draw(&mut random, 67);
            let n = 400;
            let without = |left_out: usize| {
                let kept = |item: &usize| *item != left_out;
                let pick = |values: &[f64]| -> Vec<f64> {
                    (0..n).filter(kept).map(|item| values[item]).collect()
                };
                let labels: Vec<u32> = (0..n)
                    .filter(kept)
                    .map(|item| sample.labels[item])
                    .collect();
                let scores = scores_of(sample.best, &pick(&sample.baseline), &labels);
                scores.skill(pick(&sample.losses).into_iter(), None)
            };
            let values: Vec<f64> = (0..n).map(|item| without(item).value).collect();
            let mean = values.iter().sum::<f64>() / n as f64;
            let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
            let jackknife = ((n as f64 - 1.0) / n as f64 * squares).sqrt();
            let all = scores_of(sample.best, &sample.baseline[..n], &sample.labels[..n]);
            let losses = sample.losses[..n].iter().copied();
            let skill = all.skill(losses.clone(), None);
            let ratio = skill.stderr.unwrap() / jackknife;
            println!("{kind:?}: {ratio}");
            assert!((0.98..=1.02).contains(&ratio), "{kind:?} {ratio}");
            let distances = losses.map(|loss| (loss - sample.best).abs());
            let ratios = all.ratios(distances.clone());
            let contributions = all.contributions(&ratios, distances);
            let mean = contributions.collect::<Sum>().total() / n as f64;
            assert!((mean - skill.value).abs() <= 1e-12, "{kind:?} {mean}");
        }
    }

    #[test]
    fn group_with_best_baseline_has_no_skill() {
        let new = |scores: &[f64], labels: &[u32]| {
            SkillScores::new((SkillBaseline::Marginal, None), 1.0, scores, labels).map(|_| ())
        };
        assert_eq!(new(&[0.5, 1.0, 0.5], &[7, 3, 7]), Err(3));
        assert_eq!(new(&[0.5, 1.0, 0.5], &[7, 3, 3]), Ok(()));
        // A rounding error is no distance.
        assert_eq!(new(&[0.5, 1.0 - 1e-16, 0.5], &[7, 3, 7]), Err(3));
        assert_eq!(new(&[1.0, 1.0], &[]), Err(0));
        assert_eq!(new(&[1.0, 0.0], &[]), Ok(()));
    }

    #[test]
    fn skill_takes_at_most_twelve_bytes_for_each_item() {
        let scores: Vec<f64> = (0..1000).map(|item| f64::from(item % 7)).collect();
        let labels: Vec<u32> = (0..1000).map(|item| item % 3).collect();
        assert!(scores_of(0.0, &scores, &labels).bytes() <= 12 * 1000 + 200);
        assert!(scores_of(0.0, &scores, &[]).bytes() <= 8 * 1000 + 200);
    }
}
