"""Generates classes.json: random suites of labels, sets and probabilities, with the figures of scikit-learn.

    pip install scikit-learn==1.9.1 numpy==2.4.6
    python classes.py > classes.json

Each case has these fields:

- `answers`: [[item_id, answer], ..] in the suite's order
- `predictions`: a submission
- `values`: metric -> figure over all items

- Labels: the reference gets a missing prediction as a label of its own, so no item is left out. The classes of
  `balanced_accuracy` are the labels of the answers.
- Sets: order and repetitions do not count. A missing prediction is an empty set.
- Probabilities: every item has a prediction. Labels with a probability of 0 are sometimes left out.
"""

import json
import random
import warnings

import numpy
from sklearn import metrics
from sklearn.preprocessing import MultiLabelBinarizer

warnings.filterwarnings("ignore")


def labels(rng):
    classes = [f"class {at}" for at in range(rng.choice([2, 3, 7]))]
    n = rng.choice([5, 20, 60])
    answers = classes[:2] + [rng.choice(classes) for _ in range(n - 2)]
    strangers = ["another", "ünknown", "CLASS 0"]
    right, missing = rng.random(), rng.choice([0, 0.2])
    constant = rng.choice(classes) if rng.random() < 0.1 else None
    predict = lambda answer: constant or (answer if rng.random() < right else rng.choice(classes + strangers))
    predictions = [None if rng.random() < missing else predict(answer) for answer in answers]
    sent = ["\x00" if prediction is None else prediction for prediction in predictions]
    values = {
        "balanced_accuracy": float(metrics.balanced_accuracy_score(answers, sent)),
        "mcc": float(metrics.matthews_corrcoef(answers, sent)),
        "kappa": float(metrics.cohen_kappa_score(answers, sent)),
    }
    return answers, predictions, values


def sets(rng):
    ids = [f"id {at}" for at in range(rng.choice([3, 8, 60]))]
    n = rng.choice([5, 20])

    def answer():
        some = rng.sample(ids, rng.randint(1, min(len(ids), 40)))
        # A gain of 0 makes an id irrelevant, other gains make no difference.
        gains = {one: rng.choice([0.5, 1, 3]) for one in some} | {one: 0 for one in ids if one not in some}
        return rng.choice([some, some[0], gains])

    def relevant(answer):
        if isinstance(answer, dict):
            return {one for one, gain in answer.items() if gain > 0}
        return {answer} if isinstance(answer, str) else set(answer)

    answers = [answer() for _ in range(n)]
    pool = [*ids, "another"]
    predict = lambda: rng.choice([[rng.choice(pool) for _ in range(rng.randint(0, 50))], rng.sample(pool, 2), rng.choice(pool)])
    predictions = [None if rng.random() < 0.1 else predict() for _ in answers]
    sent = [{one} if isinstance(one, str) else set(one or []) for one in predictions]
    to_matrix = MultiLabelBinarizer(classes=pool)
    true, predicted = to_matrix.fit_transform(map(relevant, answers)), to_matrix.transform(sent)
    values = {
        "jaccard": float(metrics.jaccard_score(true, predicted, average="samples", zero_division=0)),
        "f1_set": float(metrics.f1_score(true, predicted, average="samples", zero_division=0)),
    }
    return answers, predictions, values


def probabilities(rng):
    classes = [f"c{at}" for at in range(rng.choice([3, 4, 6]))]
    answers = classes + [rng.choice(classes) for _ in range(rng.choice([0, 6, 40]))]
    rng.shuffle(answers)
    steps = rng.choice([4, 16, 1024])
    table = []
    for answer in answers:
        # Multiples of a power of two sum to exactly 1.
        cuts = sorted(rng.randint(0, steps) for _ in classes[1:])
        shares = [(high - low) / steps for low, high in zip([0, *cuts], [*cuts, steps])]
        if rng.random() < 0.5:
            largest, right = shares.index(max(shares)), classes.index(answer)
            shares[largest], shares[right] = shares[right], shares[largest]
        table.append(shares)
    values = {"auc_ovr": float(metrics.roc_auc_score(answers, numpy.array(table), multi_class="ovr", labels=classes))}
    shown = lambda shares: {label: share for label, share in zip(classes, shares) if share > 0 or rng.random() < 0.5}
    return answers, [shown(shares) for shares in table], values


def case(number, family):
    rng = random.Random(f"{family.__name__} {number}")
    answers, predictions, values = family(rng)
    items = [f"i{at}" for at in range(len(answers))]
    shown = [{"item_id": item, "prediction": one} for item, one in zip(items, predictions) if one is not None]
    rng.shuffle(shown)
    return {"name": f"{family.__name__} {number}", "answers": list(zip(items, answers)), "predictions": shown, "values": values}


if __name__ == "__main__":
    cases = [case(number, family) for family in (labels, sets, probabilities) for number in range(200)]
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), ensure_ascii=False) for case in cases)
    print(f"[\n{lines}\n]")
