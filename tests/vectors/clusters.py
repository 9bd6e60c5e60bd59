"""Generates clusters.json: random suites whose items are in clusters, with standard errors of statsmodels and intervals from SciPy.

    pip install statsmodels==0.15.0 scipy==1.17.1 numpy==2.4.6
    python clusters.py > clusters.json

`suites`: each case has `clusters`, `answers` and `predictions` by item (null: no prediction), and `figures`: metric -> value,
stderr, ci95, method and design_effect; `stderr` is null with fewer than 10 clusters.

- A mean's standard error is that of `OLS(x, 1).fit(cov_type="cluster")` with `use_correction=True`. statsmodels then multiplies the
  variance by G/(G - 1) · (n - 1)/(n - k). With k = 1 coefficient the second factor is 1, so this is CR1 exactly. Without the
  correction it is CR0. The formula of inspect_ai's clustered standard error is computed as well, and must agree to 1e-12.
- Other figures are functions of the items' weights. An item's influence is n times the derivative by its weight, which a complex
  step computes to the last digits (Squire and Trapp 1998), without any formula for the influence. For `auc` it must agree with
  DeLong's components.

`comparisons`: `a` and `b` are stored values by item. `p_value` enumerates all signs of the clusters' sums, `rounded` is the p-value of
the difference and the standard error with three decimals by Student's t. `quantiles`: degrees of freedom and their 97.5 % quantile. `tails`: degrees of freedom, t and its two-sided p-value.
"""

import json
import math
import random

import numpy
import statsmodels.api as sm
from scipy.stats import norm, t

WILSON = {"accuracy", "exact_match", "hit_rate@3"}
RANGES = {"spearman": (-1, 1), "mae": (0, math.inf), "rmse": (0, math.inf), "log_loss": (0, -math.log(1e-15))}


def sizes_of(rng, kind):
    n_clusters = rng.choice([10, 11, 15, 25])
    if kind == "equal":
        return [rng.choice([2, 4, 6])] * n_clusters
    if kind == "unequal":
        return [rng.randint(1, 9) for _ in range(n_clusters)]
    if kind == "single":
        return [1] * rng.choice([12, 40, 90])
    if kind == "large":
        return [rng.randint(2, 4) for _ in range(n_clusters - 1)] + [rng.randint(15, 40)]
    return [rng.randint(3, 9) for _ in range(rng.randint(2, 9))]  # few


def clusters_of(rng, kind):
    labels = [cluster for cluster, size in enumerate(sizes_of(rng, kind)) for _ in range(size)]
    if rng.random() < 0.6:
        rng.shuffle(labels)
    return labels


def effective(groups):
    sizes = numpy.unique(groups, return_counts=True)[1]
    return float(len(groups) ** 2 / (sizes.astype(float) ** 2).sum())


def degrees(groups):
    return max(1.0, effective(groups) - 1)


def inspect_ai(scores, groups):
    """Returns the root of the sum over clusters of all products of two deviations, times C/(C - 1), over the item count."""
    mean, variance, unique = numpy.mean(scores), 0.0, numpy.unique(groups)
    for cluster in unique:
        data = scores[groups == cluster]
        variance += numpy.outer(data - mean, data - mean).sum()
    return float(numpy.sqrt(max(variance, 0.0) * len(unique) / (len(unique) - 1)) / len(scores))


def stderr_of(contributions, groups):
    """Returns the clustered standard error of the contributions' mean."""
    if numpy.ptp(contributions) == 0:
        return 0.0  # OLS has a rounding error here.
    found = float(sm.OLS(contributions, numpy.ones(len(groups))).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True}).bse[0])
    other = inspect_ai(contributions, groups)
    assert abs(found - other) <= 1e-12 * found, (found, other)
    return found


def interval(metric, value, stderr, contributions, groups, n_labels):
    q, n = float(t.ppf(0.975, degrees(groups))), len(groups)
    low, high = RANGES.get(metric, (0, 2 if metric == "brier" and n_labels > 2 else 1))
    if metric in WILSON:
        if value in (0, 1):
            items = effective(groups)
        else:
            items = min(n, value * (1 - value) / stderr**2) if stderr > 0 else n
            rarer = 1 if value <= 0.5 else 0
            if len(set(groups[contributions == rarer])) < 10:
                items = min(items, 2 * effective(groups))
        middle = value + q * q / (2 * items)
        half = q * math.sqrt(value * (1 - value) / items + q * q / (4 * items * items))
        return [(middle + sign * half) / (1 + q * q / items) for sign in (-1, 1)], "cluster_wilson"
    if metric == "spearman" and abs(value) < 1:
        return [math.tanh(math.atanh(value) + sign * q * stderr / (1 - value**2)) for sign in (-1, 1)], "cluster_fisher"
    if metric == "auc" and 0 < value < 1:
        logit = math.log(value / (1 - value))
        ends = [logit + sign * q * stderr / (value * (1 - value)) for sign in (-1, 1)]
        return [math.exp(end) / (1 + math.exp(end)) for end in ends], "cluster_logit"
    return [max(low, value - q * stderr), min(high, value + q * stderr)], "cluster_t"


def influences(figure, n):
    """Returns n times the derivative of a figure by each item's weight, where all weights are 1."""
    step = 1e-30
    return numpy.array([figure(numpy.ones(n) + 1j * step * (numpy.arange(n) == item)).imag / step * n for item in range(n)])


def f1_macro(true, predicted):
    classes = sorted(set(true) | {one for one in predicted if one is not None})

    def figure(weights):
        of = lambda chosen: (weights * numpy.array(chosen, dtype=float)).sum()
        terms = [(of([a == c for a in true]) + of([p == c for p in predicted]), of([a == c == p for a, p in zip(true, predicted)])) for c in classes]
        return sum(2 * hits / total for total, hits in terms) / len(classes)

    return figure


def f1_micro(true, predicted):
    hit = numpy.array([a == p for a, p in zip(true, predicted)], dtype=float)
    counted = numpy.array([1 + (p is not None) for p in predicted], dtype=float)
    return lambda weights: 2 * (weights * hit).sum() / (weights * counted).sum()


def spearman(x, y):
    below = [(a[None, :] < a[:, None]) + 0.5 * (a[None, :] == a[:, None]) for a in (x, y)]

    def figure(weights):
        total = weights.sum()
        f, h = [(one * weights[None, :]).sum(axis=1) / total for one in below]
        mean = lambda terms: (weights * terms).sum() / total
        f, h = f - mean(f), h - mean(h)
        return mean(f * h) / (mean(f * f) * mean(h * h)) ** 0.5

    return figure


def auc(positive, score):
    wins = (score[:, None] > score[None, :]) + 0.5 * (score[:, None] == score[None, :])

    def figure(weights):
        of_positive, of_negative = weights * positive, weights * (1 - positive)
        return (of_positive[:, None] * wins * of_negative[None, :]).sum() / (of_positive.sum() * of_negative.sum())

    return figure


def delong(positive, score):
    """Returns each item's influence from its share of pairs that are in the right order."""
    wins = (score[:, None] > score[None, :]) + 0.5 * (score[:, None] == score[None, :])
    n, share = len(score), positive.mean()
    area = wins[positive == 1][:, positive == 0].mean()
    of_positive, of_negative = wins[:, positive == 0].mean(axis=1) - area, wins[positive == 1].mean(axis=0) - area
    return numpy.where(positive == 1, of_positive / share, of_negative / (1 - share))


def rankings(rng, clusters, effect):
    ids, scores = list("abcde"), {"accuracy": [], "hit_rate@3": [], "mrr@3": [], "ndcg@3": []}
    answers, predictions = [], []
    for cluster in clusters:
        right = rng.choice(ids)
        ranking = sorted(ids, key=lambda one: rng.random() - (one == right) * effect[cluster])[: rng.randint(1, 4)]
        place = ranking.index(right) if right in ranking[:3] else None
        answers.append(right)
        predictions.append(ranking)
        scores["accuracy"].append(float(place == 0))
        scores["hit_rate@3"].append(float(place is not None))
        scores["mrr@3"].append(0.0 if place is None else 1 / (place + 1))
        scores["ndcg@3"].append(0.0 if place is None else 1 / math.log2(place + 2))
    return answers, predictions, scores, {}


def labels(rng, clusters, effect):
    classes = ["x", "y", "z"][: rng.choice([2, 3])]
    answers = [rng.choice(classes) for _ in clusters]
    draw = lambda answer, cluster: answer if rng.random() < effect[cluster] else rng.choice([*classes, "other"])
    missing = rng.choice([0, 0.1])
    predictions = [None if rng.random() < missing else draw(answer, cluster) for answer, cluster in zip(answers, clusters)]
    right = [float(answer == prediction) for answer, prediction in zip(answers, predictions)]
    return answers, predictions, {"exact_match": right}, {"f1_macro": f1_macro(answers, predictions), "f1_micro": f1_micro(answers, predictions)}


def numbers(rng, clusters, effect):
    step = rng.choice([1, 1000])
    number = lambda middle, spread: round(rng.gauss(middle, spread) * step) / step
    answers = [number(5 * effect[cluster], 2) for cluster in clusters]
    answers[0] += 1
    missing = rng.choice([0, 0, 0.1])
    predictions = [None if rng.random() < missing else number(answer - effect[cluster], 1) for answer, cluster in zip(answers, clusters)]
    spread = max(answers) - min(answers)
    errors = numpy.array([spread if p is None else abs(p - a) for a, p in zip(answers, predictions)])
    functions = {"rmse": lambda weights: ((weights * errors**2).sum() / weights.sum()) ** 0.5}
    if None not in predictions and len(set(predictions)) > 1:
        functions["spearman"] = spearman(numpy.array(predictions), numpy.array(answers))
    return answers, predictions, {"mae": errors.tolist()}, functions


def probabilities(rng, clusters, effect):
    classes, n = ["a", "b", "c"][: rng.choice([2, 2, 2, 3])], len(clusters)
    answers = [classes[at % len(classes)] for at in range(len(classes))] + [rng.choice(classes) for _ in clusters[len(classes):]]
    missing = rng.choice([0, 0, 0, 0.1])
    shares, predictions, log_loss, brier = [], [], [], []
    largest = 1 if len(classes) == 2 else 2
    for answer, cluster in zip(answers, clusters):
        weights = [rng.random() + (label == answer) * max(0, effect[cluster]) for label in classes]
        counts = [int(64 * weight / sum(weights)) for weight in weights]
        counts[rng.randrange(len(classes))] += 64 - sum(counts)
        share = {label: count / 64 for label, count in zip(classes, counts)}
        if rng.random() < missing:
            predictions.append(None)
            log_loss.append(-math.log(1e-15))
            brier.append(float(largest))
        else:
            predictions.append(share)
            log_loss.append(-math.log(max(share[answer], 1e-15)))
            brier.append(sum((value - (label == answer)) ** 2 for label, value in share.items()) * largest / 2)
        shares.append(share["b"])
    functions = {}
    if len(classes) == 2 and None not in predictions:
        positive, score = numpy.array([float(answer == "b") for answer in answers]), numpy.array(shares)
        functions["auc"] = auc(positive, score)
        assert numpy.allclose(influences(functions["auc"], n), delong(positive, score), rtol=0, atol=1e-10)
    return answers, predictions, {"log_loss": log_loss, "brier": brier}, functions


def suite(number):
    rng = random.Random(f"clusters {number}")
    kind = ["equal", "unequal", "single", "large", "unequal", "few"][number // 4 % 6]
    family = [rankings, labels, numbers, probabilities][number % 4]
    clusters = clusters_of(rng, kind)
    groups, n = numpy.array(clusters), len(clusters)
    base, spread = rng.choice([0.02, 0.3, 0.6, 0.95]), rng.choice([0, 0.4])
    effect = [base + rng.uniform(-spread, spread) for _ in range(max(clusters) + 1)]
    if number % 20 == 0:
        effect = [2.0] * len(effect)  # Rankings: all right.
    answers, predictions, means, functions = family(rng, clusters, effect)
    n_labels = len(set(answers))
    figures = {}
    for metric, contributions, value in [
        *((metric, numpy.array(scores), math.fsum(scores) / n) for metric, scores in means.items()),
        *((metric, influences(figure, n) + figure(numpy.ones(n)).real, float(figure(numpy.ones(n)).real)) for metric, figure in functions.items()),
    ]:
        figures[metric] = {"value": value, "stderr": None}
        if len(set(clusters)) >= 10:
            stderr = stderr_of(contributions, groups)
            ends, method = interval(metric, value, stderr, contributions, groups, n_labels)
            figures[metric] |= {"stderr": stderr, "ci95": ends, "method": method}
            if metric in means and numpy.ptp(contributions) > 0:
                variance = value * (1 - value) if metric in WILSON else numpy.var(contributions, ddof=1)
                figures[metric]["design_effect"] = float(stderr**2 / (variance / n))
    return {"name": f"{family.__name__} {number}, {kind}", "clusters": clusters, "answers": answers, "predictions": predictions, "figures": figures}


def contributions_of(metric, stored):
    """Returns the items' contributions to the figure of the stored values."""
    if metric != "rmse":
        return stored
    figure = lambda weights: ((weights * stored**2).sum() / weights.sum()) ** 0.5
    return influences(figure, len(stored)) + figure(numpy.ones(len(stored))).real


def enumerated(sums):
    """Returns the share of the sign combinations with at least the sums' absolute total."""
    totals = numpy.zeros(1)
    for one in sums:
        totals = numpy.concatenate([totals - one, totals + one])
    return float((abs(totals) >= abs(math.fsum(sums)) - 1e-12 * abs(numpy.array(sums)).sum()).mean())


def comparison(number):
    rng = random.Random(f"comparison {number}")
    metric = ["accuracy", "mae", "rmse", "log_loss", "mrr@10", "f1_macro", "auc"][number % 7]
    clusters = clusters_of(rng, ["equal", "unequal", "large"][number % 3])
    groups, n = numpy.array(clusters), len(clusters)
    n_differ = rng.choice([0, 1, 5, 10, 13, 16]) if number % 5 else 16
    differ = set(rng.sample(sorted(set(clusters)), min(n_differ, len(set(clusters)))))
    effect = {cluster: rng.gauss(rng.choice([0, 0.2]), 0.3) for cluster in clusters}
    if metric == "accuracy":
        a = [float(rng.random() < 0.6) for _ in clusters]
        b = [float(rng.random() < 0.6 - effect[g]) if g in differ else one for one, g in zip(a, clusters)]
    elif metric == "mrr@10":
        worth = [1.0, 0.5, 0.25, 0.0]
        a = [rng.choice(worth) for _ in clusters]
        b = [rng.choice(worth) if g in differ else one for one, g in zip(a, clusters)]
    else:
        # `f1_macro` and `auc` store contributions, which can have any sign. RMSE's differ everywhere, but its squared errors do not.
        draw = (lambda: round(rng.gauss(0.6, 0.4), 3)) if metric in ("f1_macro", "auc") else (lambda: round(rng.expovariate(1), 3))
        a = [draw() for _ in clusters]
        b = [abs(round(one + effect[g], 3)) if g in differ else one for one, g in zip(a, clusters)]
    a, b = numpy.array(a), numpy.array(b)
    d = contributions_of(metric, a) - contributions_of(metric, b)
    flipped = a**2 - b**2 if metric == "rmse" else d
    # Decimal fractions sum exactly to 0, or to much more than a rounding error.
    sums = [math.fsum(flipped[groups == g]) for g in sorted(set(clusters))]
    sizes = [abs(flipped[groups == g]).sum() for g in sorted(set(clusters))]
    sums = [one for one, size in zip(sums, sizes) if abs(one) > 1e-12 * size]
    stderr, difference, q = stderr_of(d, groups) if abs(d).max() > 0 else 0.0, float(d.mean()), t.ppf(0.975, degrees(groups))
    point, n_clusters = 0.01, len(set(clusters))
    exact = n_clusters * ((norm.ppf(0.975) + norm.ppf(0.8)) * stderr / point) ** 2
    needed = math.ceil(exact) if stderr > 0 else None
    rounded = [round(difference, 3), round(stderr, 3)]
    return {
        "metric": metric, "clusters": clusters, "a": a.tolist(), "b": b.tolist(), "difference": difference, "stderr": stderr,
        "ci95": [difference - q * stderr, difference + q * stderr], "p_value": enumerated(sums), "n_differ": int((a != b).sum()),
        "n_clusters": n_clusters, "n_clusters_differ": len(sums), "n_clusters_needed": needed, "n_needed": math.ceil(needed * n / n_clusters) if needed else None,
        "rounded": float(2 * t.sf(abs(rounded[0]) / rounded[1], degrees(groups))) if rounded[1] else None,
    }


if __name__ == "__main__":
    freedom = [1, 1.001, 1.5, 2, 2.5, 3, 4.2, 5, 7.77, 9, 10.5, 15, 19.99, 24, 29, 31.3, 47, 60, 99, 149.5, 299, 499.9, 703, 1e3, 9999, 123456.7, 1e6, 1e7]
    lines = lambda cases: ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    quantiles = [[one, float(t.ppf(0.975, one))] for one in freedom]
    tails = [[one, at, float(2 * t.sf(at, one))] for one in freedom for at in (1e-3, 0.5, 1.96, 4.0, 12.0, 35.0)]
    print(f'{{"suites":[\n{lines(map(suite, range(200)))}\n],\n"comparisons":[\n{lines(map(comparison, range(84)))}\n],\n"quantiles":{json.dumps(quantiles)},\n"tails":{json.dumps(tails)}}}')
