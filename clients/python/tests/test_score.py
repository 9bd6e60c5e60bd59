"""`assay.score`: a job's figures, computed by the package `assay_scorer`.

Without the package, the tests that need it are skipped, unless `ASSAY_TEST_REQUIRE_SCORER=1`.
`ASSAY_TEST_SCORES` names a JSON file with job results, and with the files that they scored.
"""

from __future__ import annotations

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import assay_client as assay

from .conftest import PACKAGE_FOLDER

IS_INSTALLED = find_spec("assay_scorer") is not None
IS_REQUIRED = os.environ.get("ASSAY_TEST_REQUIRE_SCORER") == "1"
NOT_TESTED = (
    "THE SCORER WAS NOT TESTED: assay_scorer is not installed (pip install ./clients/scorer)"
)
if not IS_INSTALLED and not IS_REQUIRED:
    warnings.warn(NOT_TESTED, stacklevel=1)
# If it is required but not installed, the tests run, and fail with the client's error.
needs_scorer = pytest.mark.skipif(not IS_INSTALLED and not IS_REQUIRED, reason=NOT_TESTED)

METRICS = {
    *("accuracy", "hit_rate", "recall", "precision", "ndcg", "mrr", "map"),
    *("jaccard", "f1_set"),
    *("exact_match", "f1_macro", "f1_micro", "balanced_accuracy", "mcc", "kappa"),
    *("rmse", "mae", "spearman", "pearson", "kendall", "ccc", "r2"),
    *("log_loss", "brier", "auc", "auc_ovr", "ece"),
}
RANKINGS = {"a/1": ["x", "y"], "b": ["ü", "x"], "c": ["z"]}
ANSWERS = {"a/1": "y", "b": ["ü", "x"], "c": "x", "d": {"x": 2.0, "y": 0.5}}
VECTORS = PACKAGE_FOLDER.parent.parent / "tests" / "vectors"


def vectors(name: str) -> list[dict[str, Any]]:
    path = VECTORS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else []


def job_cases() -> list[dict[str, Any]]:
    path = os.environ.get("ASSAY_TEST_SCORES")
    if not path:
        return []
    cases: list[dict[str, Any]] = json.loads(Path(path).read_text())
    for case in cases:
        for name in ("answers", "predictions"):
            case[name] = Path(path).parent / case[name]
    return cases


def write_lines(path: Path, column: str, values: dict[str, Any]) -> Path:
    rows = ({"item_id": item_id, column: value} for item_id, value in values.items())
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_missing_scorer_names_command() -> None:
    code = """
import sys
sys.modules["assay_scorer"] = None
import assay_client as assay
try:
    assay.score({"a": "x"}, {"a": "x"}, "accuracy")
except assay.AssayError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'assay-client[score]'" in done.stdout


@needs_scorer
@pytest.mark.parametrize("case", job_cases(), ids=lambda case: f"{case['metric']} {case['clip']}")
def test_figures_equal_those_of_job(case: dict[str, Any]) -> None:
    clip = tuple(case["clip"]) if case["clip"] else None
    found = assay.score(case["predictions"], case["answers"], case["metric"], clip)
    result = case["result"]
    # Equal, and not only close: both run the same code in the same order.
    assert found.to_dict() == {name: result.get(name) for name in found.to_dict()}


@needs_scorer
@pytest.mark.skipif("ASSAY_TEST_SCORES" not in os.environ, reason="ASSAY_TEST_SCORES is not set")
def test_cases_of_jobs_cover_all_metrics() -> None:
    assert {case["metric"].split("@")[0] for case in job_cases()} == METRICS


@needs_scorer
@pytest.mark.parametrize("name", ["rankings", "figures", "classes"])
def test_figures_agree_with_other_programs(name: str) -> None:
    if not VECTORS.exists():
        pytest.skip("not in the repository")
    seen: set[str] = set()
    for case in vectors(name):
        for metric, expected in case["values"].items():
            seen.add(metric.split("@")[0])
            predictions = case["predictions"]
            found = assay.score(predictions, case["answers"], metric)
            assert found.value == pytest.approx(expected, rel=1e-12, abs=1e-12), case["name"]
    families = {"rankings": METRICS - {"exact_match"}, "figures": METRICS, "classes": METRICS}
    assert seen
    assert seen <= families[name]


@needs_scorer
def test_sources_have_equal_figures(tmp_path: Path) -> None:
    expected = assay.score(RANKINGS, ANSWERS, "ndcg@10")
    assert (expected.n, expected.n_submitted, expected.n_missing) == (4, 3, 1)
    columns = {"item_id": list(RANKINGS), "prediction": list(RANKINGS.values())}
    lines = write_lines(tmp_path / "p.ndjson", "prediction", RANKINGS).read_bytes()
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(lines))
    with pa.CompressedOutputStream(str(tmp_path / "p.ndjson.zst"), "zstd") as file:
        file.write(lines)
    array = [{"item_id": k, "prediction": v} for k, v in RANKINGS.items()]
    (tmp_path / "p.json").write_text(json.dumps(array))
    (tmp_path / "p.json.gz").write_bytes(gzip.compress(json.dumps(array).encode()))
    pd.DataFrame(columns).to_parquet(tmp_path / "p.parquet")
    sources: list[Any] = [
        pd.DataFrame(columns),
        pl.DataFrame(columns),
        pl.DataFrame(columns).lazy(),
        pa.table(columns),
        iter(RANKINGS.items()),
        array,
        *(path for path in tmp_path.iterdir() if path.suffix != ".csv"),
    ]
    for source in sources:
        assert assay.score(source, ANSWERS, "ndcg@10") == expected, source


@needs_scorer
def test_answers_have_equal_figures_from_all_sources(tmp_path: Path) -> None:
    numbers = {"a": 0.1 + 0.2, "b": -1e-17, "c": 3.0}
    predictions = {"a": 0.3, "b": 1.0, "c": 2.5}
    expected = assay.score(predictions, numbers, "rmse")
    columns = {"item_id": list(numbers), "answer": list(numbers.values())}
    path = write_lines(tmp_path / "answers.ndjson", "answer", numbers)
    (tmp_path / "answers.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
    array = [{"item_id": k, "answer": v} for k, v in numbers.items()]
    (tmp_path / "answers.json").write_text(json.dumps(array))
    pd.DataFrame(columns).to_csv(tmp_path / "answers.csv", index=False)
    sources: list[Any] = [
        pd.DataFrame(columns),
        pl.DataFrame(columns),
        pa.table(columns),
        iter(numbers.items()),
        array,
        *tmp_path.iterdir(),
    ]
    for source in sources:
        assert assay.score(predictions, source, "rmse") == expected, source


@needs_scorer
def test_arrays_are_rankings_or_numbers() -> None:
    ids = np.array(["a", "b"])
    found = assay.score(ids, {"a": "1", "b": "1"}, "mrr@2", rankings=np.array([[1, 2], [2, 1]]))
    assert found.value == 0.75
    found = assay.score(ids, {"a": 1, "b": 3.5}, "mae", rankings=np.array([1.5, 3.5]))
    assert found.value == 0.25


@needs_scorer
def test_folder_has_metric_and_clip(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "answers.ndjson", "answer", {"a": 1, "b": 9, "c": 2})
    toml = 'suite_id = "suite:s"\nversion = "1"\nmetric = "rmse"\nclip = [0.5, 2.0]\n'
    (tmp_path / "suite.toml").write_text(toml)
    predictions = {"a": 1, "b": 1}
    found = assay.score(predictions, tmp_path)
    assert found == assay.score(predictions, str(path), "rmse", (0.5, 2))
    assert found == assay.score(predictions, tmp_path, "rmse")
    assert found.value == pytest.approx(((0.25 + 4 + 4) / 3) ** 0.5)
    assert assay.score(predictions, tmp_path, "mae").value == pytest.approx((0 + 8 + 8) / 3)
    (tmp_path / "suite.toml").write_text(toml.replace("rmse", "speed"))
    with pytest.raises(assay.AssayError, match=r"suite\.toml:3: metric: "):
        assay.score(predictions, tmp_path)
    (tmp_path / "suite.toml").unlink()
    assert assay.score(predictions, tmp_path, "mae").value == pytest.approx((0 + 8 + 8) / 3)
    with pytest.raises(assay.AssayError, match=r"suite\.toml"):
        assay.score(predictions, tmp_path)


@needs_scorer
def test_score_has_text_and_html() -> None:
    found = assay.score({"a": "x", "b": "y"}, {"a": "x", "b": "x", "c": "x"}, "accuracy")
    assert str(found) == (
        "accuracy 0.333 ± 0.272 (95 % interval 0.061 to 0.792, wilson), n = 3, 1 missing"
    )
    html = found._repr_html_()
    assert "<svg" in html
    assert "0.061 to 0.792 (wilson)" in html
    assert "3 (1 missing)" in html
    with pytest.raises(AttributeError):
        found.value = 1.0  # type: ignore[misc]


@needs_scorer
@pytest.mark.parametrize(
    ("predictions", "answers", "metric", "message"),
    [
        ({"a": "x"}, {"a": "x"}, "speed", r"^metric: "),
        ({"a": "x"}, {"a": "x"}, None, r"`metric` is required"),
        ([("a", "x"), ("a", "y")], {"a": "x"}, "accuracy", r"^predictions\[1\]\.item_id: this"),
        ([("a", "x"), ("b", 1)], {"a": "x"}, "accuracy", r"^predictions\[1\]\.prediction: "),
        ({"a": 1}, {"a": 1, "b": 2}, "spearman", r"^spearman needs .*: 1 are missing"),
        ({"a": "x"}, {"a": "x", "b": 1}, "accuracy", r"^answers\[1\]: answer: "),
        ({"a": "x"}, [("a", "x"), ("a", "y")], "accuracy", r"^answers: .*"),
        ({"a": "x"}, [("a", "x"), ("b",)], "accuracy", r"answers\[1\] must be \(item_id, answer\)"),
        ({"a": "x"}, {}, "accuracy", r"^answers: "),
        ({}, {"a": "x"}, "accuracy", r"^predictions: there must be at least one"),
        ({"a": "x"}, pd.DataFrame({"item_id": ["a"]}), "accuracy", r"lacks the column `answer`"),
    ],
)
def test_errors_have_locations(predictions: Any, answers: Any, metric: str, message: str) -> None:
    with pytest.raises(assay.AssayError, match=message):
        assay.score(predictions, answers, metric)


@needs_scorer
def test_errors_name_file_and_line(tmp_path: Path) -> None:
    good = write_lines(tmp_path / "good.ndjson", "answer", {"a": "x", "b": "y"})
    path = tmp_path / "p.ndjson"
    path.write_text('{"item_id":"a","prediction":"x"}\n\n{"item_id":"b"}\n')
    with pytest.raises(assay.AssayError, match=r"p\.ndjson: line 3"):
        assay.score(path, good, "accuracy")
    path = tmp_path / "p.json"
    path.write_text('[{"item_id":"a","prediction":"x"},{"item_id":"b","prediction":7}]')
    with pytest.raises(assay.AssayError, match=r"p\.json: predictions\[1\]\.prediction: "):
        assay.score(path, good, "accuracy")
    path = tmp_path / "p.ndjson.gz"
    path.write_bytes(gzip.compress(b'{"item_id":"a","prediction":"x"}\n')[:-4])
    with pytest.raises(assay.AssayError, match=r"p\.ndjson\.gz: the compression is invalid"):
        assay.score(path, good, "accuracy")
    path = write_lines(tmp_path / "bad.ndjson", "answer", {"a": "x", "b": [1]})
    with pytest.raises(assay.AssayError, match=r"bad\.ndjson:2: answer: "):
        assay.score({"a": "x"}, path, "accuracy")


@needs_scorer
@pytest.mark.parametrize(
    ("metric", "clip"), [("accuracy", (0, 1)), ("rmse", (2, 1)), ("mae", (0, float("inf")))]
)
def test_invalid_clip_is_rejected(metric: str, clip: tuple[float, float]) -> None:
    with pytest.raises(assay.AssayError, match=r"^clip: "):
        assay.score({"a": 1}, {"a": 1, "b": 2}, metric, clip)


@needs_scorer
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["Yes", "No"], "2 of the first 2 .* 'Yes' differs from 'yes' in case"),
        (["0", "1"], "have no label of the answers, such as '0' instead of 'no'"),
    ],
)
def test_labels_that_no_answer_has_are_a_warning(labels: list[str], message: str) -> None:
    answers = {"a": "yes", "b": "no"}
    with pytest.warns(assay.AssayWarning, match=message):
        assay.score(["a", "b"], answers, "log_loss", rankings=[[0.5, 0.5]] * 2, labels=labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assay.score(["a"], answers, "log_loss", rankings=[[0.5, 0.5]], labels=["yes", "no"])


@needs_scorer
@pytest.mark.parametrize("raised", [KeyError("row"), KeyboardInterrupt(), assay.AssayError("x")])
def test_exception_of_iterator_is_raised_as_it_is(raised: BaseException) -> None:
    def rows() -> Iterator[tuple[str, str]]:
        yield "a", "x"
        raise raised

    with pytest.raises(type(raised)) as found:
        assay.score(rows(), {"a": "x"}, "accuracy")
    assert found.value is raised
    with pytest.raises(type(raised)) as found:
        assay.score({"a": "x"}, rows(), "accuracy")
    assert found.value is raised


@needs_scorer
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
def test_signal_between_chunks_interrupts() -> None:
    import assay_scorer

    # Python ignores the signal if it was started in a script's background.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    # An iterator in C runs no Python code, in which Python would handle signals.
    chunks = itertools.repeat(b"\n" * 65536, 1_000_000)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        assay_scorer.score(chunks, [b'{"item_id":"a","answer":"x"}\n'], "accuracy")
    timer.join()
    signal.signal(signal.SIGINT, before)


def long_line(number: int, n_ids: int) -> bytes:
    ids = b",".join(b'"dish-%05d"' % at for at in range(n_ids))
    return b'{"item_id":"i%d","prediction":[%s]}\n' % (number, ids)


# Scores predictions for items whose answer is their first id. Prints by how many MB the memory
# grows above the answers'.
MEASURE_MEMORY = """
import resource, sys, assay_client as assay
source, n_items = sys.argv[1], int(sys.argv[2])
def rows():
    for number in range(n_items):
        yield f"i{number}", [f"dish-{at:05}" for at in range(10)]
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
answers = {f"i{number}": "dish-00000" for number in range(n_items)}
assay.score({"i0": "x"}, answers, "accuracy")
before = peak()
found = assay.score(rows() if source == "generator" else source, answers, "mrr@10")
assert (found.n_missing, found.value) == (0, 1.0), found
print(peak() - before)
"""


@needs_scorer
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
@pytest.mark.parametrize("source", ["p.ndjson", "p.ndjson.gz", "generator"])
def test_large_predictions_need_little_memory(tmp_path: Path, source: str) -> None:
    megabytes = 60
    if source == "generator":
        n_items = megabytes * 1_000_000 // len(long_line(100_000, 10))
    else:
        n_items = megabytes * 2
        lines = (long_line(number, 38_000) for number in range(n_items))
        content = b"".join(lines)
        path = tmp_path / source
        path.write_bytes(gzip.compress(content, 1) if path.suffix == ".gz" else content)
        source = str(path)
    command = [sys.executable, "-c", MEASURE_MEMORY, source, str(n_items)]
    done = subprocess.run(command, check=True, capture_output=True)
    assert float(done.stdout) < megabytes / 3


@needs_scorer
def test_other_threads_run_while_chunk_is_scored() -> None:
    import assay_scorer

    line = long_line(0, 8_000)
    chunk = b"".join(line.replace(b"i0", b"i%d" % number) for number in range(600))
    answers = b"".join(b'{"item_id":"i%d","answer":"x"}\n' % at for at in range(600))
    ticks = 0
    window: list[int] = []
    is_done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not is_done.wait(0.001):
            ticks += 1

    def chunks() -> Iterator[bytes]:
        window.append(ticks)
        yield chunk
        window.append(ticks)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        assay_scorer.score(chunks(), [answers], "ndcg@10")
    finally:
        is_done.set()
        thread.join()
    start, end = window
    # At the window's ends, threads alternate in any case.
    assert end - start >= 5
