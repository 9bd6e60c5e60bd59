"""Generates rankings.json: random suites and submissions, with the figures of trec_eval and scikit-learn.

    pip install pytrec_eval-terrier==0.5.11 ir_measures==0.4.3 scikit-learn==1.9.1 numpy==2.4.6
    python rankings.py > rankings.json

Each case has these fields:

- `answers`: [[item_id, answer], ..] in the suite's order
- `predictions`: a submission
- `counts`: [n, n_submitted, n_unmatched, n_missing]
- `values`: metric -> mean over all n items; an item without a prediction scores 0

trec_eval orders a run by descending score and breaks ties by id, so each position has a score of its own. A run cannot
contain an id twice: a repetition is replaced with an irrelevant id, so that it still occupies its position. Relevances of
trec_eval are integers, so the ndcg of fractional gains is that of scikit-learn. Both agree on integer gains.
"""

import json
import random
import sys

import ir_measures
import numpy
import pytrec_eval
from sklearn.metrics import accuracy_score, ndcg_score

KS = [1, 3, 5, 10, 100]
KINDS = ["label", "set", "gains", "fractions", "mixed"]


def answer_of(rng, kind, pool):
    kind = rng.choice(KINDS[:3]) if kind == "mixed" else kind
    if kind == "label":
        return rng.choice(pool)
    ids = rng.sample(pool, min(len(pool), rng.choice([1, 2, 3, 6, 45])))
    if kind == "set":
        return ids
    gains = [rng.randint(0, 4) for _ in ids] if kind == "gains" else [rng.choice([0, 0.25, 1.5, 0.1, 3]) for _ in ids]
    gains[0] = gains[0] or 1
    return dict(zip(ids, gains))


def prediction_of(rng, pool, repeats):
    if rng.random() < 0.1:
        return rng.choice(pool)
    length = rng.choice([0, 1, 2, 4, 7, 12, 12, len(pool)])
    ranking = rng.sample(pool, min(length, len(pool)))
    if repeats:
        for _ in range(rng.randint(0, 4)):
            if ranking:
                ranking.insert(rng.randint(0, len(ranking)), rng.choice(ranking))
    return ranking


def gains_of(answer):
    if isinstance(answer, str):
        return {answer: 1}
    return {key: 1 for key in answer} if isinstance(answer, list) else answer


def places_of(prediction):
    """Returns the ranking, with each repetition replaced by an irrelevant id."""
    ranking = [prediction] if isinstance(prediction, str) else prediction
    return [key if key not in ranking[:place] else f"lost {place}" for place, key in enumerate(ranking)]


def run_of(rankings, k=None):
    """Returns rankings, cut at k, as a run with strictly descending scores."""
    return {item: {key: float(-place) for place, key in enumerate(ranking[:k])} for item, ranking in rankings.items() if ranking}


def sklearn_ndcg(gains, ranking, k):
    """Returns scikit-learn's ndcg. Ids that are not ranked follow k irrelevant ones."""
    ids = ranking + [f"filler {place}" for place in range(k)] + [key for key in gains if key not in ranking]
    relevance = numpy.array([[gains.get(key, 0) for key in ids]], dtype=float)
    return ndcg_score(relevance, -numpy.arange(len(ids), dtype=float)[None, :], k=k, ignore_ties=True)


def same(one, other, what):
    if abs(one - other) > 1e-12:
        sys.exit(f"{what}: {one} is not {other}")


def values_of(answers, rankings):
    """Returns all figures, over all items."""
    gains = {item: gains_of(answer) for item, answer in answers}
    whole = all(isinstance(gain, int) for of_item in gains.values() for gain in of_item.values())
    qrels = {item: {key: gain if whole else int(gain > 0) for key, gain in of_item.items()} for item, of_item in gains.items()}
    matched = {item: ranking for item, ranking in rankings.items() if item in gains and ranking}
    over_all = lambda results: sum(results) / len(answers)

    cuts = ",".join(map(str, KS))
    measured = pytrec_eval.RelevanceEvaluator(qrels, {f"ndcg_cut.{cuts}", f"recall.{cuts}", f"success.{cuts}", f"P.{cuts}", f"map_cut.{cuts}"}).evaluate(run_of(matched))
    trec = lambda name: over_all(result[name] for result in measured.values())
    values = {"accuracy": trec("success_1")}
    if all(isinstance(answer, str) for _, answer in answers):
        first = [matched.get(item, ["nothing at all"])[0] for item, _ in answers]
        values["accuracy"] = float(accuracy_score([answer for _, answer in answers], first))
        same(values["accuracy"], trec("success_1"), "accuracy")
    for k in KS:
        values[f"hit_rate@{k}"] = trec(f"success_{k}")
        values[f"recall@{k}"] = trec(f"recall_{k}")
        values[f"precision@{k}"] = trec(f"P_{k}")
        values[f"map@{k}"] = trec(f"map_cut_{k}")
        ndcg = over_all(sklearn_ndcg(gains[item], ranking, k) for item, ranking in matched.items())
        if whole:
            same(ndcg, trec(f"ndcg_cut_{k}"), f"ndcg@{k}")
        values[f"ndcg@{k}"] = trec(f"ndcg_cut_{k}") if whole else float(ndcg)
        cut = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run_of(matched, k))
        values[f"mrr@{k}"] = over_all(result["recip_rank"] for result in cut.values())

        names = {"hit_rate": ir_measures.Success @ k, "recall": ir_measures.R @ k, "mrr": ir_measures.RR @ k}
        names |= {"precision": ir_measures.P @ k, "map": ir_measures.AP @ k}
        names |= {"ndcg": ir_measures.nDCG @ k} if whole else {}
        crossed = list(ir_measures.iter_calc(names.values(), qrels, run_of(matched)))
        for name, measure in names.items():
            # ir_measures returns 0 or nothing for items that are not in the run.
            same(over_all(one.value for one in crossed if one.measure == measure), values[f"{name}@{k}"], f"{name}@{k}")
    return values


def case(number):
    rng = random.Random(number)
    kind, repeats = KINDS[number % len(KINDS)], number % 3 == 1
    pool = [f"c{at}" for at in range(130 if number % 8 == 3 else rng.choice([3, 8, 20, 30]))]
    items = [f"item {at}" for at in range(rng.choice([1, 4, 9]))]
    answers = [[item, answer_of(rng, kind, pool)] for item in items]
    shown = [item for item in items if rng.random() > 0.2] or items[:1]
    shown += [f"stranger {at}" for at in range(rng.choice([0, 0, 1, 3]))]
    rng.shuffle(shown)
    predictions = [{"item_id": item, "prediction": prediction_of(rng, pool, repeats)} for item in shown]
    unmatched = sum(item not in items for item in shown)
    rankings = {one["item_id"]: places_of(one["prediction"]) for one in predictions}
    return {
        "name": f"{number} {kind}{' repeats' if repeats else ''}",
        "answers": answers,
        "predictions": predictions,
        "counts": [len(items), len(shown), unmatched, len(items) - (len(shown) - unmatched)],
        "values": values_of(answers, rankings),
    }


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(case(number), separators=(",", ":")) for number in range(45))
    print(f"[\n{lines}\n]")
