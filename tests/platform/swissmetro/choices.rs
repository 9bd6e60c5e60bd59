//! Choices of real persons, what models predict for them, and samples of the persons.

use std::collections::BTreeMap;
use std::path::Path;

use assay_eval::compare::{Aggregate, Difference, Pairs, StoredItems, point};
use assay_eval::score::{AnswerTable, Builder, Progress, Score, score};
use assay_eval::{Answer, Family, Metric};
use rand::rngs::Xoshiro256PlusPlus;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use serde::Deserialize;
use serde_json::{Value, json};

/// The item count of each person.
const PERSON_ITEMS: usize = 9;

/// The place of the label that the question of two labels is about.
const SWISSMETRO: usize = 1;

/// The labels of the yes-or-no question.
const YES_NO: [&str; 2] = ["yes", "no"];

/// A suite's question about each choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    /// One of three labels. The person chooses the train at 9 % of the items.
    Which,
    /// "Does the person choose the Swissmetro?" As a number, the answer is 1 or 0.
    IsSwissmetro,
}

/// A model's predictions, for each item the probabilities of the labels.
type Probabilities = Vec<[f64; 3]>;

/// The file that `tests/vectors/swissmetro.py` writes.
#[derive(Deserialize)]
pub struct Choices {
    labels: [String; 3],
    /// Each item's person. The items of a person follow each other.
    persons: Vec<usize>,
    /// Each item's place in `labels`.
    answers: Vec<usize>,
    models: BTreeMap<String, Probabilities>,
    /// For each model and metric the standard error of statsmodels, with equal and with unequal
    /// numbers of items.
    pub stderr: BTreeMap<String, BTreeMap<String, [f64; 2]>>,
}

impl Choices {
    /// Reads the file.
    pub fn read(path: &Path) -> Self {
        let choices: Self = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert!(choices.persons.is_sorted());
        assert_eq!(choices.persons.len(), PERSON_ITEMS * choices.n_persons());
        choices
    }

    /// Returns the number of persons.
    pub fn n_persons(&self) -> usize {
        self.persons.last().unwrap() + 1
    }

    /// Returns the names of all models.
    pub fn model_names(&self) -> Vec<&str> {
        self.models.keys().map(String::as_str).collect()
    }

    /// Returns a suite of all items, and what these models predict.
    pub fn suite(&self, metric: Metric, question: Question, models: &[&str]) -> Suite {
        let answers = self.answers.iter();
        let predictions = models.iter().map(|model| {
            let probabilities = self.models[*model].iter();
            let predict = |one| self.prediction(metric.family(), question, one).to_string();
            probabilities.map(predict).collect()
        });
        Suite {
            metric,
            answers: answers
                .map(|label| self.answer(metric.family(), question, *label).to_string())
                .collect(),
            predictions: predictions.collect(),
        }
    }

    fn answer(&self, family: Family, question: Question, label: usize) -> Value {
        match (family, question) {
            (Family::Numbers, _) => json!(f64::from(u8::from(label == SWISSMETRO))),
            (_, Question::Which) => json!(self.labels[label]),
            (_, Question::IsSwissmetro) => json!(YES_NO[usize::from(label != SWISSMETRO)]),
        }
    }

    fn prediction(&self, family: Family, question: Question, probabilities: &[f64; 3]) -> Value {
        let swissmetro = probabilities[SWISSMETRO];
        let labels: Vec<(&str, f64)> = match question {
            Question::Which => {
                let labels = self.labels.iter().map(String::as_str);
                labels.zip(probabilities.iter().copied()).collect()
            }
            Question::IsSwissmetro => YES_NO
                .into_iter()
                .zip([swissmetro, 1.0 - swissmetro])
                .collect(),
        };
        match family {
            Family::Numbers | Family::Quantiles => json!(swissmetro),
            Family::Probabilities => json!(labels.into_iter().collect::<BTreeMap<_, _>>()),
            // The first one of equally probable labels.
            Family::Rankings | Family::Labels => {
                let likeliest = labels
                    .into_iter()
                    .rev()
                    .max_by(|(_, one), (_, other)| one.total_cmp(other));
                json!(likeliest.unwrap().0)
            }
        }
    }
}

/// The items of some persons. A person can be in it repeatedly, as different clusters.
pub struct Sample {
    /// Each item's place in the file.
    items: Vec<usize>,
    /// Each item's cluster.
    clusters: Vec<u32>,
    n_clusters: usize,
}

/// Each person's item count in a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// All nine.
    Equal,
    /// One to nine random ones.
    Unequal,
}

impl Sample {
    /// Returns all persons, each with as many items as `size` says.
    pub fn all(choices: &Choices, size: impl Fn(usize) -> usize) -> Self {
        let persons = (0..choices.n_persons()).map(|person| {
            let first = person * PERSON_ITEMS;
            (first..first + size(person)).collect()
        });
        Self::from_items(persons)
    }

    /// Draws persons with replacement: each person of the file is as likely each time.
    pub fn draw(random: &mut Random, choices: &Choices, n_persons: usize, sizes: Sizes) -> Self {
        let persons: Vec<usize> = (0..n_persons)
            .map(|_| random.0.random_range(0..choices.n_persons()))
            .collect();
        Self::from_persons(random, &persons, sizes)
    }

    /// Draws different persons.
    pub fn choose(random: &mut Random, choices: &Choices, n_persons: usize, sizes: Sizes) -> Self {
        let all: Vec<usize> = (0..choices.n_persons()).collect();
        let persons: Vec<usize> = all.sample(&mut random.0, n_persons).copied().collect();
        Self::from_persons(random, &persons, sizes)
    }

    fn from_persons(random: &mut Random, persons: &[usize], sizes: Sizes) -> Self {
        let persons = persons.iter().map(|person| {
            let first = person * PERSON_ITEMS;
            let mut items: Vec<usize> = (first..first + PERSON_ITEMS).collect();
            if sizes == Sizes::Unequal {
                items.shuffle(&mut random.0);
                items.truncate(random.0.random_range(1..=PERSON_ITEMS));
            }
            items
        });
        Self::from_items(persons)
    }

    fn from_items(persons: impl Iterator<Item = Vec<usize>>) -> Self {
        let mut sample = Self {
            items: Vec::new(),
            clusters: Vec::new(),
            n_clusters: 0,
        };
        for items in persons {
            let cluster = sample.n_clusters as u32;
            sample.clusters.extend(items.iter().map(|_| cluster));
            sample.items.extend(items);
            sample.n_clusters += 1;
        }
        sample
    }

    /// Returns the number of clusters.
    pub fn n_clusters(&self) -> usize {
        self.n_clusters
    }
}

/// The random numbers of a campaign.
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Returns the numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Returns for each of `n_jobs` jobs and each cluster a model. The jobs have different models at
    /// each cluster, in random order, so they are equally good.
    pub fn permuted_models(&mut self, sample: &Sample, n_jobs: usize) -> Vec<Vec<usize>> {
        let mut jobs = vec![Vec::new(); n_jobs];
        let mut order: Vec<usize> = (0..n_jobs).collect();
        for _ in 0..sample.n_clusters {
            order.shuffle(&mut self.0);
            for (job, model) in jobs.iter_mut().zip(&order) {
                job.push(*model);
            }
        }
        jobs
    }

    /// Returns for each of two jobs and each cluster a model. The first job has the first model with
    /// probability `share`, otherwise the second one, and the second job has the other one.
    pub fn mixed_models(&mut self, sample: &Sample, share: f64) -> [Vec<usize>; 2] {
        let first: Vec<usize> = (0..sample.n_clusters)
            .map(|_| usize::from(!self.0.random_bool(share)))
            .collect();
        let second = first.iter().map(|model| 1 - model).collect();
        [first, second]
    }
}

/// A suite of all items, and what models predict.
pub struct Suite {
    /// The metric.
    pub metric: Metric,
    answers: Vec<String>,
    predictions: Vec<Vec<String>>,
}

impl Suite {
    /// Returns the answers of a sample.
    pub fn table(&self, sample: &Sample) -> AnswerTable {
        let mut builder = Builder::new(self.metric, sample.items.len());
        for (place, item) in sample.items.iter().enumerate() {
            let answer = Answer::parse(&self.answers[*item], &self.metric).unwrap();
            builder.push(&format!("i{place}"), &answer).unwrap();
            builder.put_into_cluster(sample.clusters[place]);
        }
        builder.finish().unwrap()
    }

    /// Scores a job that has one of the models at each cluster.
    pub fn score(&self, table: &AnswerTable, sample: &Sample, models: &[usize]) -> Score {
        let mut predictions = String::from("[");
        for (place, (item, cluster)) in sample.items.iter().zip(&sample.clusters).enumerate() {
            if place > 0 {
                predictions.push(',');
            }
            predictions += "{\"item_id\":\"i";
            predictions += &place.to_string();
            predictions += "\",\"prediction\":";
            predictions += &self.predictions[models[*cluster as usize]][*item];
            predictions.push('}');
        }
        predictions.push(']');
        let progress = Progress::default();
        score(table, None, self.metric, predictions.as_bytes(), &progress).unwrap()
    }

    /// Compares two jobs by cluster, or as if items were independent.
    pub fn compare(&self, [a, b]: [&Score; 2], clusters: Option<&Sample>) -> Difference {
        let [of_a, of_b] = [a, b].map(|score| {
            let items = &score.items;
            let places = 0..items.len();
            let has_right = items.kind().has_right();
            StoredItems {
                values: places.clone().map(|item| items.value(item)).collect(),
                rights: places
                    .filter(|_| has_right)
                    .map(|item| items.is_right(item))
                    .collect(),
            }
        });
        let rule = |items: &StoredItems| {
            let mut aggregate = Aggregate::new(self.metric);
            aggregate.add(items);
            aggregate.contribution()
        };
        let [value_a, value_b] = [a, b].map(|score| score.figures.value);
        let mut pairs = Pairs::new(self.metric);
        let clusters = clusters.map(|sample| sample.clusters.as_slice());
        pairs.add((&of_a, &rule(&of_a)), (&of_b, &rule(&of_b)), clusters);
        let point = point(self.metric, value_a, value_b);
        pairs.finish(value_a - value_b, point, true)
    }
}
