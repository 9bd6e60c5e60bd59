"""Generates ceilings.json: random suites with retest answers, and the share of the ceiling that a submission reaches.

    pip install statsmodels==0.15.0 scipy==1.17.1 brainscore_core==2.5.0
    python ceilings.py > ceilings.json

Each case has `metric`, `clusters` by item (null: items are independent), `answers`, `predictions` (null: no prediction) and `retest`
(null: no retest answers) by item; `ceiling`: value, stderr and ci95; `share`: value, stderr and ci95, or null if the ceiling is not
better than the best trivial submission.

- Where higher is better, the share's value is the center of Brain-Score's `ceil_score`.
- All figures are functions of the items' weights. An item's influence on the share is n times the derivative of the share by its
  weight, which a complex step computes to the last digits, without any formula for the influence of a ratio. The standard error is
  that of `OLS(x, 1).fit(cov_type="cluster")` in statsmodels; each independent item is its own cluster.
"""

import json
import math
import random
from collections import Counter

import numpy
from brainscore_core.benchmarks import ceil_score
from brainscore_core.metrics import Score
from scipy.stats import t

import clusters as clustered

METRICS = ["accuracy", "hit_rate@3", "mrr@3", "ndcg@3", "exact_match", "f1_macro", "f1_micro", "mae", "rmse", "spearman", "log_loss", "brier"]
LOSSES = {"mae", "rmse", "log_loss", "brier"}
Z = 1.959963984540054


class Rankings:
    def __init__(self, rng, n):
        self.ids, self.rng = list("abcde"), rng
        self.answers = [rng.choice(self.ids + ["a"] * 2) for _ in range(n)]
        counts = Counter(self.answers)
        self.trivial = [("most frequent", sorted(counts, key=lambda one: (-counts[one], one)))]

    def draw(self, answer, skill):
        return sorted(self.ids, key=lambda one: self.rng.random() - (one == answer) * skill)[: self.rng.randint(1, 4)]

    def score(self, metric, answer, ranking):
        place = ranking.index(answer) if ranking and answer in ranking[:3] else None
        if metric == "accuracy" or place is None:
            return float(place == 0)
        return {"hit_rate@3": 1.0, "mrr@3": 1 / (place + 1), "ndcg@3": 1 / math.log2(place + 2)}[metric]


class Labels:
    def __init__(self, rng, n):
        self.classes, self.rng = ["x", "y", "z"][: rng.choice([2, 3])], rng
        self.answers = [rng.choice(self.classes + ["x"]) for _ in range(n)]
        counts = Counter(self.answers)
        self.trivial = [("most frequent", min(counts, key=lambda one: (-counts[one], one)))]

    def draw(self, answer, skill):
        return answer if self.rng.random() < skill else self.rng.choice([*self.classes, "other"])

    def score(self, metric, answer, label):
        return float(answer == label)


class Numbers:
    def __init__(self, rng, n):
        self.rng, self.step = rng, rng.choice([1, 1000])
        self.answers = [self.number(5, 3) for _ in range(n)]
        mean = math.fsum(self.answers) / n
        self.trivial = [("mean", mean), ("median", sorted(self.answers)[n // 2])]

    def number(self, middle, spread):
        return round(self.rng.gauss(middle, spread) * self.step) / self.step

    def draw(self, answer, skill):
        return self.number(answer + 0.3, 4 * (1.1 - skill))

    def score(self, metric, answer, number):
        return max(self.answers) - min(self.answers) if number is None else abs(number - answer)


class Probabilities:
    def __init__(self, rng, n):
        self.classes, self.rng = ["a", "b", "c"][: rng.choice([2, 3])], rng
        self.answers = self.classes + [rng.choice(self.classes + ["a"]) for _ in range(n - len(self.classes))]
        counts = Counter(self.answers)
        self.trivial = [("frequencies", {label: count / n for label, count in counts.items()})]

    def draw(self, answer, skill):
        weights = [max(0.01, self.rng.random() + (label == answer) * 3 * skill) for label in self.classes]
        counts = [int(64 * weight / sum(weights)) for weight in weights]
        counts[0] += 64 - sum(counts)
        return {label: count / 64 for label, count in zip(self.classes, counts)}

    def score(self, metric, answer, shares):
        largest = 1 if len(self.classes) == 2 else 2
        if metric == "log_loss":
            return -math.log(max(shares[answer] if shares else 0, 1e-15))
        return float(largest) if shares is None else sum((value - (label == answer)) ** 2 for label, value in shares.items()) * largest / 2


FAMILIES = dict.fromkeys(METRICS[:4], Rankings) | dict.fromkeys(METRICS[4:7], Labels) | dict.fromkeys(METRICS[7:10], Numbers) | dict.fromkeys(METRICS[10:], Probabilities)


def figure_of(family, metric, answers, predictions):
    """Returns the metric as a function of the items' weights. `predictions` has a list of predictions for each item."""
    first = [each[0] for each in predictions]
    if metric == "f1_macro":
        return clustered.f1_macro(answers, first)
    if metric == "f1_micro":
        return clustered.f1_micro(answers, first)
    if metric == "spearman":
        return clustered.spearman(numpy.array(first), numpy.array(answers))
    if metric == "rmse":
        squares = numpy.array([family.score(metric, answer, one) ** 2 for answer, one in zip(answers, first)])
        return lambda weights: ((weights * squares).sum() / weights.sum()) ** 0.5
    scores = numpy.array([math.fsum(family.score(metric, answer, one) for one in each) / len(each) for answer, each in zip(answers, predictions)])
    return lambda weights: (weights * scores).sum() / weights.sum()


def value_of(figure, n):
    return float(figure(numpy.ones(n)).real)


def ceiling_of(metric, figure, groups, is_clustered, has_several, n_labels):
    """Returns the value, standard error and interval of the ceiling."""
    n = len(groups)
    value = value_of(figure, n)
    contributions = value + clustered.influences(figure, n)
    stderr = clustered.stderr_of(contributions, groups)
    name = "mean" if has_several and metric in clustered.WILSON else metric
    if is_clustered:
        if name in clustered.WILSON:
            contributions = numpy.round(contributions)
        return value, stderr, clustered.interval(name, value, stderr, contributions, groups, n_labels)[0]
    if name in clustered.WILSON:
        middle, half = value + Z * Z / (2 * n), Z * math.sqrt(value * (1 - value) / n + Z * Z / (4 * n * n))
        return value, math.sqrt(value * (1 - value) / n), [(middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)]
    if metric == "spearman":
        spread = math.sqrt((1 + value**2 / 2) / (n - 3))
        return value, (1 - value**2) * spread, [math.tanh(math.atanh(value) + sign * Z * spread) for sign in (-1, 1)]
    low, high = clustered.RANGES.get(metric, (0, 2 if metric == "brier" and n_labels > 2 else 1))
    return value, stderr, [max(low, value - Z * stderr), min(high, value + Z * stderr)]


def suite(number):
    rng = random.Random(f"ceilings {number}")
    metric, kind = METRICS[number % 12], ["equal", "unequal", "large", "none", "unequal"][number // 12 % 5]
    sizes = {"equal": [4] * 25, "unequal": [rng.randint(1, 8) for _ in range(22)], "large": [4] * 20 + [25], "none": [1] * 90}[kind]
    groups = [cluster for cluster, size in enumerate(sizes) for _ in range(size)]
    rng.shuffle(groups)
    # Clusters are numbered by their first item.
    order = {cluster: at for at, cluster in enumerate(dict.fromkeys(groups))}
    groups = numpy.array([order[cluster] for cluster in groups])
    n = len(groups)
    family = FAMILIES[metric](rng, n)
    answers = family.answers
    skill, human = [[rng.uniform(0.2, 1) for _ in sizes] for _ in range(2)]
    missing, retested = rng.choice([0, 0, 0.1]) if metric != "spearman" else 0, rng.choice([1, 0.9, 0.75])
    most = rng.choice([1, 1, 3])
    if number % 10 == 9:
        human = [-0.5] * len(sizes)  # A ceiling that is not better than a trivial submission.
    predictions = [None if rng.random() < missing else family.draw(answer, skill[group]) for answer, group in zip(answers, groups)]
    retest = [[family.draw(answer, human[group]) for _ in range(rng.randint(1, most))] for answer, group in zip(answers, groups)]
    chosen = numpy.array([rng.random() < retested for _ in range(n)])
    if chosen.sum() < 50:
        chosen[:] = True
    places = numpy.flatnonzero(chosen)
    n_labels = len(set(answers))
    of_job = figure_of(family, metric, answers, [[one] for one in predictions])
    of_retest = figure_of(family, metric, [answers[place] for place in places], [retest[place] for place in places])
    has_several = any(len(retest[place]) > 1 for place in places)
    ceiling = ceiling_of(metric, of_retest, groups[chosen], kind != "none", has_several, n_labels)
    trivial = [figure_of(family, metric, answers, [[one]] * n) for _, one in family.trivial] if metric != "spearman" else [lambda weights: 0 * weights.sum()]
    values = [value_of(one, n) for one in trivial] + [1 / n_labels] * (metric == "f1_macro")
    best = (min if metric in LOSSES else max)(values)
    share = None
    if ceiling[0] < best if metric in LOSSES else ceiling[0] > max(best, 0):
        zero = trivial[values.index(best)] if metric in LOSSES else lambda weights: 0 * weights.sum()
        of_share = lambda weights: (of_job(weights) - zero(weights)) / (of_retest(weights[chosen]) - zero(weights))
        value = value_of(of_share, n)
        if metric not in LOSSES:
            score = lambda center: Score([center, 0.1], coords={"aggregation": ["center", "error"]}, dims=["aggregation"])
            of_brain_score = float(ceil_score(score(value_of(of_job, n)), score(ceiling[0])).sel(aggregation="center"))
            assert abs(of_brain_score - value) <= 1e-15 * abs(value)
            value = of_brain_score
        stderr = clustered.stderr_of(value + clustered.influences(of_share, n), groups)
        q = Z if kind == "none" else float(t.ppf(0.975, clustered.degrees(groups)))
        share = {"value": value, "stderr": stderr, "ci95": [value - q * stderr, value + q * stderr]}
    return {
        "name": f"{metric} {number}, {kind}", "metric": metric, "clusters": None if kind == "none" else groups.tolist(), "answers": answers,
        "predictions": predictions, "retest": [answers if is_chosen else None for answers, is_chosen in zip(retest, chosen)],
        "ceiling": dict(zip(["value", "stderr", "ci95"], ceiling)), "share": share,
    }


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(suite(number), separators=(",", ":")) for number in range(200)) + "\n]")
