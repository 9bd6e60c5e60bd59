"""Scores a submission with scikit-learn and trec_eval: agreement.py SUITE_FOLDER PREDICTIONS.

Prints each metric's mean over all suite items. An item without a prediction scores 0.
"""

import json
import pathlib
import sys

import numpy
import pytrec_eval
from sklearn.metrics import accuracy_score

K = 3


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def gains(answer):
    if isinstance(answer, str):
        return {answer: 1}
    return {key: 1 for key in answer} if isinstance(answer, list) else answer


def run_of(ranking):
    """Converts a ranking to a run. trec_eval orders a run by score, so each position has its own score. A run cannot
    contain an id twice: a repetition is replaced with an irrelevant id, so that the ids after it keep their positions. An
    empty run gets an irrelevant id as well."""
    places = [key if key not in ranking[:place] else f"\x01{place}" for place, key in enumerate(ranking[:K])]
    return {key: float(K - place) for place, key in enumerate(places)} or {"\x01": 1.0}


def main():
    folder, submission = map(pathlib.Path, sys.argv[1:])
    answers = {line["item_id"]: line["answer"] for line in read(folder / "answers.ndjson")}
    sent = {line["item_id"]: line["prediction"] for line in read(submission)}
    rankings = {item: sent.get(item, []) for item in answers}
    rankings = {item: [value] if isinstance(value, str) else value for item, value in rankings.items()}

    names = {"accuracy": "success_1", f"hit_rate@{K}": f"success_{K}", f"ndcg@{K}": f"ndcg_cut_{K}"}
    names |= {f"mrr@{K}": "recip_rank", f"recall@{K}": f"recall_{K}", f"precision@{K}": f"P_{K}", f"map@{K}": f"map_cut_{K}"}
    asked = {f"success.1,{K}", f"ndcg_cut.{K}", "recip_rank", f"recall.{K}", f"P.{K}", f"map_cut.{K}"}
    judged = pytrec_eval.RelevanceEvaluator({item: gains(answer) for item, answer in answers.items()}, asked)
    scores = judged.evaluate({item: run_of(ranking) for item, ranking in rankings.items()})
    if len(scores) != len(answers):
        raise SystemExit(f"trec_eval scored {len(scores)} of {len(answers)} items")
    figures = {name: float(numpy.mean([score[theirs] for score in scores.values()])) for name, theirs in names.items()}

    if all(isinstance(answer, str) for answer in answers.values()):
        # With one right answer per item it is a classification, for which scikit-learn is the reference.
        first = [ranking[0] if ranking else "\x01" for ranking in rankings.values()]
        trec_eval, figures["accuracy"] = figures["accuracy"], float(accuracy_score(list(answers.values()), first))
        if abs(trec_eval - figures["accuracy"]) > 1e-12:
            raise SystemExit(f"trec_eval says {trec_eval}, scikit-learn says {figures['accuracy']}")
    print(json.dumps(figures))


main()
