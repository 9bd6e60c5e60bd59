"""Predictions from DataFrames, arrays, files, dicts and iterators."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import assay
from assay._frames import PredictionFile, is_type_of_metric, open_predictions, read_lines
from assay._upload import inline_digest

RANKINGS = {"a/1": ["x", "y"], "b": ["ü"], "c": []}
NUMBERS = {"a/1": 0.1 + 0.2, "b": -1e-17, "c": 3.0}
PROBABILITIES = {"a/1": {"x": 0.25, "y": 0.75}, "b": {"x": 1.0}}
COLUMNS = {"item_id": list(RANKINGS), "prediction": list(RANKINGS.values())}
NUMBER_COLUMNS = {"item_id": list(NUMBERS), "prediction": list(NUMBERS.values())}


def lines(*arguments: Any, metric: str | None = None) -> list[bytes]:
    source = open_predictions(*arguments, metric=metric)
    return [line for chunk in read_lines(source) for line in chunk.splitlines() if line]


def predictions(*arguments: Any, metric: str | None = None) -> dict[str, Any]:
    rows = [json.loads(line) for line in lines(*arguments, metric=metric)]
    return {row["item_id"]: row["prediction"] for row in rows}


@pytest.mark.parametrize(
    "source",
    [
        pd.DataFrame({**COLUMNS, "other": [1, 2, 3]}),
        pl.DataFrame({**COLUMNS, "other": [1, 2, 3]}),
        pl.DataFrame(COLUMNS).lazy(),
        pa.table(COLUMNS),
        RANKINGS,
        list(RANKINGS.items()),
        [{"item_id": k, "prediction": v} for k, v in RANKINGS.items()],
    ],
    ids=["pandas", "polars", "polars-lazy", "pyarrow", "dict", "pairs", "dicts"],
)
def test_rankings_are_equal_from_all_sources(source: Any) -> None:
    assert predictions(source) == RANKINGS
    # The same predictions are the same submission, whichever library holds them.
    assert inline_digest(lines(source)) == inline_digest(lines(RANKINGS))


@pytest.mark.parametrize(
    "source",
    [pd.DataFrame(NUMBER_COLUMNS), pl.DataFrame(NUMBER_COLUMNS), pa.table(NUMBER_COLUMNS)],
    ids=["pandas", "polars", "pyarrow"],
)
def test_numbers_keep_all_digits(source: Any) -> None:
    assert predictions(source) == NUMBERS


def test_structs_are_probabilities_without_nulls() -> None:
    columns = {"item_id": list(PROBABILITIES), "prediction": list(PROBABILITIES.values())}
    for frame in (pl.DataFrame(columns), pa.table(columns), pd.DataFrame(columns)):
        assert predictions(frame) == PROBABILITIES


def test_iterator_is_not_replayable() -> None:
    source = open_predictions(iter(RANKINGS.items()))
    assert not isinstance(source, PredictionFile)
    assert not source.is_replayable
    assert predictions(iter(RANKINGS.items())) == RANKINGS


@pytest.mark.parametrize(
    "rankings",
    [np.array([["x", "y"], ["y", "x"]]), [["x", "y"], ["y", "x"]], np.array([[1, 2], [2, 1]])],
    ids=["strings", "lists", "integers"],
)
def test_array_rows_are_rankings(rankings: Any) -> None:
    found = predictions(["a", "b"], rankings)
    first = [str(entry) for entry in rankings[0]]
    assert found == {"a": first, "b": first[::-1]}


def test_array_elements_are_labels_or_numbers() -> None:
    assert predictions(np.array(["a", "b"]), np.array([1.5, 2])) == {"a": 1.5, "b": 2.0}
    assert predictions(["a", "b"], pd.Series(["x", "y"])) == {"a": "x", "b": "y"}
    with pytest.raises(assay.AssayError, match="2 ids and 1 predictions"):
        lines(["a", "b"], np.array([1]))


def test_csv_follows_metric(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text('item_id,prediction\na,"[""x"", ""y""]"\nb,7\n')
    assert predictions(path) == {"a": ["x", "y"], "b": "7"}
    path.write_text("prediction,item_id\n0.5,a\nx,b\n")
    with pytest.raises(assay.AssayError, match=r"p\.csv:3: prediction: must be a number"):
        lines(path, metric="rmse")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('item_id,prediction\na,"x\nb,y\nc,z\n', "p.csv:2: the quote is not closed"),
        ('item_id,prediction\na,"x\nb,"y\nc,z\n', "p.csv:3: there is text after the closing quote"),
        ('item_id,prediction\na,"x\nb,y"\nc,z\n', "p.csv:2: prediction: has a line break"),
        ("item_id,prediction,prediction\na,x,y\n", "p.csv:1: names the column 'prediction' twice"),
        ("item_id,prediction\na\n", "p.csv:2: has 1 cells, and the first line has 2"),
        ("item_id,prediction\na,x,y\n", "p.csv:2: has 3 cells, and the first line has 2"),
        ("item_id,other\na,x\n", "p.csv:1: must name the columns item_id and prediction"),
        ("", "there must be at least one prediction"),
    ],
)
def test_malformed_csv_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.csv"
    path.write_text(text)
    with pytest.raises(assay.AssayError, match=re.escape(message)):
        lines(path)


def test_csv_of_other_encodings_and_sizes(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"\ufeffitem_id,prediction\r\n\r\na,{'x' * 200_000}\r\n")
    assert predictions(path) == {"a": "x" * 200_000}
    for encoding in ("utf-16", "cp1252"):
        path.write_bytes("item_id,prediction\na,é\n".encode(encoding))
        with pytest.raises(assay.AssayError, match=r"p\.csv:\d+: is (UTF-16|not UTF-8)"):
            lines(path)


def test_values_that_json_lacks_name_their_item() -> None:
    for value in (float("nan"), float("inf"), {"x"}, b"x", object(), pd.NaT, (x for x in "ab")):
        with pytest.raises(assay.AssayError, match="the item a"):
            lines([("a", value)])


def test_parquet_and_json_files(tmp_path: Path) -> None:
    parquet.write_table(pa.table(COLUMNS), tmp_path / "p.parquet")
    assert predictions(tmp_path / "p.parquet") == RANKINGS
    rows = [{"item_id": k, "prediction": v} for k, v in RANKINGS.items()]
    (tmp_path / "p.json").write_text(json.dumps(rows))
    assert predictions(str(tmp_path / "p.json")) == RANKINGS
    with gzip.open(tmp_path / "p.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert predictions(tmp_path / "p.jsonl.gz") == RANKINGS


def test_content_decides_the_encoding(tmp_path: Path) -> None:
    skippable = b"\x50\x2a\x4d\x18"
    for name, content, encoding in (
        ("p.ndjson", b"{}", "identity"),
        ("p.gz", b"{}", "identity"),
        ("p.ndjson", gzip.compress(b"{}"), "gzip"),
        ("p.csv", skippable, "zstd"),
    ):
        (tmp_path / name).write_bytes(content)
        source = open_predictions(tmp_path / name)
        assert isinstance(source, PredictionFile)
        assert source.content_encoding == encoding
        assert source.content_type == ("text/csv" if name == "p.csv" else "application/x-ndjson")
    (tmp_path / "p.feather").write_bytes(b"ARROW1")
    with pytest.raises(assay.AssayError, match="no table that the client reads"):
        open_predictions(tmp_path / "p.feather")
    with pytest.raises(assay.AssayError, match="There is no file"):
        open_predictions(tmp_path / "none.ndjson")


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(assay.AssayError, match="lacks the column `prediction`"):
        lines(pd.DataFrame({"item_id": ["a"], "score": [1]}))
    with pytest.raises(assay.AssayError, match="cannot be a int"):
        lines(3)
    with pytest.raises(assay.AssayError, match=r"predictions\[1\] must be"):
        lines([("a", "x"), "b"])
    with pytest.raises(assay.AssayError, match="item_id must be a string, not int: 7"):
        lines([(7, "x")])


@pytest.mark.parametrize(
    ("metric", "good", "bad"),
    [
        ("accuracy", ["x"], 1),
        ("ndcg@10", "x", [1]),
        ("exact_match", "x", ["x"]),
        ("rmse", 1, True),
        ("mae", 0.5, 1e51),
        ("log_loss", {"x": 0.5, "y": 0.5}, {"x": 0.5}),
        ("ece@15", {"x": 1}, {"x": "1"}),
    ],
)
def test_type_follows_metric(metric: str, good: Any, bad: Any) -> None:
    assert is_type_of_metric(good, metric)
    assert not is_type_of_metric(bad, metric)


def test_package_works_without_libraries() -> None:
    code = """
import sys
for name in ("numpy", "pandas", "polars", "pyarrow", "tqdm"):
    sys.modules[name] = None
import assay
from assay._frames import open_predictions, read_lines, to_polars
made = b"".join(read_lines(open_predictions({"a": ["x"]})))
assert made == b'{"item_id":"a","prediction":["x"]}\\n'
try:
    to_polars([])
except assay.AssayError as error:
    assert str(error) == "to_polars() needs polars, which is not installed.", error
else:
    raise SystemExit("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
