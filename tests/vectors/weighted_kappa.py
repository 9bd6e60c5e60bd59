"""Generates weighted_kappa.json: random suites with ordered labels and their quadratic kappa.

    pip install scikit-learn==1.9.1 numpy==2.4.6
    python weighted_kappa.py > weighted_kappa.json

Each case has `labels` in their order, `answers`, `predictions` (null for none) and `value`. Where each item has a prediction among the
labels, the value is that of `sklearn.metrics.cohen_kappa_score` with `weights="quadratic"`. Elsewhere it is numpy's, from a table with
one more column, whose predictions agree with no answer; both are compared where both exist.
"""

import json
import random
import warnings

import numpy
from sklearn.metrics import cohen_kappa_score

warnings.simplefilter("error")


def of_table(labels, answers, predictions):
    n = len(labels)
    places = numpy.arange(n)
    weights = numpy.zeros((n, n + 1))
    weights[:, :n] = 1 - (places[:, None] - places[None, :]) ** 2 / (n - 1) ** 2
    observed = numpy.zeros((n, n + 1))
    for answer, prediction in zip(answers, predictions):
        observed[labels.index(answer), labels.index(prediction) if prediction in labels else n] += 1
    observed /= observed.sum()
    chance = numpy.outer(observed.sum(1), observed.sum(0))
    by_chance = (weights * chance).sum()
    return ((weights * observed).sum() - by_chance) / (1 - by_chance)


def case(seed):
    generator = random.Random(seed)
    n_labels = generator.randint(2, 7)
    labels = generator.sample(["low", "a", "ä", "high", "1", "10", "2", "x y"], n_labels)
    n = generator.randint(5, 25)
    answers = labels[:2] + [generator.choice(labels) for _ in range(n - 2)]
    predictions = []
    is_complete = seed % 2 == 0
    for answer in answers:
        place = labels.index(answer) + generator.choice([0, 0, 0, 1, -1, 2])
        predictions.append(labels[min(max(place, 0), n_labels - 1)])
        if not is_complete and generator.random() < 0.2:
            predictions[-1] = generator.choice([None, "other"])
    value = of_table(labels, answers, predictions)
    if is_complete:
        golden = cohen_kappa_score(answers, predictions, labels=labels, weights="quadratic")
        assert abs(golden - value) < 1e-13
        value = golden
    return {"labels": labels, "answers": answers, "predictions": predictions, "value": float(value)}


print("[" + ",\n".join(json.dumps(case(seed), ensure_ascii=False) for seed in range(400)) + "]")
