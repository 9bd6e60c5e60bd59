"""Predictions from DataFrames, arrays, files, dicts and iterators."""

from __future__ import annotations

import decimal
import gzip
import json
import math
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

import assay_client as assay
from assay_client._frames import PredictionFile, metric_problem, open_predictions, read_lines
from assay_client._upload import inline_digest

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
        ("kappa_quadratic", "x", 1),
        ("tvd", {"x": 0.5, "y": 0.5}, "x"),
        ("top@2", {"x": 1}, {"x": 0.9}),
        ("pinball", {"0.1": 1, "0.5": 2}, {"0.1": "1"}),
        ("wis", {"0.5": 2}, 2),
    ],
)
def test_type_follows_metric(metric: str, good: Any, bad: Any) -> None:
    assert metric_problem(good, metric) is None
    assert metric_problem(bad, metric) is not None


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"0.1": 3, "0.5": 3, "0.00001": -1}, None),
        ({"0.00001": 1, "0.1": 3, "0.5": 2}, "the value at 0.5 is below that at 0.1"),
        ({"0.00001": 1, "0.1": 3}, "the level 0.5 is missing"),
        ({"1e-05": 1, "0.1": 3, "0.5": 4}, "'1e-05' is not a level of the suite"),
        ({"0.00001": 1, "0.1": 3, "0.5": 2e50}, "the value at 0.5 is 2e+50, not a number"),
    ],
)
def test_quantiles_have_the_levels_of_the_suite(numbers: Any, problem: str | None) -> None:
    found = metric_problem(numbers, "pinball", [1e-05, 0.1, 0.5])
    assert found is None if problem is None else (found or "").startswith(problem)


def test_package_works_without_libraries() -> None:
    code = """
import sys
for name in ("numpy", "pandas", "polars", "pyarrow", "tqdm"):
    sys.modules[name] = None
import assay_client as assay
from assay_client._frames import open_predictions, read_lines, to_polars
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


MATRIX = [[0.25, 0.75], [1.0, 0.0]]
BY_LABEL = {"a": {"x": 0.25, "y": 0.75}, "b": {"x": 1.0, "y": 0.0}}
WIDE = {"item_id": ["a", "b"], "x": [0.25, 1.0], "y": [0.75, 0.0]}


def natural(*arguments: Any, metric: str | None = None, labels: Any = None) -> dict[str, Any]:
    source = open_predictions(*arguments, metric=metric, labels=labels)
    rows = [json.loads(line) for line in b"".join(read_lines(source)).splitlines()]
    return {row["item_id"]: row["prediction"] for row in rows}


@pytest.mark.parametrize(
    "matrix",
    [
        MATRIX,
        [tuple(row) for row in MATRIX],
        np.array(MATRIX),
        np.array(MATRIX, dtype=np.float32),
        [np.array(row) for row in MATRIX],
        pd.DataFrame(MATRIX),
        pl.DataFrame(MATRIX, orient="row"),
        iter(MATRIX),
    ],
    ids=["lists", "tuples", "numpy", "float32", "arrays", "pandas", "polars", "iterator"],
)
def test_matrix_rows_are_probabilities_of_labels(matrix: Any) -> None:
    assert natural(["a", "b"], matrix, labels=["x", "y"]) == BY_LABEL


@pytest.mark.parametrize(
    "ids", [("a", "b"), pd.Index(["a", "b"]), pl.Series(["a", "b"]), iter("ab")]
)
def test_ids_can_be_any_sequence(ids: Any) -> None:
    assert natural(ids, MATRIX, labels=np.array(["x", "y"])) == BY_LABEL


def test_columns_of_a_frame_are_labels() -> None:
    columns = {name: WIDE[name] for name in ("x", "y")}
    for frame in (pd.DataFrame(columns), pl.DataFrame(columns), pa.table(columns)):
        assert natural(["a", "b"], frame) == BY_LABEL
    integers = pd.DataFrame(MATRIX, columns=np.array([0, 1]))
    assert natural(["a", "b"], integers)["a"] == {"0": 0.25, "1": 0.75}


@pytest.mark.parametrize(
    "frame",
    [
        *(pd.DataFrame(WIDE), pl.DataFrame(WIDE), pl.LazyFrame(WIDE), pa.table(WIDE)),
        *(pd.DataFrame(WIDE).set_index("item_id"), pa.record_batch(WIDE)),
    ],
    ids=["pandas", "polars", "lazy", "pyarrow", "index", "batch"],
)
def test_wide_frames_have_a_column_for_each_label(frame: Any, tmp_path: Path) -> None:
    assert natural(frame, metric="log_loss") == BY_LABEL
    assert natural(frame, labels=["y"]) == {"a": {"y": 0.75}, "b": {"y": 0.0}}
    # Other metrics score one value, so the frame has the wrong columns.
    with pytest.raises(assay.AssayError, match="lacks the column `prediction`"):
        natural(frame, metric="accuracy")
    with pytest.raises(assay.AssayError, match="lacks the column `z`"):
        natural(frame, labels=["z"])


def test_wide_parquet_has_a_column_for_each_label(tmp_path: Path) -> None:
    parquet.write_table(pa.table(WIDE), tmp_path / "p.parquet")
    assert natural(tmp_path / "p.parquet", metric="brier") == BY_LABEL
    assert natural(tmp_path / "p.parquet", labels=["x"])["a"] == {"x": 0.25}
    (tmp_path / "p.ndjson").write_text("{}")
    with pytest.raises(assay.AssayError, match=r"p\.ndjson: `labels` needs"):
        natural(tmp_path / "p.ndjson", labels=["x"])


def test_index_of_pandas_has_the_ids() -> None:
    assert natural(pd.Series([1.5, 2], index=["a", "b"])) == {"a": 1.5, "b": 2.0}
    assert natural(pd.DataFrame({"prediction": ["x"]}, index=["a"])) == {"a": "x"}
    with pytest.raises(assay.AssayError, match=r"predictions\[0\]: item_id must be a string"):
        natural(pd.Series([1.5, 2]))
    with pytest.raises(assay.AssayError, match="cannot be a Series"):
        natural(pl.Series([1.5, 2]))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.str_("x"), "x"),
        (np.array(["x", "y"]), ["x", "y"]),
        (("x", "y"), ["x", "y"]),
        (pd.Series(["x"]), ["x"]),
        (pl.Series(["x"]), ["x"]),
        (pa.scalar(1.5), 1.5),
        (decimal.Decimal("0.1"), 0.1),
        ({np.int64(1): np.float64(0.5), 2: decimal.Decimal("0.5")}, {"1": 0.5, "2": 0.5}),
        ({"x": 1, "y": None, "z": pd.NA}, {"x": 1}),
    ],
)
def test_library_values_become_json_values(value: Any, expected: Any) -> None:
    assert natural([("a", value)]) == {"a": expected}


def test_arrow_decimals_and_maps_are_read() -> None:
    decimals = pa.array([decimal.Decimal("0.10"), decimal.Decimal("2.50")])
    assert natural(pa.table({"item_id": ["a", "b"], "prediction": decimals})) == {
        "a": 0.1,
        "b": 2.5,
    }
    kind = pa.map_(pa.string(), pa.float64())
    maps = pa.array([[("x", 0.25), ("y", 0.75)], [("x", 1.0), ("y", 0.0)]], kind)
    assert natural(pa.table({"item_id": ["a", "b"], "prediction": maps})) == BY_LABEL


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (math.nan, "is nan, and must be a finite number"),
        (None, "is missing. Leave out items that have none"),
        (pd.NA, "is missing"),
        (pd.NaT, "is missing"),
        (10**400, "is an integer of about 401 digits; the largest has 308"),
        (10**5000, "is an integer of about 5001 digits"),
        ({}, "has no probability. Give each label one, with the sum 1"),
        ({"x": math.nan}, "has, for the label 'x', nan, and must be"),
        ({"x": 10**400}, "has, for the label 'x', an integer of about 401 digits"),
        ({"x": "y"}, "is not valid: the value of 'x' must be a number"),
        ({1: 0.5, "1": 0.5}, "is not valid: the label '1' is given twice"),
        ({1.5: 1}, "is not valid: the label 1.5 must be a string, not float"),
        ([1, 2], r"must have strings only, not list: \[1, 2\]"),
        (True, "must be a string, .* not bool: True"),
        (b"x", "must be a string, .* not bytes: b'x'"),
        ("\ud800", "has half of a character"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else "",
)
def test_invalid_value_names_item_value_and_rule(value: Any, message: str) -> None:
    with pytest.raises(assay.AssayError, match=f"^The prediction of the item b {message}"):
        natural([("a", 1.0), ("b", value)])


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"item_id": ["a", "b"], "prediction": [1.0, None]}),
        pd.DataFrame({"item_id": ["a", "b"], "prediction": pd.array([1, None], "Int64")}),
        pd.DataFrame({"item_id": ["a", "b"], "prediction": ["x", None]}),
        pl.DataFrame({"item_id": ["a", "b"], "prediction": [1.0, None]}),
        pl.DataFrame({"item_id": ["a", "b"], "prediction": [1.0, math.nan]}),
        pl.DataFrame({"item_id": ["a", "b"], "prediction": [["x"], None]}),
        pa.table({"item_id": ["a", "b"], "prediction": [1.0, None]}),
    ],
)
def test_null_of_a_frame_names_its_item(frame: Any) -> None:
    with pytest.raises(assay.AssayError, match=r"^The prediction of the item b is (missing|nan)"):
        natural(frame)


@pytest.mark.parametrize(
    ("arguments", "labels", "message"),
    [
        ((["a", "b"], MATRIX), None, "ranking of the item 'a' has 0.25, .* pass `labels`"),
        ((["a", "b"], MATRIX), ["x"], "row of the item 'a' has 2 probabilities for 1 labels"),
        ((["a", "b"], [0.5, 0.5]), ["x", "y"], "has 1 probabilities for 2 labels"),
        ((["a"], MATRIX), ["x", "y"], "There are 1 ids and 2 predictions"),
        ((["a", "b"], MATRIX), ["x", "x"], "`labels` has a label twice"),
        ((["a", "b"], MATRIX), "xy", "`labels` must be a list, not str"),
        ((["a", "b"], {"x": 1}), None, "`rankings` must be a list or an array, not dict"),
        (("ab", MATRIX), None, "`predictions` must be a list or an array, not str"),
        (({"a": "x"},), ["x"], "`labels` needs ids with a matrix"),
    ],
)
def test_misused_matrix_says_what_is_wrong(
    arguments: tuple[Any, ...], labels: Any, message: str
) -> None:
    with pytest.raises(assay.AssayError, match=message):
        natural(*arguments, labels=labels)


def test_column_that_is_there_twice_is_an_error() -> None:
    frame = pd.DataFrame([["a", "x", "y"]], columns=["item_id", "prediction", "prediction"])
    with pytest.raises(assay.AssayError, match="has the column `prediction` twice"):
        natural(frame)


def test_exception_of_an_object_names_the_row() -> None:
    class Row(dict[str, Any]):
        def __getitem__(self, key: str) -> Any:
            raise ZeroDivisionError("hostile")

    rows = [("a", "x"), Row(item_id="b", prediction="x")]
    message = r"predictions\[1\] cannot be read \(ZeroDivisionError: hostile\)"
    with pytest.raises(assay.AssayError, match=message):
        natural(rows)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.pkl", b"\x80\x04.", "A pickle can run code when it is read"),
        ("p.npy", b"\x93NUMPY", r"Load it with numpy\.load"),
        ("p.xlsx", b"PK", "Pass it as a DataFrame"),
        ("p.csv", b"item_id,prediction\ra,x\r", r"p\.csv:1: there is a carriage return"),
        ("p.txt", b"item_id,prediction\ra,x\r", r"p\.txt:1: there is a carriage return"),
        (
            "p.ndjson",
            b'{"item_id":"a"}\r{"item_id":"b"}',
            r"p\.ndjson:1: there is a carriage return",
        ),
        ("p.parquet", b"PAR1", r"p\.parquet cannot be read as Parquet"),
        ("p.json", b'[{"item_id":"a","prediction":1},', r"p\.json: predictions: the array ends"),
    ],
)
def test_unreadable_file_says_why(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(assay.AssayError, match=message):
        natural(tmp_path / name)


def test_zstd_needs_python_or_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b'{"item_id":"a","prediction":"x"}\n'
    (tmp_path / "p.zst").write_bytes(pa.compress(rows, "zstd", asbytes=True))
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(assay.AssayError, match=r"needs Python 3\.14.*pip install backports\.zstd"):
        natural(tmp_path / "p.zst")
    monkeypatch.undo()
    if sys.version_info < (3, 14):
        pytest.importorskip("backports.zstd")
    assert natural(tmp_path / "p.zst") == {"a": "x"}
