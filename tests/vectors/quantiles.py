"""Generates quantiles.json: random suites of numbers with quantile losses of scoringrules and scikit-learn, and interval scores of numpy.

    pip install numpy==2.4.6 scipy==1.17.1 scikit-learn==1.9.1 scoringrules==0.10.0 statsmodels==0.15.0
    python quantiles.py > quantiles.json

Each case has `levels`, `clip` (or null), and by item `answers`, `clusters` and `predictions`, each null or a list of numbers by level.
`figures`: metric -> `value`, `losses` by item (in each third case), and three estimates, each `{stderr, ci95}` or null: `independent` for independent items,
`clustered`, and `average` over clusters with its `value` and `n`. `metrics`: the shares of answers between two levels, and the median's error.

- A loss of `pinball` is the mean over the levels of `scoringrules.quantile_score`. Without missing predictions and bounds, the value must
  be the mean of scikit-learn's `mean_pinball_loss` over the levels, to 1e-12.
- A loss of `wis` is that of Bracher et al. (2021), equation 1: the interval scores weighted by half of alpha, and half of the median's
  error. It must be twice that of `pinball`, to 1e-12.
- An item without a prediction has the spread of the answers as its loss, or the upper bound.
- A standard error by cluster is that of statsmodels' `OLS(x, 1).fit(cov_type="cluster")`.
- The name of a coverage has the difference of the two levels as decimal numbers.
"""

import json
import math
import random
from decimal import Decimal

import numpy
import scoringrules
import statsmodels.api as sm
from scipy.stats import norm, t
from sklearn.metrics import mean_pinball_loss


def interval_score(lower, upper, alpha, y):
    outside = max(lower - y, 0) + max(y - upper, 0)
    return (upper - lower) + 2 / alpha * outside


def weighted_interval_score(levels, numbers, y):
    by_level = dict(zip(levels, numbers))
    pairs = [(lower, 1 - lower) for lower in map(Decimal, levels) if lower < Decimal("0.5")]
    total = 0.5 * abs(y - by_level["0.5"])
    for lower, upper in pairs:
        alpha = float(2 * lower)
        total += alpha / 2 * interval_score(by_level[str(lower)], by_level[str(upper)], alpha, y)
    return total / (len(pairs) + 0.5)


def is_near(found, expected):
    return abs(found - expected) <= 1e-12 * max(1.0, abs(expected))


def losses_of(levels, answers, predictions, clip):
    """Returns the losses by item of `pinball` and, if it is defined, of `wis`."""
    taus = numpy.array([float(level) for level in levels])
    spread = max(answers) - min(answers)
    symmetric = "0.5" in levels and all(str(1 - Decimal(level)) in levels for level in levels)
    found = {"pinball": [], "wis": []} if symmetric else {"pinball": []}
    for y, numbers in zip(answers, predictions):
        if numbers is None:
            each = [spread] * 2
        else:
            pinball = float(numpy.mean(scoringrules.quantile_score(y, numpy.array(numbers), taus)))
            each = [pinball]
            if symmetric:
                wis = weighted_interval_score(levels, numbers, y)
                assert is_near(2 * pinball, wis), (levels, numbers, y, pinball, wis)
                each.append(wis)
        for (_, losses), loss in zip(found.items(), each):
            losses.append(min(max(loss, clip[0]), clip[1]) if clip and numbers is not None else clip[1] if clip else loss)
    if None not in predictions and not clip:
        by_level = [mean_pinball_loss(answers, [numbers[at] for numbers in predictions], alpha=tau) for at, tau in enumerate(taus)]
        assert is_near(float(numpy.mean(found["pinball"])), float(numpy.mean(by_level)))
    return found


def estimate(value, stderr, q, most):
    return {"stderr": stderr, "ci95": [max(0.0, value - q * stderr), min(most, value + q * stderr)]}


def figures_of(losses, clusters, clip, with_losses):
    n, x, groups = len(losses), numpy.array(losses), numpy.array(clusters)
    value, most = math.fsum(losses) / n, clip[1] if clip else math.inf
    least = clip[0] if clip else 0.0

    def bounded(*arguments):
        found = estimate(*arguments, most)
        return found | {"ci95": [max(least, found["ci95"][0]), found["ci95"][1]]}

    figures = {"value": value, "losses": losses if with_losses else None, "clustered": None, "average": None}
    figures["independent"] = bounded(value, float(x.std(ddof=1)) / math.sqrt(n), float(norm.ppf(0.975)))
    names, sizes = numpy.unique(groups, return_counts=True)
    if len(names) >= 10:
        fitted = sm.OLS(x, numpy.ones(n)).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True})
        degrees = max(1.0, n**2 / float((sizes**2).sum()) - 1)
        figures["clustered"] = bounded(value, float(fitted.bse[0]), float(t.ppf(0.975, degrees)))
        means = numpy.array([x[groups == name].mean() for name in names])
        average, stderr = float(means.mean()), float(means.std(ddof=1)) / math.sqrt(len(means))
        figures["average"] = {"value": average, "n": len(means)} | bounded(average, stderr, float(t.ppf(0.975, len(means) - 1)))
    return figures


def metrics_of(levels, answers, predictions):
    metrics = {}
    for lower in levels:
        upper = str(1 - Decimal(lower))
        if Decimal(lower) < Decimal("0.5") and upper in levels:
            places = levels.index(lower), levels.index(upper)
            inside = [numbers is not None and numbers[places[0]] <= y <= numbers[places[1]] for y, numbers in zip(answers, predictions)]
            metrics[f"coverage@{(Decimal(upper) - Decimal(lower)).normalize()}"] = float(numpy.mean(inside))
    if "0.5" in levels:
        at, spread = levels.index("0.5"), max(answers) - min(answers)
        errors = [spread if numbers is None else abs(numbers[at] - y) for y, numbers in zip(answers, predictions)]
        metrics["mae"] = float(numpy.mean(errors))
    return metrics


def levels_of(rng, kind):
    if kind == "many":
        return [str(Decimal(at) / 100) for at in range(1, 100)]
    if kind == "uneven":
        return sorted({str(Decimal(rng.randint(1, 999)) / 1000) for _ in range(rng.randint(1, 9))}, key=Decimal)
    lower = {Decimal(rng.choice([rng.randint(1, 49), 5, 25])) / 100 for _ in range(rng.randint(0, 5))}
    if rng.random() < 0.2:
        lower.add(Decimal("0.025"))
    # Without trailing zeros, as suites write levels.
    return [str(level.normalize()) for level in sorted(lower | {1 - level for level in lower} | {Decimal("0.5")})]


def number_of(kind, number):
    if kind == "huge":
        return max(-1e50, min(1e50, float(f"{number:.2f}e50")))
    if kind == "tiny":
        return float(f"{number:.3f}e-180")
    if kind == "offset":
        return 1e8 + round(1e-3 * number, 6)
    if kind == "ties":
        return float(round(1.5 * number))
    return round(number, 3)


def main():
    rng, cases = random.Random(43), []
    kinds = ["plain", "ties", "plain", "uneven", "plain", "offset", "huge", "uneven", "plain", "ties"]
    for at in range(280):
        kind = "many" if at % 40 == 7 else "tiny" if at % 40 == 27 else kinds[at % 10]
        levels = levels_of(rng, kind)
        n_clusters = rng.randint(2, 4) if at % 6 == 5 else rng.randint(10, 12)
        clusters = [cluster for cluster in range(n_clusters) for _ in range(rng.randint(1, 1 if kind == "many" else 4))]
        if len(clusters) < 4:
            clusters += [0, 1]
        rng.shuffle(clusters)
        answers = [number_of(kind, rng.gauss(0, 1)) for _ in clusters]
        if len(set(answers)) == 1:
            continue
        width, missing = rng.uniform(0.2, 2), rng.choice([0, 0, 0.2])
        predictions = []
        for answer in answers:
            center, wide = rng.gauss(0, 0.7), width * rng.uniform(0.2, 2)
            numbers = sorted(number_of(kind, center + wide * norm.ppf(float(level))) for level in levels)
            if rng.random() < 0.1:
                numbers = [answer] * len(levels)
            predictions.append(None if rng.random() < missing else numbers)
        clip = [0.0, 0.8] if at % 7 == 3 and kind in ("plain", "uneven") else [0.1, 0.6] if at % 7 == 5 and kind == "plain" else None
        losses = losses_of(levels, answers, predictions, clip)
        cases.append(
            {
                "name": f"{kind} {at}",
                "levels": levels,
                "clip": clip,
                "answers": answers,
                "clusters": clusters,
                "predictions": predictions,
                "figures": {metric: figures_of(each, clusters, clip, at % 3 == 0) for metric, each in losses.items()},
                "metrics": metrics_of(levels, answers, predictions),
            }
        )
    assert len(cases) >= 200 and sum("wis" in case["figures"] for case in cases) >= 200
    print("[" + ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases) + "]")


main()
