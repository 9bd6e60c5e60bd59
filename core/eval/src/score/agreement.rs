//! Agreement between predicted labels and answers beyond chance.

/// Sums over the table of answers and predictions, times n². They are exact, so that the figure of
/// predictions that are all right is 1, and that of constant predictions is 0.
pub(super) struct Agreement {
    n: f64,
    /// The share of right predictions minus the share by chance.
    covariance: f64,
    /// The probability that two answers differ.
    answers: f64,
    /// The probability that two predictions differ.
    predictions: f64,
    /// The share of right predictions by chance.
    chance: f64,
    n_right: f64,
}

/// One label's shares.
pub(super) struct LabelShares {
    /// The share of items whose answer it is.
    answers: f64,
    /// The share of items that were predicted to have it.
    predictions: f64,
}

impl Agreement {
    /// Returns the agreement over `n` items. `counts` has for each label the number of items whose
    /// answer it is, and the number of those that were predicted to have it.
    pub(super) fn new(n: usize, n_right: usize, counts: impl Iterator<Item = [u32; 2]>) -> Self {
        let (mut chance, mut answers, mut predictions) = (0, 0, 0);
        for [support, predicted] in counts {
            let [support, predicted] = [support, predicted].map(u128::from);
            chance += support * predicted;
            answers += support * support;
            predictions += predicted * predicted;
        }
        let [items, right] = [n, n_right].map(|count| count as u128);
        // The sums are below 2^64, so that no difference overflows.
        let minus = |one: u128, other: u128| (one as i128 - other as i128) as f64;
        Self {
            n: n as f64,
            covariance: minus(items * right, chance),
            answers: minus(items * items, answers),
            predictions: minus(items * items, predictions),
            chance: chance as f64,
            n_right: n_right as f64,
        }
    }

    /// Returns the shares of a label with these counts.
    pub(super) fn shares(&self, [support, predicted]: [u32; 2]) -> LabelShares {
        LabelShares {
            answers: f64::from(support) / self.n,
            predictions: f64::from(predicted) / self.n,
        }
    }

    /// Returns Matthews' correlation for any number of labels, from −1 to 1 (J. Gorodkin 2004). It is
    /// 0 if all predictions or all answers are the same.
    pub(super) fn mcc(&self) -> f64 {
        let product = self.answers * self.predictions;
        if product > 0.0 {
            (self.covariance / product.sqrt()).clamp(-1.0, 1.0)
        } else {
            0.0
        }
    }

    /// Returns an item's influence on Matthews' correlation, times n. `hit` is 1 if the prediction is
    /// right, otherwise 0. Then come the shares of the right and of the predicted label.
    pub(super) fn influence_on_mcc(&self, hit: f64, [right, predicted]: &[LabelShares; 2]) -> f64 {
        let square = self.n * self.n;
        let [answers, predictions] = [self.answers / square, self.predictions / square];
        if answers == 0.0 || predictions == 0.0 {
            return 0.0;
        }
        let by_covariance = self.influence_on_covariance(hit, right, predicted);
        let by_variances = (right.answers - (1.0 - answers)) / answers
            + (predicted.predictions - (1.0 - predictions)) / predictions;
        by_covariance / (answers * predictions).sqrt() + self.mcc() * by_variances
    }

    /// Returns Cohen's kappa, from −1 to 1 (J. Cohen 1960). It is 0 if all predictions are the same.
    pub(super) fn kappa(&self) -> f64 {
        let rest = self.n * self.n - self.chance;
        if rest > 0.0 {
            self.covariance / rest
        } else {
            0.0
        }
    }

    /// Returns an item's influence on kappa, times n. The arguments are those for Matthews'
    /// correlation.
    pub(super) fn influence_on_kappa(
        &self,
        hit: f64,
        [right, predicted]: &[LabelShares; 2],
    ) -> f64 {
        let rest = 1.0 - self.chance / self.n / self.n;
        if rest <= 0.0 || self.predictions == 0.0 {
            return 0.0;
        }
        let by_covariance = self.influence_on_covariance(hit, right, predicted);
        let by_rest = self.influence_on_chance(right, predicted);
        (by_covariance + self.kappa() * by_rest) / rest
    }

    fn influence_on_covariance(
        &self,
        hit: f64,
        right: &LabelShares,
        predicted: &LabelShares,
    ) -> f64 {
        hit - self.n_right / self.n - self.influence_on_chance(right, predicted)
    }

    fn influence_on_chance(&self, right: &LabelShares, predicted: &LabelShares) -> f64 {
        right.predictions + predicted.answers - 2.0 * self.chance / self.n / self.n
    }
}
