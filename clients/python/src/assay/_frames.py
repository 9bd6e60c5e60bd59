"""Predictions and answers as NDJSON: from DataFrames, arrays, files, dicts and iterators.

Libraries of DataFrames are recognized by their methods, so that none of them is a dependency.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from ._core import encode_json
from ._documents import ERRORS_MAX, Problem, describe, detect, read_document, read_file
from ._errors import AssayError

PredictionValue = Any
"""A ranking (ids, best first), a label, a number, or a dict of label to probability."""
Predictions = Any
"""A DataFrame, a path, a dict, or an iterable of predictions; see `Suite.submit`."""

_ROWS_PER_CHUNK = 20_000
_READ_BYTES = 1 << 20
_PREDICTION = "prediction"
_ANSWER = "answer"
_NUMBER_METRICS = ("rmse", "mae", "spearman")
_LABEL_METRICS = ("exact_match", "f1_macro", "f1_micro")
_PROBABILITY_METRICS = ("log_loss", "brier", "auc", "ece@15")
_RANKING_METRICS = ("accuracy", "hit_rate", "recall", "precision", "ndcg", "mrr", "map")
# With a margin for the rounding of the sum, as on the platform.
_PROBABILITY_TOLERANCE = 1e-6 + 1e-12
_PARQUET = b"PAR1"
_OTHER_TABLES = (".arrow", ".feather", ".xlsx", ".xls", ".pkl", ".npy", ".npz", ".h5")
_NUMBER_MAX = 1e50


@dataclass(frozen=True)
class Rows:
    """Predictions or answers that are converted to NDJSON as they are read."""

    chunks: Callable[[], Iterator[bytes]]
    """Returns the NDJSON in chunks of whole lines."""
    is_replayable: bool
    """`True` if `chunks` can be called again."""


@dataclass(frozen=True)
class PredictionFile:
    """A file that an upload can send as it is."""

    path: Path
    content_type: str
    content_encoding: str
    column: str = _PREDICTION
    """The name of the value next to `item_id`."""
    numbers: bool = False
    """`True` if the cells of CSV are numbers."""


def open_predictions(
    predictions: Predictions, rankings: Any = None, metric: str | None = None
) -> Rows | PredictionFile:
    """Returns the source for predictions in any of the supported forms.

    With `rankings`, the first argument is the ids of the items, and `rankings` is an array with
    one row (a ranking) or one element (a label or a number) for each of them. The `metric` says
    how the text of a CSV file is read. Raises `AssayError` for other types.
    """
    if rankings is not None:
        return _replayable(lambda: _pairs(_array_pairs(predictions, rankings), _PREDICTION))
    return _open(predictions, _PREDICTION, metric)


def open_answers(answers: Any, metric: str) -> Rows | PredictionFile:
    """Returns the source for answers, in the same forms as predictions.

    Their column or key is `answer`.
    """
    return _open(answers, _ANSWER, metric)


def _open(source: Any, column: str, metric: str | None) -> Rows | PredictionFile:
    if isinstance(source, (str, os.PathLike)):
        return _open_file(Path(os.fspath(source)), column, metric)
    if hasattr(source, "collect") and not hasattr(source, "write_ndjson"):
        source = source.collect()  # a lazy frame of polars
    if hasattr(source, "write_ndjson"):
        return _replayable(lambda: _polars(source, column))
    if hasattr(source, "to_json") and hasattr(source, "iloc"):
        return _replayable(lambda: _pandas(source, column))
    if hasattr(source, "to_batches") and hasattr(source, "column_names"):
        return _replayable(lambda: _arrow(source, column))
    if isinstance(source, Mapping):
        made: Mapping[Any, Any] = source  # pyright: ignore[reportUnknownVariableType]
        return _replayable(lambda: _pairs(made.items(), column))
    if isinstance(source, Iterable):
        rows: Iterable[Any] = source  # pyright: ignore[reportUnknownVariableType]
        return Rows(lambda: _pairs(_entries(rows, column), column), isinstance(rows, Sequence))
    raise AssayError(
        f"{column.capitalize()}s cannot be a {type(source).__name__}. Pass a DataFrame with the "
        f"columns `item_id` and `{column}`, a path, a dict, or an iterable of (item_id, {column})."
    )


def _replayable(chunks: Callable[[], Iterator[bytes]]) -> Rows:
    return Rows(chunks, is_replayable=True)


def _entries(rows: Iterable[Any], column: str) -> Iterator[tuple[Any, Any]]:
    for number, row in enumerate(rows):
        if isinstance(row, Mapping):
            try:
                yield row["item_id"], row[column]
            except KeyError as missing:
                raise AssayError(f"{column}s[{number}] lacks {missing}.") from None
        elif isinstance(row, (tuple, list)) and len(cast("Sequence[Any]", row)) == 2:
            yield row[0], row[1]
        else:
            raise AssayError(
                f"{column}s[{number}] must be (item_id, {column}) or a dict with both, "
                f"not {type(cast('object', row)).__name__}."
            )


def _array_pairs(ids: Any, values: Any) -> Iterator[tuple[Any, Any]]:
    if len(ids) != len(values):
        raise AssayError(f"There are {len(ids)} ids and {len(values)} predictions.")
    for start in range(0, len(ids), _ROWS_PER_CHUNK):
        end = start + _ROWS_PER_CHUNK
        for item_id, value in zip(
            _listed(ids, start, end), _listed(values, start, end), strict=True
        ):
            # Arrays of integers are common for rankings, whose ids are strings.
            is_ranking = isinstance(value, (list, tuple))
            ranking = cast("Sequence[Any]", value)
            yield item_id, [str(entry) for entry in ranking] if is_ranking else value


def _listed(values: Any, start: int, end: int) -> list[Any]:
    part = values[start:end]
    return part.tolist() if hasattr(part, "tolist") else list(part)


def _pairs(pairs: Iterable[tuple[Any, Any]], column: str) -> Iterator[bytes]:
    iterator = iter(pairs)
    while batch := list(islice(iterator, _ROWS_PER_CHUNK)):
        yield b"".join([prediction_line(pair, column) for pair in batch])


def prediction_line(pair: tuple[Any, Any], column: str = _PREDICTION) -> bytes:
    """Returns one prediction, or another value of an item, as a line of NDJSON."""
    item_id, value = pair
    if not isinstance(item_id, str):
        raise AssayError(f"item_id must be a string, not {type(item_id).__name__}: {item_id!r}.")
    if not isinstance(value, (list, str, float)) and isinstance(value, Mapping):
        # Columns of structs have a field for every label; absent ones are null.
        numbers: Mapping[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        value = {label: number for label, number in numbers.items() if number is not None}
    try:
        return encode_json({"item_id": item_id, column: value}) + b"\n"
    except (TypeError, ValueError) as error:
        raise AssayError(f"The {column} of the item {item_id} is not valid: {error}.") from None


def failed_line(item_id: str) -> bytes:
    """Returns a prediction that does not exist, as a line of NDJSON. Its item counts as missing."""
    return encode_json({"item_id": item_id, "error": {}}) + b"\n"


def _require_columns(columns: Iterable[Any], column: str) -> None:
    names = [str(name) for name in columns]
    if missing := [name for name in ("item_id", column) if name not in names]:
        raise AssayError(
            f"The frame lacks the column `{'` and `'.join(missing)}`. Columns: {', '.join(names)}."
        )


def _polars(frame: Any, column: str) -> Iterator[bytes]:
    from io import BytesIO

    _require_columns(frame.columns, column)
    selected = frame.select(["item_id", column])
    is_struct = "Struct" in str(selected.dtypes[1])
    for start in range(0, len(selected), _ROWS_PER_CHUNK):
        part = selected.slice(start, _ROWS_PER_CHUNK)
        if is_struct:
            pairs = zip(part["item_id"].to_list(), part[column].to_list(), strict=True)
            yield from _pairs(pairs, column)
        else:
            buffer = BytesIO()
            part.write_ndjson(buffer)
            yield buffer.getvalue()


def _pandas(frame: Any, column: str) -> Iterator[bytes]:
    _require_columns(frame.columns, column)
    selected = frame[["item_id", column]]
    first = selected[column].iloc[0] if len(selected) else None
    # to_json rounds numbers to 15 digits, so only text and rankings are written by it.
    is_text = isinstance(first, (str, list, tuple))
    for start in range(0, len(selected), _ROWS_PER_CHUNK):
        part = selected.iloc[start : start + _ROWS_PER_CHUNK]
        if is_text:
            text: str = part.to_json(orient="records", lines=True, force_ascii=False)
            yield text.rstrip("\n").encode() + b"\n"
        else:
            pairs = zip(part["item_id"].tolist(), part[column].tolist(), strict=True)
            yield from _pairs(pairs, column)


def _arrow(table: Any, column: str) -> Iterator[bytes]:
    _require_columns(table.column_names, column)
    for batch in table.select(["item_id", column]).to_batches(max_chunksize=_ROWS_PER_CHUNK):
        yield from _batch(batch, column)


def _batch(batch: Any, column: str) -> Iterator[bytes]:
    pairs = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    yield from _pairs(pairs, column)


def _open_file(path: Path, column: str, metric: str | None) -> Rows | PredictionFile:
    if not path.is_file():
        raise AssayError(f"There is no file {path}.")
    with path.open("rb") as file:
        is_parquet = file.read(len(_PARQUET)) == _PARQUET
    if is_parquet:
        return _replayable(lambda: _parquet(path, column))
    if path.suffix.lower() in _OTHER_TABLES:
        raise AssayError(
            f"{path}: this is no table that the client reads. Files are NDJSON, a JSON array or "
            "CSV, also with gzip or zstd, or Parquet."
        )
    content_type, encoding = detect(path)
    return PredictionFile(path, content_type, encoding, column, metric in _NUMBER_METRICS)


def _parquet(path: Path, column: str) -> Iterator[bytes]:
    try:
        parquet = _import("pyarrow.parquet", "Reading a .parquet file")
    except AssayError:
        frame = _import("polars", "Reading a .parquet file").read_parquet(path)
        yield from _polars(frame, column)
        return
    file = parquet.ParquetFile(path)
    columns = ["item_id", column]
    _require_columns(file.schema_arrow.names, column)
    for batch in file.iter_batches(_ROWS_PER_CHUNK, columns=columns):
        yield from _batch(batch.select(columns), column)


def _import(name: str, purpose: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise AssayError(f"{purpose} needs {name}, which is not installed.") from None


def to_polars(rows: list[dict[str, Any]]) -> Any:
    """Returns a polars DataFrame. Raises `AssayError` if polars is not installed."""
    return _import("polars", "to_polars()").from_dicts(rows, infer_schema_length=None)


def to_pandas(rows: list[dict[str, Any]]) -> Any:
    """Returns a pandas DataFrame. Raises `AssayError` if pandas is not installed."""
    return _import("pandas", "to_pandas()").DataFrame(rows)


def to_arrow(rows: list[dict[str, Any]]) -> Any:
    """Returns a pyarrow Table. Raises `AssayError` if pyarrow is not installed."""
    return _import("pyarrow", "to_arrow()").Table.from_pylist(rows)


def read_lines(source: Rows | PredictionFile) -> Iterator[bytes]:
    """Returns predictions or answers as NDJSON in chunks of whole lines.

    Raises `AssayError` with the places of the first errors of a file.
    """
    if isinstance(source, Rows):
        yield from source.chunks()
        return
    rows = read_document(
        read_file(source.path), source.path.name, column=source.column, numbers=source.numbers
    )
    problems: list[str] = []
    lines: list[bytes] = []
    for row in rows:
        if isinstance(row, Problem):
            problems.append(describe(str(source.path), row))
            if len(problems) == ERRORS_MAX:
                break
        elif row.has_value:
            lines.append(prediction_line((row.item_id, row.value), source.column))
        else:
            lines.append(failed_line(row.item_id))
    if problems:
        raise AssayError("\n".join(problems))
    for start in range(0, len(lines), _ROWS_PER_CHUNK):
        yield b"".join(lines[start : start + _ROWS_PER_CHUNK])


def chunks(source: Rows | PredictionFile) -> Iterator[bytes]:
    """Returns the bytes of a source: NDJSON, or those of a file as they are."""
    if isinstance(source, Rows):
        yield from source.chunks()
        return
    with source.path.open("rb") as file:
        while chunk := file.read(_READ_BYTES):
            yield chunk


def find_scorer() -> Any:
    """Returns the scorer, which contains the platform's reader. `None` if it is not installed."""
    from importlib import import_module

    try:
        return import_module("assay_scorer")
    except ImportError:
        return None


def is_type_of_metric(value: Any, metric: str) -> bool:
    """Returns whether a prediction has the type that the metric needs. True for other metrics."""
    family = metric.split("@", 1)[0]
    if metric in _NUMBER_METRICS:
        return (
            isinstance(value, (int, float))
            and not isinstance(value, bool)
            and (abs(value) <= _NUMBER_MAX)
        )
    if metric in _LABEL_METRICS:
        return isinstance(value, str)
    if metric in _PROBABILITY_METRICS:
        return isinstance(value, dict) and _are_probabilities(
            list(cast("dict[str, Any]", value).values())
        )
    if family in _RANKING_METRICS:
        return isinstance(value, str) or _is_ranking(value)
    return True


def _is_ranking(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return all(isinstance(entry, str) for entry in entries)


def _are_probabilities(values: list[Any]) -> bool:
    are_numbers = all(
        isinstance(p, (int, float)) and not isinstance(p, bool) and 0 <= p <= 1 for p in values
    )
    if not are_numbers:
        return False
    total = 0.0
    for value in values:
        # Not `sum`, which rounds in another way than the platform from Python 3.12 on.
        total += value
    return abs(total - 1) <= _PROBABILITY_TOLERANCE
