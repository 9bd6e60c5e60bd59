"""Generates distributions.json: random suites whose answers are distributions of labels, with figures of SciPy and others.

    pip install scipy==1.17.1 scikit-learn==1.9.1 scoringrules==0.10.0 numpy==2.4.6
    python distributions.py > distributions.json

Each case has `labels` (the named options, or null), `clip` (or null), `items` (pairs of answer and prediction, null for none) and
`figures`: metric -> [value, standard error].

- `log_loss`, `kl`: `scipy.stats.entropy`. `jsd`: the square of `scipy.spatial.distance.jensenshannon` with base 2. `tvd`: half of
  `scipy.spatial.distance.cityblock`. `wasserstein`: `scipy.stats.wasserstein_distance` over 0 to K - 1, divided by K - 1. `rps` of a
  label: `scoringrules.rps_score`, divided by K - 1; of a distribution: numpy. `brier`, `hellinger`: numpy. `top@k`:
  `sklearn.metrics.top_k_accuracy_score` with the classes in reversed byte order, because it prefers the last one of equal scores.
- Predicted labels that are no options are further coordinates with the share 0. `wasserstein` and `rps` count their sum r as the
  distance 1.
"""

import json
import math
import random

import numpy
import scoringrules
from scipy.spatial.distance import cityblock, jensenshannon
from scipy.stats import entropy, wasserstein_distance
from sklearn.metrics import top_k_accuracy_score

LEAST = 1e-15
NAMES = ["ä", "b", "B", "never", "a", "c 1", "z", "often"]
OTHERS = ["other", "A"]


def top(k, labels, p, q):
    order = sorted(range(len(labels)), key=lambda place: labels[place].encode(), reverse=True)
    scores = [-1.0] + [q[place] for place in order]
    classes = range(len(scores))
    modes = [at + 1 for at, place in enumerate(order) if p[place] == max(p)]
    return max(top_k_accuracy_score([mode], [scores], k=k, labels=classes) for mode in modes)


def scores(options, answer, prediction, clip, brier_max, is_ordinal):
    others = [label for label, share in (prediction or {}).items() if label not in options and share > 0]
    p = numpy.array([answer.get(label, 0.0) for label in options])
    bounded = lambda loss: float(numpy.clip(loss, *clip)) if clip else loss
    if prediction is None:
        losses = {
            "log_loss": clip[1] if clip else -math.log(LEAST),
            "kl": clip[1] if clip else entropy(p, numpy.full(len(p), LEAST)) - math.log(LEAST) - math.log(len(p)),
            "brier": brier_max,
            **dict.fromkeys(["tvd", "jsd", "hellinger"], 1.0),
            **dict.fromkeys(["top@1", "top@2"], 0.0),
        }
        return losses | (dict.fromkeys(["wasserstein", "rps"], 1.0) if is_ordinal else {})
    q = numpy.array([prediction.get(label, 0.0) for label in options])
    rest = [prediction[label] for label in others]
    wide_p = numpy.concatenate([p, numpy.zeros(len(rest))])
    wide_q = numpy.concatenate([q, rest])
    floored = numpy.maximum(wide_q, LEAST)
    found = {
        "log_loss": bounded(entropy(p) + entropy(wide_p, floored)),
        "kl": bounded(entropy(wide_p, floored)),
        "brier": float(numpy.sum((wide_q - wide_p) ** 2)) * brier_max / 2,
        "tvd": cityblock(wide_p, wide_q) / 2,
        "jsd": jensenshannon(wide_p, wide_q, 2) ** 2,
        "hellinger": math.sqrt(max(0.0, 1 - float(numpy.sum(numpy.sqrt(wide_p * wide_q))))),
        "top@1": top(1, options + others, wide_p, wide_q),
        "top@2": top(2, options + others, wide_p, wide_q),
    }
    if is_ordinal:
        r, n = sum(rest), len(options) - 1
        if q.sum() > 0:
            scaled = q / q.sum()
            distance = wasserstein_distance(range(n + 1), range(n + 1), p, scaled) / n
            difference = numpy.cumsum(p - scaled)[:-1]
            square = float(numpy.sum(difference**2)) / n
            if max(p) == 1:
                of_label = float(scoringrules.rps_score(int(p.argmax()) + 1, scaled)) / n
                assert abs(of_label - square) < 1e-14
                square = of_label
        else:
            distance = square = 1.0
        found |= {"wasserstein": (1 - r) * distance + r, "rps": (1 - r) * square + r}
    return found


def parts(generator, n, total, zeros):
    """Returns n random multiples of 1/total that sum to 1."""
    cuts = sorted(generator.randint(0, total) for _ in range(n - 1))
    shares = [high - low for low, high in zip([0] + cuts, cuts + [total])]
    if zeros and n > 2:
        shares[0] += shares[1]
        shares[1] = 0
    return [share / total for share in shares]


def case(seed):
    generator = random.Random(seed)
    form = ["named", "own", "labels", "mixed", "named labels"][seed % 5]
    names = generator.sample(NAMES, generator.randint(2, 6))
    named = names if form.startswith("named") else None
    has_clip = seed % 7 == 0
    clip = [generator.choice([0.0, 0.25]), generator.choice([1.5, 4.0])] if has_clip else None
    items = []
    for place in range(generator.randint(3, 9)):
        own = generator.sample(names, generator.randint(2, len(names)))
        is_label = form in ("labels", "named labels") or (form == "mixed" and place % 2)
        if is_label:
            answer = names[place] if place < len(names) else generator.choice(names)
        else:
            answer = dict(zip(own, parts(generator, len(own), generator.choice([10, 64, 1000]), generator.random() < 0.3)))
        known = [answer] if is_label and generator.random() < 0.5 else []
        shown = list(dict.fromkeys(known + generator.sample(names, generator.randint(1, len(names)))))
        if generator.random() < 0.3:
            shown += generator.sample(OTHERS, generator.randint(1, 2))
        generator.shuffle(shown)
        prediction = dict(zip(shown, parts(generator, len(shown), generator.choice([8, 100]), generator.random() < 0.3)))
        items.append([answer, prediction if generator.random() < 0.9 else None])
    labels = [answer for answer, _ in items if isinstance(answer, str)]
    keys = [label for answer, _ in items if not isinstance(answer, str) for label in answer]
    # An item whose answer is a label has all labels of the suite as options.
    common = sorted(set(labels + keys), key=str.encode)
    options_of = lambda answer: named or (common if isinstance(answer, str) else list(answer))
    brier_max = 2.0 if max(len(options_of(answer)) for answer, _ in items) > 2 else 1.0
    is_ordinal = form not in ("labels", "mixed")
    figures = {}
    for answer, prediction in items:
        shares = {answer: 1.0} if isinstance(answer, str) else answer
        for metric, score in scores(options_of(answer), shares, prediction, clip, brier_max, is_ordinal).items():
            figures.setdefault(metric, []).append(float(score))
    stderr = lambda values: float(numpy.std(values, ddof=1) / math.sqrt(len(values)))
    wilson = lambda values: math.sqrt(numpy.mean(values) * (1 - numpy.mean(values)) / len(values))
    return {
        "name": f"{form} {seed}",
        "labels": named,
        "clip": clip,
        "items": items,
        "figures": {
            metric: [float(numpy.mean(values)), (wilson if metric.startswith("top") else stderr)(values)]
            for metric, values in figures.items()
        },
    }


# Two of five forms have no order, so that 340 cases have 200 values of each metric.
print("[" + ",\n".join(json.dumps(case(seed), ensure_ascii=False) for seed in range(340)) + "]")
