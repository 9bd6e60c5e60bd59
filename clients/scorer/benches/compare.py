"""Compares `assay.score` with ranx, ir_measures and pytrec_eval: CPU time first, then wall time.

    python -m venv target/peers/venv && target/peers/venv/bin/pip install -r tests/peers/requirements.txt
    target/peers/venv/bin/pip install ./clients/python ./clients/scorer
    target/peers/venv/bin/python clients/scorer/benches/compare.py [--items 100000] [--rounds 3] [--only assay,ranx]

A suite has one to three relevant ids with gains for each item; a prediction is ten ids. Each program computes ndcg@10, or
ndcg@10, map@10 and mrr@10, from three sources:

- files: answers and predictions as JSON lines, on disk
- dicts: the same in memory as Python dicts, in the form that the program documents
- native: what its scoring function reads; NDJSON bytes for Assay, `Qrels` and `Run` for ranx, dicts for the others

Each measurement is its own process. Imports and a run on a few items, in which numba compiles, are not counted. CPU time
covers all threads and children. Prints the smallest round, which other load on the machine disturbed least. The program
fails if two programs disagree by more than 1e-9.
"""

import argparse
import itertools
import json
import multiprocessing
import pathlib
import random
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
SOURCES = ["files", "dicts", "native"]
METRIC_SETS = [["ndcg@10"], ["ndcg@10", "map@10", "mrr@10"]]
WARM_UP_ITEMS = 100
TOLERANCE = 1e-9


class Clock:
    """Measures this process's CPU time with its children, and wall time."""

    def __init__(self):
        self.spent = {}

    def run(self, name, work):
        """Runs a function and adds its times under a name. Returns its result."""
        cpu, wall = cpu_seconds(), time.perf_counter()
        result = work()
        self.spent[name] = (cpu_seconds() - cpu, time.perf_counter() - wall)
        return result


def cpu_seconds():
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in of)


def read_lines(path, column):
    with open(path) as file:
        return {row["item_id"]: row[column] for row in map(json.loads, file)}


class Peer:
    """A program that reads dicts of item to id to score."""

    def read(self, folder):
        qrels = read_lines(folder / "answers.ndjson", "answer")
        rankings = read_lines(folder / "predictions.ndjson", "prediction")
        run = {item: {id: 10.0 - at for at, id in enumerate(ids)} for item, ids in rankings.items()}
        return qrels, run

    def convert(self, qrels, run):
        return qrels, run

    def times(self, folder, metrics):
        """Returns the times for each source, and the figures."""
        clock = Clock()
        qrels, run = clock.run("read", lambda: self.read(folder))
        qrels, run = clock.run("convert", lambda: self.convert(qrels, run))
        figures = clock.run("evaluate", lambda: self.evaluate(qrels, run, metrics))
        total = lambda *steps: [sum(clock.spent[step][at] for step in steps) for at in (0, 1)]
        return {
            "files": total("read", "convert", "evaluate"),
            "dicts": total("convert", "evaluate"),
            "native": total("evaluate"),
        }, figures


class Ranx(Peer):
    def convert(self, qrels, run):
        from ranx import Qrels, Run

        return Qrels(qrels), Run(run)

    def evaluate(self, qrels, run, metrics):
        from ranx import evaluate

        found = evaluate(qrels, run, metrics)
        found = found if isinstance(found, dict) else {metrics[0]: found}
        return {metric: float(value) for metric, value in found.items()}


class IrMeasures(Peer):
    def evaluate(self, qrels, run, metrics):
        import ir_measures
        from ir_measures import AP, RR, nDCG

        measures = {"ndcg@10": nDCG @ 10, "map@10": AP @ 10, "mrr@10": RR @ 10}
        found = ir_measures.calc_aggregate([measures[metric] for metric in metrics], qrels, run)
        return {metric: found[measures[metric]] for metric in metrics}


class PytrecEval(Peer):
    def evaluate(self, qrels, run, metrics):
        import pytrec_eval

        # Rankings have ten ids, so recip_rank is cut at ten.
        names = {"ndcg@10": "ndcg_cut_10", "map@10": "map_cut_10", "mrr@10": "recip_rank"}
        wanted = {names[metric] for metric in metrics}
        found = pytrec_eval.RelevanceEvaluator(qrels, wanted).evaluate(run)
        return {
            metric: sum(item[names[metric]] for item in found.values()) / len(found) for metric in metrics
        }


class Assay:
    """Computes all figures in the family in any case."""

    def times(self, folder, metrics):
        import assay_client as assay
        import assay_scorer

        answers, predictions = folder / "answers.ndjson", folder / "predictions.ndjson"
        clock = Clock()
        found = clock.run("files", lambda: assay.score(predictions, answers, metrics[0]))
        in_memory = predictions.read_bytes(), answers.read_bytes()
        text = clock.run(
            "native", lambda: assay_scorer.score([in_memory[0]], [in_memory[1]], metrics[0])
        )
        in_memory = read_lines(predictions, "prediction"), read_lines(answers, "answer")
        of_dicts = clock.run("dicts", lambda: assay.score(*in_memory, metrics[0]))
        assert found == of_dicts == assay.Score.from_dict(json.loads(text))
        return clock.spent, {"ndcg@10": found.value, **found.metrics}


PROGRAMS = {
    "assay": Assay(),
    "pytrec_eval": PytrecEval(),
    "ir_measures": IrMeasures(),
    "ranx": Ranx(),
}


def write(folder, items):
    """Writes a suite and a submission. Ids have ten characters."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    with open(folder / "answers.ndjson", "w") as answers, open(folder / "predictions.ndjson", "w") as file:
        for at in range(items):
            ranking = [f"dish-{number:05}" for number in rng.sample(range(100_000), 10)]
            relevant = rng.sample(ranking, rng.randrange(1, 4)) if rng.random() < 0.8 else ["dish-other"]
            gains = {id: rng.randrange(1, 4) for id in relevant}
            line = {"item_id": f"q{at:09}", "answer": gains}
            answers.write(json.dumps(line, separators=(",", ":")) + "\n")
            line = {"item_id": f"q{at:09}", "prediction": ranking}
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def folder_of(parent, items):
    folder = parent / f"scorer-{items}"
    if not (folder / "predictions.ndjson").exists():
        # In its own process: its memory is not the parent's.
        writing = multiprocessing.Process(target=write, args=(folder, items))
        writing.start()
        writing.join()
    return folder


def measure_here(program, folder, metrics):
    """The child: warms a program up, measures it, and prints times and figures as JSON."""
    PROGRAMS[program].times(folder_of(folder.parent, WARM_UP_ITEMS), metrics)
    times, figures = PROGRAMS[program].times(folder, metrics)
    print(json.dumps([times, {metric: figures[metric] for metric in metrics}]))


def measured(program, folder, metrics):
    command = [sys.executable, __file__, "--child", program, str(folder), ",".join(metrics)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def print_table(rounds, metrics):
    print(f"\n{', '.join(metrics)}")
    smallest = lambda name, source, at: min(times[source][at] for times, _ in rounds[name])
    for source, name in itertools.product(SOURCES, rounds):
        cpu, wall = smallest(name, source, 0), smallest(name, source, 1)
        line = f"{source:7} {name:12} {cpu:9.3f} s CPU {wall:9.3f} s wall"
        if "assay" in rounds and name != "assay":
            line += f"   {cpu / smallest('assay', source, 0):8.1f} × the CPU time of assay"
        print(line, flush=True)


def check_figures(rounds, metrics):
    for metric in metrics:
        values = {name: found[-1][1][metric] for name, found in rounds.items()}
        print(metric, " ".join(f"{name}={value:.12f}" for name, value in values.items()))
        if max(values.values()) - min(values.values()) > TOLERANCE:
            sys.exit(f"the values of {metric} differ")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--items", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--only", default=",".join(PROGRAMS))
    options.add_argument("--folder", type=pathlib.Path, default=ROOT / "target" / "peers")
    options.add_argument("--child", nargs=3)
    options = options.parse_args()
    if options.child:
        program, folder, metrics = options.child
        measure_here(program, pathlib.Path(folder), metrics.split(","))
        return
    folder = folder_of(options.folder, options.items)
    print(f"{options.items:,} items, the smallest of {options.rounds} rounds")
    for metrics in METRIC_SETS:
        rounds = {name: [] for name in options.only.split(",")}
        for _ in range(options.rounds):
            # In turn, so that other load on the machine affects all programs alike.
            for name, found in rounds.items():
                found.append(measured(name, folder, metrics))
        print_table(rounds, metrics)
        check_figures(rounds, metrics)


if __name__ == "__main__":
    main()
