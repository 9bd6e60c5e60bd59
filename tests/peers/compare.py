"""Compares the scorer, as a whole process, with other programs: CPU seconds, peak memory, and figures.

    python -m venv target/peers/venv && target/peers/venv/bin/pip install -r tests/peers/requirements.txt
    cargo build --release -p assay-worker
    target/peers/venv/bin/python tests/peers/compare.py [--items 1000000] [--shuffled] [--rounds 9] [--only assay,duckdb]

Each program is its own process. It reads the same two line files, joins them, and computes accuracy, recall@10, ndcg@10 and
mrr@10. The suite has one right id per item; a prediction is ten ids. DuckDB uses one thread. Ratios compare the rounds'
medians. Above 100,000 items the programs written in Python are skipped, because they take minutes.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import random
import resource
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ["accuracy", "recall@10", "ndcg@10", "mrr@10"]

DUCKDB = """
import duckdb, json, sys
folder = sys.argv[1]
db = duckdb.connect(config={"threads": 1})
db.execute("set preserve_insertion_order = false")
row = db.execute(f'''
    with answers as (
        select * from read_json('{folder}/answers.ndjson', format = 'newline_delimited', columns = {{item_id: 'varchar', answer: 'varchar'}})
    ), predictions as (
        select * from read_json('{folder}/predictions.ndjson', format = 'newline_delimited',
                                columns = {{item_id: 'varchar', prediction: 'varchar[]'}})
    ), ranked as (
        select coalesce(list_position(p.prediction[1:10], a.answer), 0) as rank
        from answers a left join predictions p using (item_id)
    )
    select avg((rank = 1)::int), avg((rank > 0)::int),
           avg(case when rank > 0 then 1 / log2(rank + 1) else 0 end), avg(case when rank > 0 then 1.0::double / rank else 0 end)
    from ranked''').fetchone()
print(json.dumps(dict(zip(["accuracy", "recall@10", "ndcg@10", "mrr@10"], row))))
"""

READ = """
import json, sys
folder = sys.argv[1]
def lines(name):
    with open(f"{folder}/{name}.ndjson") as file:
        return [json.loads(line) for line in file]
qrels = {line["item_id"]: {line["answer"]: 1} for line in lines("answers")}
run = {line["item_id"]: {id: 10.0 - at for at, id in enumerate(line["prediction"])} for line in lines("predictions")}
"""

RANX = READ + """
from ranx import Qrels, Run, evaluate
found = evaluate(Qrels(qrels), Run(run), ["precision@1", "recall@10", "ndcg@10", "mrr@10"])
print(json.dumps(dict(zip(["accuracy", "recall@10", "ndcg@10", "mrr@10"], map(float, found.values())))))
"""

IR_MEASURES = READ + """
import ir_measures
from ir_measures import P, R, RR, nDCG
names = {P @ 1: "accuracy", R @ 10: "recall@10", nDCG @ 10: "ndcg@10", RR @ 10: "mrr@10"}
found = ir_measures.calc_aggregate(list(names), qrels, run)
print(json.dumps({names[measure]: value for measure, value in found.items()}))
"""

PYTREC_EVAL = READ + """
import pytrec_eval
found = pytrec_eval.RelevanceEvaluator(qrels, {"success_1", "recall_10", "ndcg_cut_10", "recip_rank"}).evaluate(run)
mean = lambda name: sum(one[name] for one in found.values()) / len(qrels)
print(json.dumps(dict(zip(["accuracy", "recall@10", "ndcg@10", "mrr@10"], map(mean, ["success_1", "recall_10", "ndcg_cut_10", "recip_rank"])))))
"""


def write(folder, items, shuffled):
    """Writes a suite and a submission. Ids have ten characters. The right id is among the ten in most predictions."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "suite.toml").write_text('suite_id = "suite:peers"\nversion = "1"\nmetric = "accuracy"\n')
    rng = random.Random(7)
    lines = []
    with open(folder / "answers.ndjson", "w") as answers:
        for at in range(items):
            ranking = [f"dish-{rng.randrange(100_000):05}" for _ in range(10)]
            answer = ranking[rng.randrange(10)] if rng.random() < 0.8 else f"dish-{rng.randrange(100_000):05}"
            answers.write(f'{{"item_id":"q{at:09}","answer":"{answer}"}}\n')
            lines.append(json.dumps({"item_id": f"q{at:09}", "prediction": list(dict.fromkeys(ranking))}, separators=(",", ":")))
    if shuffled:
        rng.shuffle(lines)
    (folder / "predictions.ndjson").write_text("\n".join(lines) + "\n")


def measured(command):
    """Runs a command. Returns its CPU seconds, its peak memory in MB, and its last output line's JSON."""
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        sys.exit(f"{command[0]} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, json.loads(printed.splitlines()[-1])


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--items", type=int, default=1_000_000)
    options.add_argument("--rounds", type=int, default=9)
    options.add_argument("--shuffled", action="store_true")
    options.add_argument("--only", default="")
    options = options.parse_args()
    folder = ROOT / f"target/peers/{options.items}{'-shuffled' if options.shuffled else ''}"
    if not (folder / "predictions.ndjson").exists():
        # In its own process: a child's peak memory starts at its parent's.
        writing = multiprocessing.Process(target=write, args=(folder, options.items, options.shuffled))
        writing.start()
        writing.join()
    python = lambda program: [sys.executable, "-c", program, str(folder)]
    assay = [ROOT / "target/release/assay-worker", "score", "--suite", folder, "--predictions", folder / "predictions.ndjson"]
    peers = {"assay": list(map(str, assay)), "duckdb": python(DUCKDB)}
    if options.items <= 100_000:
        peers |= {"ranx": python(RANX), "ir_measures": python(IR_MEASURES), "pytrec_eval": python(PYTREC_EVAL)}
    wanted = options.only.split(",") if options.only else list(peers)
    rounds = {name: [] for name in peers if name in wanted}
    for _ in range(options.rounds):
        # Round-robin, so that other load on the machine affects all programs alike.
        for name, found in rounds.items():
            found.append(measured(peers[name]))
    print(f"{options.items:,} items, {'shuffled' if options.shuffled else 'in order'}, medians of {options.rounds} rounds")
    median = lambda name, at: statistics.median(found[at] for found in rounds[name])
    for name, found in rounds.items():
        figures = found[-1][2]
        figures = {"accuracy": figures.get("value"), **figures.get("metrics", {})} if name == "assay" else figures
        line = f"{name:12} {median(name, 0):8.3f} s CPU {median(name, 1):8.1f} MB"
        if "assay" in rounds and name != "assay":
            line += f"   assay uses {median('assay', 0) / median(name, 0):.4f} of its CPU time, {median('assay', 1) / median(name, 1):.3f} of its memory"
        print(line, " ".join(f"{figure}={figures[figure]:.12f}" for figure in FIGURES))


main()
