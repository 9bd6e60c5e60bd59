//! Cohen's kappa with quadratic weights.

/// The agreement between the places of answers and predictions among C options (J. Cohen 1968). Places i
/// and j agree by 1 − (i − j)²/(C − 1)². A label that is no option, and no prediction, agrees with none.
///
/// All sums are integers, times (C − 1)²: the figure of predictions that are all right is 1, and that of
/// constant predictions is 0.
pub(super) struct WeightedKappa {
    /// (C − 1)².
    scale: i128,
    n: i128,
    /// The summed agreement of the items.
    observed: i128,
    /// The summed agreement of each answer with each prediction.
    chance: i128,
    answers: PlaceSums,
    predictions: PlaceSums,
    are_constant: bool,
}

/// The number of places, their sum, and the sum of their squares.
#[derive(Clone, Copy, Default)]
struct PlaceSums([i128; 3]);

impl PlaceSums {
    fn add(&mut self, place: u32) {
        let place = i128::from(place);
        for (sum, term) in self.0.iter_mut().zip([1, place, place * place]) {
            *sum += term;
        }
    }

    /// Returns the summed agreement of a place with these.
    fn agreement(self, place: u32, scale: i128) -> i128 {
        let place = i128::from(place);
        let Self([n, sum, squares]) = self;
        scale * n - (place * place * n - 2 * place * sum + squares)
    }
}

impl WeightedKappa {
    /// Returns the agreement over items with these places of answers and predictions among `n_options`
    /// options. A label that is no option has no place.
    pub(super) fn new(
        n_options: usize,
        places: impl Iterator<Item = (u32, Option<u32>)> + Clone,
    ) -> Self {
        let scale = (n_options.max(2) as i128 - 1).pow(2);
        let (mut answers, mut predictions) = (PlaceSums::default(), PlaceSums::default());
        let mut observed = 0;
        let first = places.clone().next().map(|(_, predicted)| predicted);
        let mut are_constant = true;
        for (right, predicted) in places.clone() {
            answers.add(right);
            if let Some(predicted) = predicted {
                predictions.add(predicted);
                let distance = i128::from(right) - i128::from(predicted);
                observed += scale - distance * distance;
            }
            are_constant &= Some(predicted) == first;
        }
        let predicted = places.filter_map(|(_, predicted)| predicted);
        let chance = predicted.map(|place| answers.agreement(place, scale)).sum();
        Self {
            scale,
            n: answers.0[0],
            observed,
            chance,
            answers,
            predictions,
            are_constant,
        }
    }

    /// Returns the expected disagreement, times n² and the scale.
    fn rest(&self) -> i128 {
        self.n * self.n * self.scale - self.chance
    }

    /// Returns kappa, from −1 to 1. It is 0 if all predictions are the same.
    pub(super) fn kappa(&self) -> f64 {
        let rest = self.rest();
        if rest > 0 {
            (self.n * self.observed - self.chance) as f64 / rest as f64
        } else {
            0.0
        }
    }

    /// Returns the influence of an item with these places on kappa, times n.
    pub(super) fn influence(&self, right: u32, predicted: Option<u32>) -> f64 {
        let rest = self.rest();
        if rest <= 0 || self.are_constant {
            return 0.0;
        }
        let agreement = predicted.map_or(0, |predicted| {
            let distance = i128::from(right) - i128::from(predicted);
            self.scale - distance * distance
        });
        let with_right = self.predictions.agreement(right, self.scale);
        let with_predicted =
            predicted.map_or(0, |predicted| self.answers.agreement(predicted, self.scale));
        let [n, scale] = [self.n as f64, self.scale as f64];
        let share = |sum: i128| sum as f64 / (n * scale);
        let chance = self.chance as f64 / (n * n * scale);
        let rest = rest as f64 / (n * n * scale);
        let by_agreement = agreement as f64 / scale - share(self.observed);
        let by_chance = share(with_right) + share(with_predicted) - 2.0 * chance;
        by_agreement / rest - (1.0 - share(self.observed)) * by_chance / (rest * rest)
    }
}
