"""Predictions and answers as NDJSON: from DataFrames, arrays, files, dicts and iterators.

Libraries of DataFrames are recognized by their methods, so that none is a dependency.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from math import isfinite
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, cast

from ._arguments import is_utf8, kind_of, list_of, path_of, printable, reason_of, shown
from ._core import encode_json
from ._documents import (
    ERRORS_MAX,
    Problem,
    describe,
    detect,
    id_problem,
    read_document,
    read_file,
    value_problem,
)
from ._errors import AssayError
from ._tables import METRICS

Pair = tuple[Any, Any]
"""An item id, and its prediction or answer."""
PredictionValue = Any
"""A ranking (ids, best first), a label, a number, or a dict of label to probability or of level to
number."""
Predictions = Any
"""A DataFrame, a path, a dict, or an iterable of predictions; see `Suite.submit`."""

_ROWS_PER_CHUNK = 20_000
_READ_BYTES = 1 << 20
_PREDICTION = "prediction"
_ANSWER = "answer"
_FORMS = {metric: form for form, metrics in METRICS.items() for metric in metrics.split()}
# With a margin for the rounding of the sum, as on the platform.
_PROBABILITY_TOLERANCE = 1e-6 + 1e-12
_PARQUET = b"PAR1"
_PICKLE = " A pickle can run code when it is read: load it yourself, and pass the object."
_ARRAY = " Load it with numpy.load, and pass the ids and the array."
# The formats that are recognized by name, with a remedy.
_OTHER_TABLES = {
    **dict.fromkeys((".arrow", ".feather", ".xlsx", ".xls", ".h5"), " Pass it as a DataFrame."),
    **dict.fromkeys((".pkl", ".pickle", ".joblib", ".pt"), _PICKLE),
    **dict.fromkeys((".npy", ".npz"), _ARRAY),
}
_NUMBER_MAX = 1e50
_JSON_TYPES = (str, float, int, bool)
_FLOAT_MAX = 1.7976931348623157e308


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
    predictions: Predictions, rankings: Any = None, metric: str | None = None, labels: Any = None
) -> Rows | PredictionFile:
    """Returns the source for predictions in any of the supported forms, see `Suite.submit`.

    The `metric` says how the text of a CSV file is read, and whether a frame can have one column
    for each label. Raises `AssayError` for other types.
    """
    return _open(predictions, _PREDICTION, metric, rankings, labels)


def open_answers(answers: Any, metric: str) -> Rows | PredictionFile:
    """Returns the source for answers, in the same forms as predictions.

    Their column or key is `answer`.
    """
    return _open(answers, _ANSWER, metric)


def _open(
    source: Any, column: str, metric: str | None, values: Any = None, labels: Any = None
) -> Rows | PredictionFile:
    try:
        if isinstance(source, (str, bytes, os.PathLike)) and values is None:
            path = Path(path_of(f"{column}s", source))
            return _open_file(path, column, metric, labels)
        pairs, is_replayable = _natural_pairs(source, column, metric, values, labels)
    except AssayError:
        raise
    except Exception as error:
        raise AssayError(f"{column}s cannot be read ({reason_of(error)}).") from error
    return Rows(lambda: _ndjson(pairs(), column), is_replayable)


def _natural_pairs(
    source: Any, column: str, metric: str | None, values: Any, labels: Any
) -> tuple[Callable[[], Iterator[Pair]], bool]:
    """Returns the pairs of item id and value of any object, and whether they can be read again.

    All forms that callers may pass are recognized here, and only here.
    """
    if values is not None:
        ids, rows = _ordered("predictions", source), _matrix(values)
        names = _ordered_labels(labels if labels is not None else rows.names)
        return lambda: _aligned(ids, rows, names), True
    table = _table_of(source)
    if table is not None:
        return lambda: _table_pairs(table, column, metric, labels), True
    if labels is not None:
        raise AssayError("`labels` needs ids with a matrix, or a frame with a column for each.")
    if hasattr(source, "iloc") and hasattr(source, "index"):  # a Series of pandas
        return lambda: zip(source.index.tolist(), source.tolist(), strict=True), True
    if isinstance(source, Mapping):
        made: Mapping[Any, Any] = source  # pyright: ignore[reportUnknownVariableType]
        return lambda: iter(made.items()), True
    if not hasattr(source, "to_frame") and isinstance(source, Iterable):
        entries: Iterable[Any] = source  # pyright: ignore[reportUnknownVariableType]
        return lambda: _entries(entries, column), isinstance(entries, Sequence)
    raise AssayError(
        f"{column.capitalize()}s cannot be a {kind_of(source)}. Pass a DataFrame with the "
        f"columns `item_id` and `{column}`, a path, a dict, an iterable of (item_id, {column}), or "
        "ids with an array."
    )


class _IteratorError(Exception):
    """What a caller's iterator has raised, which the caller gets as it is."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


def _each(rows: Iterable[Any]) -> Iterator[Any]:
    iterator = iter(rows)
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return
        except Exception as error:
            raise _IteratorError(error) from None
        yield row


def _entries(rows: Iterable[Any], column: str) -> Iterator[Pair]:
    for number, row in enumerate(_each(rows)):
        if isinstance(row, Mapping):
            fields: Mapping[Any, Any] = row  # pyright: ignore[reportUnknownVariableType]
            for name in ("item_id", column):
                if name not in fields:
                    raise AssayError(f"{column}s[{number}] lacks `{name}`.")
            yield fields["item_id"], fields[column]
        elif isinstance(row, (tuple, list)) and len(cast("Sequence[Any]", row)) == 2:
            yield row[0], row[1]
        else:
            raise AssayError(
                f"{column}s[{number}] must be (item_id, {column}) or a dict with both, "
                f"not {kind_of(cast('object', row))}."
            )


class _Table(NamedTuple):
    """A pandas, polars or pyarrow frame, or a matrix, read in row ranges."""

    names: list[str] | None
    """The names of the columns. None for a matrix, which `read` reads by rows."""
    n_rows: int
    read: Callable[[int, int, int], list[Any]]
    """Returns the values of a column, or the rows of a matrix, from one row to another."""
    ids: Callable[[int, int], list[Any]] | None = None
    """Returns the index of pandas, if somebody has set it."""


def _table_of(source: Any) -> _Table | None:
    """Returns a frame as a table. None for other objects."""
    if hasattr(source, "collect") and not hasattr(source, "write_ndjson"):
        source = source.collect()  # a lazy frame of polars
    if hasattr(source, "write_ndjson"):

        def from_polars(column: int, start: int, end: int) -> Any:
            return source.to_series(column).slice(start, end - start).to_list()

        return _Table(list(source.columns), len(source), from_polars)
    if hasattr(source, "iloc") and hasattr(source, "columns"):
        index = source.index

        def from_pandas(column: int, start: int, end: int) -> Any:
            return source.iloc[start:end, column].tolist()

        def ids(start: int, end: int) -> Any:
            return index[start:end].tolist()

        names = [str(name) for name in source.columns]
        is_set = kind_of(index) != "RangeIndex"
        return _Table(names, len(source), from_pandas, ids if is_set else None)
    if hasattr(source, "to_pydict") and hasattr(source, "schema"):
        # Maps are lists of pairs in Python.
        maps = [str(field.type).startswith("map<") for field in source.schema]

        def from_arrow(column: int, start: int, end: int) -> list[Any]:
            found = source.column(column).slice(start, end - start).to_pylist()
            return [_map_of(pairs) for pairs in found] if maps[column] else found

        return _Table([str(name) for name in source.schema.names], source.num_rows, from_arrow)
    return None


def _map_of(pairs: Any) -> Any:
    if pairs is None:
        return None
    found = dict(pairs)
    if len(found) != len(pairs):
        raise AssayError("A map has a label twice.")
    return found


def _table_pairs(
    table: _Table, column: str, metric: str | None, labels: Any = None
) -> Iterator[Pair]:
    """Yields a frame's pairs: from its column, or from one column for each label."""
    names = table.names or []
    has_ids = "item_id" in names or table.ids is not None
    is_wide = labels is not None or (
        column not in names
        and column == _PREDICTION
        and form_of(metric) in ("probabilities", "quantiles")
    )
    wanted = [column]
    if is_wide:
        wanted = [name for name in names if name != "item_id"]
        wanted = wanted if labels is None else _ordered_labels(labels) or []
    needed = [*([] if has_ids else ["item_id"]), *wanted]
    if missing := [name for name in needed if name not in names]:
        raise AssayError(
            f"The frame lacks the column `{'` and `'.join(missing)}`. Columns: {', '.join(names)}."
        )
    if repeated := [name for name in ("item_id", *wanted) if names.count(name) > 1]:
        raise AssayError(f"The frame has the column `{repeated[0]}` twice.")
    positions = [names.index(name) for name in wanted]
    for start in range(0, table.n_rows, _ROWS_PER_CHUNK):
        end = start + _ROWS_PER_CHUNK
        if "item_id" in names:
            ids = table.read(names.index("item_id"), start, end)
        else:
            ids = table.ids(start, end) if table.ids else []
        columns = [table.read(position, start, end) for position in positions]
        rows = zip(*columns, strict=True)
        for item_id, row in zip(ids, rows, strict=True):
            yield item_id, dict(zip(wanted, row, strict=True)) if is_wide else row[0]


def _ordered(name: str, values: Any) -> Any:
    """Returns ids or rows as a sequence. Raises `AssayError` for values without an order."""
    if isinstance(values, (str, bytes, Mapping, Set)):
        raise AssayError(f"`{name}` must be a list or an array, not {kind_of(values)}.")
    is_sequence = hasattr(values, "__len__") and hasattr(values, "__getitem__")
    return values if is_sequence else list_of(name, values)


def _ordered_labels(labels: Any) -> list[str] | None:
    if labels is None:
        return None
    found = [_label_text(label) for label in list_of("labels", labels)]
    if len(set(found)) != len(found):
        raise AssayError("`labels` has a label twice.")
    return found


def _matrix(values: Any) -> _Table:
    table = _table_of(values)
    if table is not None:
        return table
    rows = _ordered("rankings", values)

    def from_rows(_: int, start: int, end: int) -> list[Any]:
        return _listed(rows, start, end)

    return _Table(None, len(rows), from_rows)


def _aligned(ids: Any, table: _Table, labels: list[str] | None) -> Iterator[Pair]:
    """Yields pairs: the ids and a matrix's rows, which are rankings or probabilities."""
    if len(ids) != table.n_rows:
        raise AssayError(f"There are {len(ids)} ids and {table.n_rows} predictions.")
    for start in range(0, len(ids), _ROWS_PER_CHUNK):
        end = start + _ROWS_PER_CHUNK
        rows: Iterable[Any] = table.read(0, start, end)
        if table.names is not None:
            columns = [table.read(column, start, end) for column in range(len(table.names))]
            rows = zip(*columns, strict=True)
        for item_id, row in zip(_listed(ids, start, end), rows, strict=True):
            is_row = isinstance(row, (list, tuple))
            entries = cast("Sequence[Any]", row)
            if labels is None:
                yield item_id, _ranking_of(item_id, entries) if is_row else row
            elif not is_row or len(entries) != len(labels):
                count = len(entries) if is_row else 1
                raise AssayError(
                    f"The row of the item {shown(item_id)} has {count} probabilities for "
                    f"{len(labels)} labels."
                )
            else:
                yield item_id, dict(zip(labels, entries, strict=True))


def _ranking_of(item_id: Any, entries: Sequence[Any]) -> list[str]:
    # Arrays of integers are common for rankings, whose ids are strings.
    for entry in entries:
        if not isinstance(entry, (str, int)):
            raise AssayError(
                f"The ranking of the item {shown(item_id)} has {shown(entry)}, which is no id. "
                "For probabilities, pass `labels` with the label of each column."
            )
    return [str(entry) for entry in entries]


def _listed(values: Any, start: int, end: int) -> list[Any]:
    part = values.iloc[start:end] if hasattr(values, "iloc") else values[start:end]
    rows = list_of("rankings", part)
    # An array of arrays has rows that are arrays.
    return [row.tolist() if hasattr(row, "tolist") else row for row in rows]


def _ndjson(pairs: Iterator[Pair], column: str) -> Iterator[bytes]:
    """Yields the pairs as NDJSON, in whole-line chunks.

    Raises `AssayError` with the item id, or with the row, for whatever reading them raises, and
    what a caller's iterator raises.
    """
    lines: list[bytes] = []
    row = 0
    try:
        for pair in pairs:
            lines.append(prediction_line(pair, column, row))
            row += 1
            if len(lines) == _ROWS_PER_CHUNK:
                yield b"".join(lines)
                lines = []
    except AssayError:
        raise
    except _IteratorError as raised:
        raise raised.error from None
    except Exception as error:
        raise AssayError(f"{column}s[{row}] cannot be read ({reason_of(error)}).") from error
    if lines:
        yield b"".join(lines)


def prediction_line(pair: Pair, column: str = _PREDICTION, row: int | None = None) -> bytes:
    """Returns one prediction, or an item's other value, as an NDJSON line.

    Raises `AssayError` with the item id, or with the row if the id is invalid.
    """
    item_id, value = pair
    if problem := _problem_of_id(item_id):
        place = "" if row is None else f"{column}s[{row}]: "
        raise AssayError(f"{place}item_id {problem}.")
    try:
        value = plain_value(value)
        problem = _problem_of(value)
        if value == {} and column == _PREDICTION and row is not None:
            # The platform reports those of a file, with their lines.
            problem = "has no probability. Give each label one, with the sum 1"
        if problem is None:
            return encode_json({"item_id": item_id, column: value}) + b"\n"
    except UnicodeEncodeError:
        problem = "has half of a character, a surrogate"
    except AssayError as error:
        problem = f"is not valid: {error}"
    except Exception as error:
        problem = f"is not valid: {reason_of(error)}"
    raise AssayError(f"The {column} of the item {item_id} {problem}.")


def _problem_of_id(item_id: Any) -> str | None:
    if not isinstance(item_id, str):
        return f"must be a string, not {kind_of(item_id)}: {shown(item_id)}"
    if not is_utf8(item_id):
        return f"{shown(item_id)} has half of a character, a surrogate"
    problem = id_problem(item_id)
    return problem and f"{shown(item_id)} {problem}"


def plain_value(value: Any) -> Any:
    """Returns a JSON value for one from Python, numpy, pandas, polars or pyarrow.

    Absent probabilities are left out: struct columns have a field for every label.
    """
    kind = type(value)  # pyright: ignore[reportUnknownVariableType]
    # Most values have these types, and ten million of them are common.
    if kind in _JSON_TYPES or (kind is list and set(map(type, value)) == {str}):
        return value
    if kind is not dict:
        for method in ("tolist", "to_list", "to_pylist", "as_py"):
            if hasattr(value, method):
                value = getattr(value, method)()
                break
    if isinstance(value, (str, float, int)):
        return value
    if _is_null(value):
        return None
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        numbers: Mapping[Any, Any] = value  # pyright: ignore[reportUnknownVariableType]
        for label, number in numbers.items():
            text = _label_text(label)
            if text in found:
                raise AssayError(f"the label {shown(text)} is given twice")
            if not _is_null(number):
                found[text] = plain_value(number)
        return found
    if isinstance(value, (list, tuple)):
        return [plain_value(entry) for entry in cast("Sequence[Any]", value)]
    return float(value) if kind_of(value) == "Decimal" else value


def _is_null(value: Any) -> bool:
    # pandas.NA and NaT
    return value is None or kind_of(value) in ("NAType", "NaTType")


def _label_text(label: Any) -> str:
    """Returns a label as a string. Model classes are often integers."""
    if isinstance(label, str):
        return label
    if not isinstance(label, bool) and isinstance(label, Integral):
        return str(int(label))
    raise AssayError(f"the label {shown(label)} must be a string, not {kind_of(label)}")


def _problem_of(value: Any) -> str | None:
    """Returns why a value cannot be a prediction or an answer for any metric, if it cannot."""
    if value is None:
        return "is missing. Leave out items that have none"
    is_labelled = isinstance(value, dict)
    numbers = cast("dict[str, Any]", value).items() if is_labelled else [("", value)]
    for label, number in numbers:
        of_label = f"has, for the label {shown(label)}, " if is_labelled else "is "
        if isinstance(number, float) and not isfinite(number):
            return f"{of_label}{number}, and must be a finite number"
        if isinstance(number, int) and abs(number) > _FLOAT_MAX:
            n_digits = int(number.bit_length() * 0.30103) + 1
            return f"{of_label}an integer of about {n_digits} digits; the largest has 308"
    problem = value_problem(value)
    if problem is None or not problem.startswith("must"):
        return problem and f"is not valid: {problem}"
    return f"{problem}, not {kind_of(value)}: {shown(value)}"


def failed_line(item_id: str) -> bytes:
    """Returns a prediction that does not exist, as an NDJSON line. Its item counts as missing."""
    return encode_json({"item_id": item_id, "error": {}}) + b"\n"


def _open_file(
    path: Path, column: str, metric: str | None, labels: Any = None
) -> Rows | PredictionFile:
    try:
        # Opening a pipe would wait for its writer.
        if not path.is_file():
            raise AssayError(f"There is no file {printable(str(path))}.")
        with path.open("rb") as file:
            is_parquet = file.read(len(_PARQUET)) == _PARQUET
        content_type, encoding = detect(path)
    except OSError as error:
        raise AssayError(f"{printable(str(path))} cannot be read ({reason_of(error)}).") from None
    if is_parquet:
        return Rows(lambda: _ndjson(_parquet(path, column, metric, labels), column), True)
    suffix = path.suffix.lower()
    if suffix in _OTHER_TABLES:
        raise AssayError(
            f"{path}: this is no table that the client reads. Files are NDJSON, a JSON array or "
            f"CSV, also with gzip or zstd, or Parquet.{_OTHER_TABLES[suffix]}"
        )
    if labels is not None:
        raise AssayError(f"{path}: `labels` needs ids with a matrix, a frame or a Parquet file.")
    return PredictionFile(path, content_type, encoding, column, form_of(metric) == "numbers")


def _parquet(path: Path, column: str, metric: str | None, labels: Any) -> Iterator[Pair]:
    try:
        yield from _parquet_pairs(path, column, metric, labels)
    except AssayError as error:
        raise AssayError(f"{path}: {error}") from None
    except Exception as error:
        raise AssayError(f"{path} cannot be read as Parquet ({reason_of(error)}).") from None


def _parquet_pairs(path: Path, column: str, metric: str | None, labels: Any) -> Iterator[Pair]:
    tables: Iterable[Any]
    try:
        parquet = _import("pyarrow.parquet", "Reading a .parquet file")
    except AssayError:
        tables = [_import("polars", "Reading a .parquet file").read_parquet(path)]
    else:
        file = parquet.ParquetFile(path)
        is_long = labels is None and {"item_id", column} <= set(file.schema_arrow.names)
        tables = file.iter_batches(
            _ROWS_PER_CHUNK, columns=["item_id", column] if is_long else None
        )
        if not file.metadata.num_rows:
            tables = [file.read()]
    for each in tables:
        if (table := _table_of(each)) is not None:
            yield from _table_pairs(table, column, metric, labels)


def _import(name: str, purpose: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise AssayError(f"{purpose} needs {name}, which is not installed.") from None


def to_polars(rows: list[dict[str, Any]]) -> Any:
    """Returns a polars DataFrame. Raises `AssayError` if polars is not installed."""
    polars = _import("polars", "to_polars()")
    if not rows:
        return polars.DataFrame()
    return _made("to_polars()", lambda: polars.from_dicts(rows, infer_schema_length=None))


def to_pandas(rows: list[dict[str, Any]]) -> Any:
    """Returns a pandas DataFrame. Raises `AssayError` if pandas is not installed."""
    pandas = _import("pandas", "to_pandas()")
    return _made("to_pandas()", lambda: pandas.DataFrame(rows))


def to_arrow(rows: list[dict[str, Any]]) -> Any:
    """Returns a pyarrow Table. Raises `AssayError` if pyarrow is not installed."""
    arrow = _import("pyarrow", "to_arrow()")
    return _made("to_arrow()", lambda: arrow.Table.from_pylist(rows))


def _made(name: str, make: Callable[[], Any]) -> Any:
    """Returns a frame. Raises `AssayError` if values in one column have different types."""
    try:
        return make()
    except Exception as error:
        raise AssayError(f"{name} cannot express these values ({reason_of(error)}).") from error


def read_lines(source: Rows | PredictionFile) -> Iterator[bytes]:
    """Returns predictions or answers as NDJSON in whole-line chunks.

    Raises `AssayError` with a file's first errors and their places.
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
    """Returns a source's bytes: NDJSON, or a file's as they are."""
    if isinstance(source, Rows):
        yield from source.chunks()
        return
    try:
        with source.path.open("rb") as file:
            while chunk := file.read(_READ_BYTES):
                yield chunk
    except OSError as error:
        raise AssayError(f"{source.path} cannot be read ({reason_of(error)}).") from None


def find_scorer() -> Any:
    """Returns the scorer, which contains the platform's reader. `None` if it is not installed."""
    from importlib import import_module

    try:
        return import_module("assay_scorer")
    except ImportError:
        return None


def form_of(metric: str | None) -> str | None:
    """Returns the form of a metric's predictions. None for unknown metrics."""
    return _FORMS.get((metric or "").split("@")[0])


def metric_problem(value: Any, metric: str, quantiles: Sequence[float] = ()) -> str | None:
    """Returns why a prediction is none for the metric, or None. None for unknown metrics.

    `quantiles` are the levels of the suite.
    """
    form = form_of(metric)
    if form == "numbers":
        if not _is_number(value):
            return f"{shown(value)} is no number"
        return None if abs(value) <= _NUMBER_MAX else f"{shown(value)} is not within ±1e50"
    if form == "labels":
        return None if isinstance(value, str) else f"{shown(value)} is no label, which is a string"
    if form == "probabilities":
        if not isinstance(value, dict):
            return f"{shown(value)} is no dict of probabilities by label"
        return _probability_problem(value)  # pyright: ignore[reportUnknownArgumentType]
    if form == "quantiles":
        if not isinstance(value, dict):
            return f"{shown(value)} is no dict of numbers by level"
        return _quantile_problem(value, quantiles)  # pyright: ignore[reportUnknownArgumentType]
    if form == "rankings" and not isinstance(value, str) and not _is_ranking(value):
        return f"{shown(value)} is no ranking, which is a list of strings"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _is_ranking(value: Any) -> bool:
    if not isinstance(value, list):
        return False
    entries: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
    return all(isinstance(entry, str) for entry in entries)


def _quantile_problem(numbers: dict[Any, Any], quantiles: Sequence[float]) -> str | None:
    # As the suite writes them: without an exponent.
    levels = [f"{Decimal(str(level)):f}" for level in quantiles] or sorted(map(str, numbers))
    if unknown := [level for level in numbers if level not in levels]:
        return f"{shown(unknown[0])} is not a level of the suite"
    if missing := [level for level in levels if level not in numbers]:
        return f"the level {missing[0]} is missing"
    for level in levels:
        number = numbers[level]
        if not _is_number(number) or abs(number) > _NUMBER_MAX:
            return f"the value at {level} is {shown(number)}, not a number within ±1e50"
    for lower, level in pairwise(levels):
        if numbers[level] < numbers[lower]:
            return f"the value at {level} is below that at {lower}"
    return None


def _probability_problem(probabilities: dict[Any, Any]) -> str | None:
    if not probabilities:
        return "there is no probability"
    total = 0.0
    for label, value in probabilities.items():
        if not _is_number(value) or not 0 <= value <= 1:
            return f"the probability of {shown(label)} is {shown(value)}, not from 0 to 1"
        # Not `sum`, which rounds in another way than the platform from Python 3.12 on.
        total += value
    if abs(total - 1) <= _PROBABILITY_TOLERANCE:
        return None
    return f"the probabilities have the sum {total:.6g}, not 1"
