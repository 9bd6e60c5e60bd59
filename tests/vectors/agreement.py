"""Generates agreement.json: random suites of numbers with correlations of SciPy, r2 of scikit-learn, and their errors.

    pip install scipy==1.17.1 scikit-learn==1.9.1 numpy==2.4.6
    python agreement.py > agreement.json

Each case has `answers`, `predictions` and `clusters` by item, and `figures`: metric -> `value`, `contributions` (in each third case), and three estimates,
each `{stderr, ci95}` or null: `independent` for independent items, `clustered`, and `average` over clusters with its `value`.

- A value is that of `scipy.stats.pearsonr`, `scipy.stats.kendalltau`, `sklearn.metrics.r2_score` or, for `ccc`, of numpy moments. Of
  numbers with a small spread around a large one, or so large or small that squares lose digits, the functions get the differences
  to the mean answer, which are computed exactly with fractions and scaled by a power of two.
- A contribution is the value plus the item's influence: n times the derivative of the figure by its weight, which a complex step
  computes to the last digits (Squire and Trapp 1998), without any formula for the influence.
- An average leaves a cluster out if its answers are all the same; constant predictions within a cluster count as 0.
"""

import json
import math
import random
import warnings
from fractions import Fraction

import numpy
from scipy.stats import kendalltau, norm, pearsonr, t
from sklearn.metrics import r2_score

warnings.simplefilter("error")
METRICS = ("pearson", "kendall", "ccc", "r2")
CORRELATIONS = ("pearson", "kendall")
# The numbers of a kind are exact for the functions only after a shift and a scaling.
EXTREME = ("offset", "huge", "tiny")


def ccc(x, y):
    mean_x, mean_y = numpy.mean(x), numpy.mean(y)
    return 2 * numpy.mean((x - mean_x) * (y - mean_y)) / (numpy.var(x) + numpy.var(y) + (mean_x - mean_y) ** 2)


GOLDEN = {
    "pearson": lambda x, y: pearsonr(x, y).statistic,
    "kendall": lambda x, y: kendalltau(x, y).statistic,
    "ccc": ccc,
    "r2": lambda x, y: r2_score(y, x),
}


def weighted(metric, x, y):
    """Returns the figure as a function of the items' weights."""

    def moments(weights):
        mean = lambda terms: (weights * terms).sum() / weights.sum()
        mean_x, mean_y = mean(x), mean(y)
        return mean, mean_x, mean_y, mean((x - mean_x) ** 2), mean((y - mean_y) ** 2), mean((x - mean_x) * (y - mean_y))

    def of_pearson(weights):
        _, _, _, var_x, var_y, covariance = moments(weights)
        return covariance / numpy.sqrt(var_x * var_y)

    def of_ccc(weights):
        _, mean_x, mean_y, var_x, var_y, covariance = moments(weights)
        return 2 * covariance / (var_x + var_y + (mean_x - mean_y) ** 2)

    def of_r2(weights):
        mean, _, _, _, var_y, _ = moments(weights)
        return 1 - mean((x - y) ** 2) / var_y

    signs_x, signs_y = (numpy.sign(values[:, None] - values[None, :]) for values in (x, y))

    def of_kendall(weights):
        of = lambda terms: weights @ terms @ weights
        return of(signs_x * signs_y) / numpy.sqrt(of(signs_x**2) * of(signs_y**2))

    return {"pearson": of_pearson, "kendall": of_kendall, "ccc": of_ccc, "r2": of_r2}[metric]


def influences(figure, n):
    step = 1e-30
    return numpy.array([figure(numpy.ones(n) + 1j * step * (numpy.arange(n) == item)).imag / step * n for item in range(n)])


def interval(metric, value, stderr, q):
    if metric in CORRELATIONS and abs(value) < 1:
        half = q * stderr / (1 - value**2)
        return [math.tanh(math.atanh(value) + sign * half) for sign in (-1, 1)]
    return [max(-1 if metric != "r2" else -math.inf, value - q * stderr), min(1, value + q * stderr)]


def estimate(metric, value, stderr, q):
    return {"stderr": stderr, "ci95": interval(metric, value, stderr, q)}


def average(metric, x, y, clusters):
    values = []
    for cluster in numpy.unique(clusters):
        own_x, own_y = x[clusters == cluster], y[clusters == cluster]
        if numpy.ptp(own_y) > 0:
            values.append(float(GOLDEN[metric](own_x, own_y)) if numpy.ptp(own_x) > 0 else 0.0)
    if metric not in CORRELATIONS or len(values) < 10:
        return None
    value = math.fsum(values) / len(values)
    stderr = float(numpy.std(values, ddof=1) / math.sqrt(len(values)))
    return {"value": value, "n": len(values)} | estimate(metric, value, stderr, float(t.ppf(0.975, len(values) - 1)))


def figures_of(kind, predictions, answers, clusters, with_contributions):
    center = sum(map(Fraction, answers)) / len(answers)
    largest = max(abs(Fraction(one) - center) for one in predictions + answers)
    # A power of two, which changes no digit.
    scale = Fraction(2) ** (math.frexp(float(largest))[1] if largest < 1e300 else 0)
    x, y = (numpy.array([float((Fraction(one) - center) / scale) for one in values]) for values in (predictions, answers))
    clusters, n, figures = numpy.array(clusters), len(answers), {}
    for metric in METRICS:
        if metric in CORRELATIONS and numpy.ptp(x) == 0 or metric == "r2" and kind == "tiny":
            continue
        figure = weighted(metric, x, y)
        value = float(GOLDEN[metric](x, y))
        if kind not in EXTREME:
            raw = float(GOLDEN[metric](numpy.array(predictions), numpy.array(answers)))
            assert abs(raw - value) <= 1e-12 * max(1, abs(value)), (kind, metric, raw, value)
            value = raw
        of_items = influences(figure, n)
        assert abs(of_items.mean()) <= 1e-12 * max(1, abs(value)), (metric, of_items.mean())
        independent = math.sqrt(math.fsum(of_items**2) / (n - 1) / n)
        names, sizes = numpy.unique(clusters, return_counts=True)
        clustered = None
        if len(names) >= 10:
            sums = [math.fsum(of_items[clusters == name]) for name in names]
            stderr = math.sqrt(len(names) / (len(names) - 1) * math.fsum(one**2 for one in sums)) / n
            degrees = max(1.0, n**2 / float((sizes**2).sum()) - 1)
            clustered = estimate(metric, value, stderr, float(t.ppf(0.975, degrees)))
        figures[metric] = {
            "value": value,
            "contributions": (value + of_items).tolist() if with_contributions else None,
            "independent": estimate(metric, value, independent, float(norm.ppf(0.975))),
            "clustered": clustered,
            "average": average(metric, x, y, clusters),
        }
    return figures


def numbers_of(rng, kind, n):
    slope, noise = rng.uniform(-1, 1.5), rng.uniform(0.1, 1.5)
    answers = [rng.gauss(0, 1) for _ in range(n)]
    predictions = [slope * answer + noise * rng.gauss(0, 1) + rng.choice([0, 0.5]) for answer in answers]
    pairs = [predictions, answers]
    if kind == "ties":
        pairs = [[float(round(1.5 * one)) for one in values] for values in pairs]
    elif kind == "binary":
        pairs = [[float(one > 0.2) for one in values] for values in pairs]
    elif kind == "skewed":
        pairs = [[round(math.exp(1.5 * one), 4) for one in values] for values in pairs]
    elif kind == "offset":
        pairs = [[1e8 + round(1e-3 * one, 7) for one in values] for values in pairs]
    elif kind == "huge":
        pairs = [[max(-1e50, min(1e50, float(f"{one:.3f}e50"))) for one in values] for values in pairs]
    elif kind == "tiny":
        pairs = [[float(f"{one:.3f}e-180") for one in values] for values in pairs]
    else:
        pairs = [[round(one, 4) for one in values] for values in pairs]
    if kind == "constant":
        pairs[0] = [pairs[0][0]] * n
    return pairs


def main():
    rng, cases = random.Random(41), []
    kinds = ["plain", "ties", "skewed", "plain", "binary", "offset", "huge", "ties", "plain", "skewed"]
    for at in range(230):
        kind = "tiny" if at % 20 == 7 else "constant" if at % 20 == 13 else kinds[at % 10]
        n_clusters = rng.randint(2, 4) if at % 6 == 5 else rng.randint(10, 13)
        clusters = [cluster for cluster in range(n_clusters) for _ in range(rng.randint(2, 4))]
        rng.shuffle(clusters)
        predictions, answers = numbers_of(rng, kind, len(clusters))
        if len(set(answers)) == 1 or kind != "constant" and len(set(predictions)) == 1:
            continue
        figures = figures_of(kind, predictions, answers, clusters, at % 3 == 0)
        cases.append({"name": f"{kind} {at}", "answers": answers, "predictions": predictions, "clusters": clusters, "figures": figures})
    assert all(sum(metric in case["figures"] for case in cases) >= 200 for metric in METRICS)
    print("[" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "]")


main()
