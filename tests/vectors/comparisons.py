"""Generates comparisons.json: random pairs of item scores, with the figures of SciPy and statsmodels for their difference.

    pip install scipy==1.17.1 statsmodels==0.15.0 numpy==2.4.6
    python comparisons.py > comparisons.json

Each case has these fields:

- `metric`
- `a` and `b`: the scores of the same items
- `stderr`: the standard error of the mean of their differences
- `ci95`: the interval, if it is the normal one
- `p_value`: that of McNemar's exact test for scores of 0 and 1, otherwise that of the permutation test
- `exact`: whether the test is exact. The permutation test is exact if it computed all permutations; otherwise it drew 99,999
- `n_needed`: the number of items that show a mean difference of 0.01 with a power of 0.8 at a level of 0.05
"""

import json
import math
import random
import warnings

import numpy
from scipy.stats import norm, permutation_test, ttest_rel
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.power import normal_sample_size_one_tail

warnings.filterwarnings("ignore")

DRAWS = 99_999


def shares(rng):
    n, p, moved = rng.choice([2, 10, 50, 500, 1000]), rng.random(), rng.choice([0, 0.02, 0.2, 1])
    a = [float(rng.random() < p) for _ in range(n)]
    return "accuracy", a, [float(rng.random() < min(1, p * 1.1)) if rng.random() < moved else one for one in a]


def few_values(rng):
    worth = [0.0, 1.0, 0.5, 0.25, 0.2, 0.125, 0.1]
    n, better = rng.choice([5, 12, 100, 500]), rng.random() < 0.5
    a = [rng.choice(worth) for _ in range(n)]
    return "mrr@10", a, [max(one, rng.choice(worth)) if better and rng.random() < 0.1 else rng.choice([one, one, rng.choice(worth)]) for one in a]


def any_values(rng):
    n, shift = rng.choice([4, 11, 60, 400]), rng.choice([0, 0.05, 0.3])
    a = [round(rng.expovariate(1), 4) for _ in range(n)]
    return rng.choice(["mae", "log_loss", "brier"]), a, [round(abs(one + rng.gauss(shift, 0.5)), 4) for one in a]


def permuted(differences):
    """Returns the p-value of SciPy's permutation test, and whether it is exact. SciPy swaps each pair. A pair without a difference
    doubles the number of permutations and the number of extreme ones alike, so it is left out."""
    moved = differences[differences != 0]
    exact = len(moved) <= 13
    # SciPy requires at least two pairs.
    moved = numpy.append(moved, [0.0, 0.0]) if len(moved) < 2 else moved
    # Two samples, so that SciPy applies the signs by swapping. With one sample, the statistic would have to apply them.
    a, b = numpy.maximum(moved, 0), numpy.maximum(-moved, 0)
    statistic = lambda x, y, axis: abs((x - y).sum(axis=axis))
    found = permutation_test(
        (a, b), statistic, permutation_type="samples", alternative="greater", vectorized=True, batch=2000,
        n_resamples=numpy.inf if exact else DRAWS, rng=numpy.random.default_rng(7),
    )
    return float(found.pvalue), exact


def case(number):
    rng = random.Random(number)
    metric, a, b = [shares, few_values, any_values][number % 3](rng)
    differences = numpy.array(a) - numpy.array(b)
    stderr, ci95 = float(differences.std(ddof=1) / len(a) ** 0.5), None
    if stderr > 0:
        assert abs(float(ttest_rel(a, b).statistic) * stderr - differences.mean()) < 1e-9
    if metric == "accuracy":
        more, less = int((differences > 0).sum()), int((differences < 0).sum())
        p_value, exact = float(mcnemar([[0, more], [less, 0]], exact=True).pvalue), True
    else:
        ci95 = [float(end) for end in differences.mean() + norm.ppf([0.025, 0.975]) * stderr]
        p_value, exact = permuted(differences)
    n_needed = math.ceil(normal_sample_size_one_tail(0.01, 0.8, 0.025, differences.std(ddof=1))) if stderr > 0 else None
    return {"metric": metric, "a": a, "b": b, "stderr": stderr, "ci95": ci95, "p_value": p_value, "exact": exact, "n_needed": n_needed}


print("[" + ",\n".join(json.dumps(case(number)) for number in range(45)) + "]")
