"""Generates catalogs.json: random catalogs and rankings, with the figures of the shown ids.

    pip install numpy==2.4.6 scikit-learn==1.9.1 && pip install --no-deps recbole==1.2.1
    python catalogs.py > catalogs.json

Each case has `k`, `catalog` (popularity by id), `rankings` (null: no prediction) and `figures`.

- With `recbole`, each ranking has at least k distinct ids of the catalog, and coverage, Gini index and popularity are those of RecBole's
  `ItemCoverage`, `GiniIndex` and `AveragePopularity`. These compute with numpy; the module torch, which RecBole also imports, is not
  installed but empty here.
- The other cases have rankings that are short, empty or missing, repeated ids, and ids that the catalog does not have. RecBole knows no
  such rankings: their figures follow the definitions of docs/metrics.md, in exact fractions. Logarithms are those of numpy.
"""

import enum
import importlib.util
import json
import random
import sys
import types
from fractions import Fraction
from pathlib import Path

import numpy
import sklearn.metrics  # noqa: F401: SciPy does not load with the empty module torch.


def recbole_metrics():
    """Loads the modules with RecBole's metrics, without those for training."""
    names = ["recbole", "recbole.evaluator", "recbole.utils", "torch"]
    sys.modules |= {name: types.ModuleType(name) for name in names}
    sys.modules["recbole.utils"].EvaluatorType = enum.Enum("EvaluatorType", ["RANKING", "VALUE"])
    for package in sys.path:
        folder = Path(package) / "recbole" / "evaluator"
        if folder.is_dir():
            break
    for name in ["utils", "base_metric", "metrics"]:
        spec = importlib.util.spec_from_file_location(f"recbole.evaluator.{name}", folder / f"{name}.py")
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    del sys.modules["torch"]
    return module


RECBOLE = recbole_metrics()


class Matrix(numpy.ndarray):
    def numpy(self):
        return numpy.asarray(self)


def by_recbole(rankings, catalog, k):
    codes = {name: code for code, name in enumerate(catalog, 1)}
    matrix = numpy.array([[codes[one] for one in ranking[:k]] for ranking in rankings]).view(Matrix)
    data = {"rec.items": matrix, "data.num_items": len(catalog), "data.count_items": {codes[name]: count for name, count in catalog.items()}}
    config = {"topk": [k], "metric_decimal_place": 17}
    figures = {}
    for name, metric in [("coverage", RECBOLE.ItemCoverage), ("gini", RECBOLE.GiniIndex), ("popularity", RECBOLE.AveragePopularity)]:
        (figure,) = metric(config).calculate_metric(data).values()
        figures[name] = float(figure)
    return figures


def by_definition(rankings, catalog, k):
    shown = [sorted(set(ranking[:k]) & set(catalog)) for ranking in rankings if ranking]
    shown = [ids for ids in shown if ids]
    counts = sorted(sum(name in ids for ids in shown) for name in catalog)
    size, total = len(catalog), sum(counts)
    figures = {"coverage": sum(count > 0 for count in counts) / size}
    if total:
        popularity = [sum(Fraction(catalog[name]) for name in ids) / len(ids) for ids in shown]
        figures["gini"] = float(Fraction(sum((2 * rank - size - 1) * count for rank, count in enumerate(counts, 1)), size * total))
        figures["popularity"] = float(sum(popularity) / len(shown))
        sum_all = float(sum(Fraction(one) for one in catalog.values()))
        novelty = [sum(Fraction(float(-numpy.log2(catalog[name] / sum_all))) for name in ids) / len(ids) for ids in shown]
        figures["novelty"] = float(sum(novelty) / len(shown))
    return figures


def case(number):
    rng = random.Random(f"catalogs {number}")
    is_full, k = number % 2 == 0, rng.choice([1, 3, 5, 10])
    names = [f"id-{at}" for at in range(rng.randint(k + 2, 40))]
    count = lambda: int(rng.paretovariate(0.8)) if is_full or rng.random() < 0.8 else round(rng.expovariate(1) + 1e-3, 4)
    catalog = {name: count() for name in names}
    liked = rng.sample(names, len(names) // 2 + 1)
    rankings = []
    for _ in range(rng.randint(3, 40)):
        if is_full:
            rankings.append(sorted(names, key=lambda one: rng.random() - 0.7 * (one in liked))[: rng.randint(k, min(k + 3, len(names)))])
        elif rng.random() < 0.15:
            rankings.append(rng.choice([None, [], ["unknown"]]))
        else:
            rankings.append([rng.choice(liked + ["unknown", "other"]) for _ in range(rng.randint(1, 2 * k))])
    if number % 30 == 29:
        rankings = [["unknown"], None, []]
    figures = by_definition(rankings, catalog, k)
    if is_full:
        expected = by_recbole(rankings, catalog, k)
        assert all(abs(figures[name] - figure) <= 1e-12 * max(1, abs(figure)) for name, figure in expected.items()), (figures, expected)
        figures |= expected
    return {"recbole": is_full, "k": k, "catalog": catalog, "rankings": rankings, "figures": figures}


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(case(number), separators=(",", ":")) for number in range(120)) + "\n]")
