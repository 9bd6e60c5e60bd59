"""Generates figures.json: random suites of labels, numbers and probabilities, with the figures of scikit-learn and SciPy.

    pip install scikit-learn==1.9.1 scipy numpy==2.4.6
    python figures.py > figures.json

Each case has these fields:

- `answers`: [[item_id, answer], ..] in the suite's order
- `predictions`: a submission
- `values`: metric -> figure over all items
- `stderr`: metric -> standard error, if a library or a formula provides one

The reference gets an item without a prediction as the worst prediction of the metric: for labels, a label outside of all
classes, which is not averaged over; for numbers, the spread of the answers as the error; for log_loss and brier, a wrong
label with a probability of 1 (log_loss counts the right label as 1e-15); for ece@15, a gap of 1 outside of all bins.
"""

import json
import random
import warnings

import numpy
from scipy.stats import kendalltau, pearsonr, rankdata, spearmanr
from sklearn import metrics
from sklearn.calibration import calibration_curve

warnings.filterwarnings("ignore")


def submission(rng, items, missing, predict):
    """Returns predictions for most of the items, and for some that are not in the suite, in random order."""
    shown = [item for item in items if rng.random() >= missing] or items[:1]
    predictions = [{"item_id": item, "prediction": predict(item)} for item in shown]
    predictions += [{"item_id": f"stranger {at}", "prediction": predict(None)} for at in range(rng.choice([0, 0, 2]))]
    rng.shuffle(predictions)
    return predictions


def labels(rng, number):
    classes = [f"class {at}" for at in range(rng.choice([1, 2, 3, 7]))]
    items = [f"i{at}" for at in range(rng.choice([1, 2, 10, 60]))]
    answers = {item: rng.choice(classes) for item in items}
    strangers = ["another", "ünknown", "CLASS 0"]
    predict = lambda item: answers.get(item) if rng.random() < 0.5 else rng.choice(classes + strangers)
    predictions = submission(rng, items, rng.choice([0, 0, 0.3]), lambda item: predict(item) or "class 0")
    sent = {one["item_id"]: one["prediction"] for one in predictions}
    true, predicted = [answers[item] for item in items], [sent.get(item, "\x00") for item in items]
    counted = sorted((set(true) | set(predicted)) - {"\x00"})
    f1 = lambda average: float(metrics.f1_score(true, predicted, labels=counted, average=average, zero_division=0))
    accuracy = float(metrics.accuracy_score(true, predicted))
    values = {"accuracy": accuracy, "exact_match": accuracy, "f1_macro": f1("macro"), "f1_micro": f1("micro")}
    return answers, predictions, values, {}


def numbers(rng, number):
    items = [f"i{at}" for at in range(rng.choice([2, 5, 40, 200]))]
    draw = [lambda: rng.gauss(0, 10), lambda: float(rng.randint(0, 4)), lambda: rng.choice([1e-3, 1e6, -2.5])][number % 3]
    answers = {item: draw() for item in items}
    answers[items[0]] += 1  # The answers must not all be the same.
    noise = rng.choice([0, 0.1, 3])
    predict = lambda item: answers.get(item, 0) + rng.choice([0, noise, rng.gauss(0, 1) * noise])
    predictions = submission(rng, items, rng.choice([0, 0, 0.3]), predict)
    sent = {one["item_id"]: one["prediction"] for one in predictions}
    spread = max(answers.values()) - min(answers.values())
    true = numpy.array([answers[item] for item in items])
    guess = numpy.array([sent[item] if item in sent else answers[item] + spread for item in items])
    errors = numpy.array([abs(sent[item] - answers[item]) if item in sent else spread for item in items])
    values = {"mae": float(numpy.mean(errors)), "rmse": float(numpy.sqrt(numpy.mean(errors**2)))}
    assert abs(values["mae"] - metrics.mean_absolute_error(true, guess)) <= 1e-9 * max(1, spread)
    assert abs(values["rmse"] - metrics.root_mean_squared_error(true, guess)) <= 1e-9 * max(1, spread)
    stderr = {"mae": float(numpy.std(errors, ddof=1) / len(items) ** 0.5)}
    if all(item in sent for item in items) and len(set(guess)) > 1:
        values["spearman"] = float(spearmanr(guess, true).statistic)
        values["pearson"] = float(pearsonr(guess, true).statistic)
        values["kendall"] = float(kendalltau(guess, true).statistic)
        bias = numpy.mean(guess) - numpy.mean(true)
        values["ccc"] = float(2 * numpy.cov(guess, true, ddof=0)[0, 1] / (numpy.var(guess) + numpy.var(true) + bias**2))
        values["r2"] = float(metrics.r2_score(true, guess))
    return answers, predictions, values, stderr


def delong(true, score):
    """Returns DeLong's standard error by its definition, with one comparison for each pair."""
    positive, negative = score[true == 1], score[true == 0]
    wins = (positive[:, None] > negative[None, :]) + 0.5 * (positive[:, None] == negative[None, :])
    parts = [numpy.var(wins.mean(axis=axis), ddof=1) / wins.shape[1 - axis] for axis in (0, 1)]
    return float(numpy.sqrt(sum(parts)))


def calibration(confidence, right):
    """Returns the expected calibration error from scikit-learn's curve and the number of items in each of its bins."""
    shown, mean = calibration_curve(right, confidence, n_bins=15, strategy="uniform")
    edges = numpy.linspace(0, 1, 16)
    counts = numpy.bincount(numpy.searchsorted(edges[1:-1], confidence), minlength=15)
    return float(numpy.sum(counts[counts > 0] * numpy.abs(shown - mean)) / len(confidence))


def probabilities(rng, number):
    classes = sorted(f"c{at}" for at in range([2, 2, 3, 5][number % 4]))
    items = [f"i{at}" for at in range(rng.choice([4, 30, 120]))]
    answers = {item: rng.choice(classes) for item in items}
    for item, label in zip(items, classes):
        answers[item] = label  # Every class is an answer.
    steps = rng.choice([4, 16, 1 << 40])

    def predict(_):
        # Multiples of a power of two sum to exactly 1. Labels with a probability of 0 are sometimes left out.
        cuts = sorted(rng.randint(0, steps) for _ in classes[1:])
        shares = [(high - low) / steps for low, high in zip([0, *cuts], [*cuts, steps])]
        return {label: share for label, share in zip(classes, shares) if share > 0 or rng.random() < 0.5}

    predictions = submission(rng, items, rng.choice([0, 0, 0.3]), predict)
    sent = {one["item_id"]: one["prediction"] for one in predictions}
    true = [answers[item] for item in items]
    wrong = {item: next(label for label in classes if label != answers[item]) for item in items}
    table = numpy.array([[sent.get(item, {wrong[item]: 1.0}).get(label, 0.0) for label in classes] for item in items])
    # scikit-learn's own lower bound is smaller than 1e-15, so 1e-15 is applied before.
    bounded = numpy.where(numpy.array([[label == right for label in classes] for right in true]), numpy.maximum(table, 1e-15), table)
    values = {
        "log_loss": float(metrics.log_loss(true, bounded, labels=classes)),
        "brier": float(metrics.brier_score_loss(true, table, labels=classes) if len(classes) > 2 else metrics.brier_score_loss(true, table[:, 1], pos_label=classes[1])),
    }
    confidence, top = table.max(axis=1), [classes[at] for at in table.argmax(axis=1)]
    shown = numpy.array([item in sent for item in items])
    right = numpy.array([int(one == other) for one, other in zip(top, true)])
    # A missing prediction has a gap of 1, and compensates for no other.
    values["ece@15"] = (calibration(confidence[shown], right[shown]) * sum(shown) + sum(~shown)) / len(items)
    stderr = {}
    if len(classes) == 2 and all(item in sent for item in items):
        positive = numpy.array([int(label == classes[1]) for label in true])
        values["auc"] = float(metrics.roc_auc_score(positive, table[:, 1]))
        if min(sum(positive), len(positive) - sum(positive)) > 1:
            stderr["auc"] = delong(positive, table[:, 1])
    return answers, predictions, values, stderr


def case(number, family):
    rng = random.Random(f"{family.__name__} {number}")
    answers, predictions, values, stderr = family(rng, number)
    return {"name": f"{family.__name__} {number}", "answers": list(answers.items()), "predictions": predictions, "values": values, "stderr": stderr}


if __name__ == "__main__":
    cases = [case(number, family) for family in (labels, numbers, probabilities) for number in range(24)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), ensure_ascii=False) for case in cases)
    print(f"[\n{lines}\n]")
