"""Generates averages.json: random suites whose value is the mean over clusters of the metric within the cluster.

    pip install scipy==1.17.1 numpy==2.4.6
    python averages.py > averages.json

`suites`: each case has `metric`, `clusters`, `answers` and `predictions` by item (null: no prediction), and `figures`: value, stderr,
ci95, method, n_clusters and design_effect; stderr, ci95 and design_effect are null if they cannot be estimated. Each cluster's value
is computed alone: means with numpy, `spearman` with scipy.stats.spearmanr, `auc` as the share of ordered pairs that
scipy.stats.mannwhitneyu counts. The mean over clusters has the standard error of a mean over independent values, sem().

`comparisons`: two predictions for each item; `p_value` enumerates all signs of the differences between the clusters' values, and
ttest_rel gives the standard error and the interval.
"""

import itertools
import json
import math
import random
import warnings

import numpy
from scipy.stats import mannwhitneyu, sem, spearmanr, t, ttest_rel

METRICS = ["accuracy", "hit_rate@2", "recall@3", "ndcg@3", "exact_match", "mae", "rmse", "spearman", "log_loss", "brier", "auc"]
SHARES = {"accuracy", "hit_rate@2", "exact_match"}
NUMBERS = {"mae", "rmse", "spearman"}
LABELS = ["x", "y", "z"]


def clusters_of(rng, metric):
    is_function = metric in {"spearman", "auc"}
    n_clusters = rng.choice([12, 20, 30] if is_function else [4, 10, 12, 25])
    sizes = [rng.randint(1, 12 if is_function else 9) for _ in range(n_clusters)]
    labels = [cluster for cluster, size in enumerate(sizes) for _ in range(size)]
    if rng.random() < 0.6:
        rng.shuffle(labels)
    return labels


def suite(rng, metric, clusters):
    ties = rng.random() < 0.5
    shift = {cluster: rng.gauss(0, 1) for cluster in set(clusters)}
    constant = set(rng.sample(sorted(shift), len(shift) // 5))  # Answers.
    flat = set(rng.sample(sorted(shift), len(shift) // 5))  # Predictions.
    answers, predictions = [], []
    for cluster in clusters:
        if metric in NUMBERS:
            answer = shift[cluster] + rng.gauss(0, 1)
            prediction = answer + rng.gauss(0, 1) + shift[cluster] ** 2
            if metric == "spearman":
                answer = 1.5 if cluster in constant else answer
                prediction = -2.0 if cluster in flat else prediction
            if ties:
                answer, prediction = round(answer), round(prediction)
            answers.append(round(answer, 4))
            predictions.append(round(prediction, 4))
        elif metric in {"log_loss", "brier", "auc"}:
            labels = LABELS[:2] if metric == "auc" else LABELS
            answers.append(labels[0] if metric == "auc" and cluster in constant else rng.choice(labels))
            # Dyadic shares: their sum is 1.
            total = 8 if ties else 512
            cut = sorted(rng.randint(0, total) for _ in labels[1:])
            shares = [(b - a) / total for a, b in itertools.pairwise([0, *cut, total])]
            predictions.append(dict(zip(labels, shares)))
        elif metric == "exact_match":
            answers.append(rng.choice(LABELS))
            predictions.append(rng.choice(LABELS))
        else:
            answers.append(sorted(rng.sample(LABELS, 2)) if rng.random() < 0.3 else rng.choice(LABELS))
            predictions.append(rng.sample(LABELS, rng.randint(1, 3)))
    if metric not in {"spearman", "auc"}:
        for item in range(len(clusters)):
            if rng.random() < 0.1:
                predictions[item] = None
    return answers, predictions


def scores_of(metric, answers, predictions):
    """Returns each item's own score."""
    if metric in NUMBERS:
        worst = max(answers) - min(answers)
        return [worst if p is None else abs(p - a) for a, p in zip(answers, predictions)]
    n_labels = len(set(map(str, answers)))
    scores = []
    for answer, prediction in zip(answers, predictions):
        right = answer if isinstance(answer, list) else [answer]
        if metric == "log_loss":
            scores.append(-math.log(1e-15 if prediction is None else max(prediction[answer], 1e-15)))
        elif metric == "brier":
            half = 2 if n_labels <= 2 else 1
            if prediction is None:
                scores.append(2 / half)
            else:
                scores.append(sum((share - (label == answer)) ** 2 for label, share in prediction.items()) / half)
        elif prediction is None:
            scores.append(0.0)
        elif metric == "exact_match":
            scores.append(float(prediction == answer))
        else:
            name, _, k = metric.partition("@")
            cut = prediction[: int(k or 1)]
            hits = [rank for rank, label in enumerate(cut, 1) if label in right]
            if name in {"accuracy", "hit_rate"}:
                scores.append(float(bool(hits)))
            elif name == "recall":
                scores.append(len(hits) / len(right))
            else:
                ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(right), int(k)) + 1))
                scores.append(sum(1 / math.log2(rank + 1) for rank in hits) / ideal)
    return scores


def cluster_value(metric, answers, predictions, scores):
    """Returns the value of one cluster, or None if its answers leave the metric undefined."""
    if metric == "spearman":
        if len(set(answers)) < 2:
            return None
        return 0.0 if len(set(predictions)) < 2 else float(spearmanr(answers, predictions).statistic)
    if metric == "auc":
        of = lambda label: [p["y"] for a, p in zip(answers, predictions) if a == label]
        positive, negative = of("y"), of("x")
        if not positive or not negative:
            return None
        return float(mannwhitneyu(positive, negative, method="asymptotic").statistic) / len(positive) / len(negative)
    if metric == "rmse":
        return float(numpy.sqrt(numpy.mean(numpy.square(scores))))
    return float(numpy.mean(scores))


def cluster_values(metric, clusters, answers, predictions):
    has_scores = metric not in {"spearman", "auc"}
    scores = scores_of(metric, answers, predictions) if has_scores else predictions
    values = []
    for cluster in dict.fromkeys(clusters):
        items = [item for item, own in enumerate(clusters) if own == cluster]
        pick = lambda column: [column[item] for item in items]
        values.append(cluster_value(metric, pick(answers), pick(predictions), pick(scores)))
    return [value for value in values if value is not None]


def interval(metric, value, stderr, n, upper):
    q = float(t.ppf(0.975, n - 1))
    if metric == "spearman" and abs(value) < 1:
        half = q * stderr / (1 - value**2)
        return [math.tanh(math.atanh(value) - half), math.tanh(math.atanh(value) + half)], "cluster_fisher"
    if metric == "auc" and 0 < value < 1:
        logit, half = math.log(value / (1 - value)), q * stderr / (value * (1 - value))
        return [1 / (1 + math.exp(-(logit - half))), 1 / (1 + math.exp(-(logit + half)))], "cluster_logit"
    low = -1 if metric == "spearman" else 0
    return [max(low, value - q * stderr), min(upper, value + q * stderr)], "cluster_t"


def figures(metric, clusters, answers, predictions):
    values = cluster_values(metric, clusters, answers, predictions)
    n, value = len(values), float(numpy.mean(values))
    found = {"value": value, "n_clusters": n, "stderr": None, "ci95": None, "method": None, "design_effect": None}
    if n < 10:
        return found
    stderr = float(sem(values))
    n_labels = len(set(map(str, answers)))
    upper = {"log_loss": -math.log(1e-15), "brier": 1 if n_labels <= 2 else 2, "mae": math.inf, "rmse": math.inf}.get(metric, 1)
    ci95, method = interval(metric, value, stderr, n, upper)
    found |= {"stderr": stderr, "ci95": ci95, "method": method}
    if metric not in {"spearman", "auc", "rmse"}:
        scores = numpy.array(scores_of(metric, answers, predictions))
        sizes = numpy.array([clusters.count(cluster) for cluster in clusters])
        contributions = value + len(clusters) / (n * sizes) * (scores - value)
        assert abs(contributions.mean() - value) <= 1e-12 * max(1, value)
        found["design_effect"] = float((stderr / sem(contributions)) ** 2)
    return found


def p_value(differences):
    """Returns the share of sign combinations with at least the absolute sum."""
    differences = [difference for difference in differences if abs(difference) > 1e-12]
    signs = numpy.array(list(itertools.product([-1, 1], repeat=len(differences)))).reshape(-1, len(differences))
    sums = numpy.abs(signs @ numpy.array(differences)) if differences else numpy.zeros(1)
    return float(numpy.mean(sums >= abs(sum(differences)) - 1e-12 * sum(map(abs, differences))))


def main():
    rng = random.Random(20261129)
    suites, comparisons = [], []
    while len(suites) < 242:
        metric = METRICS[len(suites) % len(METRICS)]
        clusters = clusters_of(rng, metric)
        answers, predictions = suite(rng, metric, clusters)
        different = len(set(map(str, answers))) > (metric not in {"log_loss", "brier"})
        if not different or not cluster_values(metric, clusters, answers, predictions):
            continue
        if metric in {"mae", "rmse"} and len(set(answers)) < 2:
            continue
        found = figures(metric, clusters, answers, predictions)
        suites.append({"metric": metric, "clusters": clusters, "answers": answers, "predictions": predictions, "figures": found})
    while len(comparisons) < 66:
        metric = METRICS[len(comparisons) % len(METRICS)]
        clusters = [rng.randrange(13) for _ in range(60)]
        answers, a = suite(rng, metric, clusters)
        b = suite(random.Random(rng.random()), metric, clusters)[1]
        values = [cluster_values(metric, clusters, answers, predictions) for predictions in (a, b)]
        if len(values[0]) < 10:
            continue
        test = ttest_rel(*values)
        ends = test.confidence_interval(0.95)
        difference = float(numpy.mean(values[0]) - numpy.mean(values[1]))
        comparisons.append({
            "metric": metric, "clusters": clusters, "answers": answers, "a": a, "b": b, "difference": difference,
            "stderr": float(sem(numpy.subtract(*values))), "ci95": [float(ends.low), float(ends.high)],
            "n_clusters": len(values[0]), "p_value": p_value([x - y for x, y in zip(*values)]),
        })
    print(json.dumps({"suites": suites, "comparisons": comparisons}))


warnings.simplefilter("error")
main()
