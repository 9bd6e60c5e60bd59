"""The reader of files with predictions: NDJSON, one JSON array, or CSV, possibly compressed.

It has the verdicts of the platform's reader, which the scorer contains. It needs no other package.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from math import isinf
from pathlib import Path
from typing import Any, NoReturn, cast

from ._errors import AssayError

ELEMENT_BYTES_MAX = 1 << 20
"""The longest prediction, in bytes."""
ERRORS_MAX = 20
"""The number of errors after which reading stops."""

_ITEM_ID_BYTES_MAX = 512
_READ_BYTES = 1 << 20
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_IS_UTF16 = "is UTF-16; save the file as UTF-8"
_WHITE = b" \t\r\n"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP_FORMAT = 31
_ZSTD_WINDOW_LOG_MAX = 23
_DECIDED_AFTER = 64 * 1024
_CELLS_MAX = 10_000
# A cell with quotes, or without; and what ends it.
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')
_PLAIN = re.compile(r'[^",\r\n]*')
_CELL_END = re.compile(r",|\r?\n|\Z")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# What decides where a JSON value ends.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[\[\]{},]', re.DOTALL)
_OPEN_QUOTE = "has a line break; is a quote left open?"
_BARE_RETURN = "there is a carriage return without a line feed; lines must end in LF or CRLF"
_TOO_LONG = "is longer than 1 MiB"
_TOO_LARGE = "the number is too large"


@dataclass(frozen=True)
class Entry:
    """One prediction of a file."""

    index: int
    line: int | None
    """The line, from 1; `None` in an array."""
    item_id: str
    value: Any
    has_value: bool = True
    """`False` if the file says that there is none."""

    @property
    def place(self) -> str:
        """The place of the prediction in its file."""
        return place_of(self.index, self.line)


@dataclass(frozen=True)
class Problem:
    """An error of a file. The server refuses a file that has one."""

    field: str
    """The place: `line 7`, `predictions[6]` or `predictions`, and the path below it."""
    message: str


def place_of(index: int, line: int | None) -> str:
    """Returns the place of a prediction as the platform names it."""
    return f"predictions[{index}]" if line is None else f"line {line}"


def describe(name: str | None, problem: Problem) -> str:
    """Returns an error as `file:line: message`. Without a file, a line is a row's number."""
    place, _, path = problem.field.partition(".")
    path = f"{path}: " if path else ""
    if not place.startswith("line "):
        return f"{f'{name}: ' if name else ''}{place}: {path}{problem.message}"
    number = int(place[5:])
    where = f"{name}:{number}" if name else f"predictions[{number - 1}]"
    return f"{where}: {path}{problem.message}"


def compression(first: bytes) -> str:
    """Returns the compression of bytes that begin so: `gzip`, `zstd` or `identity`."""
    if first.startswith(_GZIP):
        return "gzip"
    # A frame with data, or one that decoders skip, such as pzstd's.
    is_skippable = len(first) >= 4 and first[1:4] == b"\x2a\x4d\x18" and first[0] & 0xF0 == 0x50
    return "zstd" if is_skippable or first.startswith(_ZSTD) else "identity"


def detect(path: Path) -> tuple[str, str]:
    """Returns the media type and the compression of a file, as an upload declares them."""
    with path.open("rb") as file:
        encoding = compression(file.read(4))
    return ("text/csv" if _is_named_csv(path.name) else "application/x-ndjson"), encoding


def _is_named_csv(name: str) -> bool:
    return name.lower().removesuffix(".gz").removesuffix(".zst").endswith(".csv")


def read_file(path: Path) -> bytes:
    """Returns a file's text, without compression and byte order mark.

    Raises `AssayError` if it cannot be decompressed.
    """
    content = path.read_bytes()
    encoding = compression(content[:4])
    if encoding == "gzip":
        content = _gunzip(path, content)
    elif encoding == "zstd":
        content = _unzstd(path, content)
    return content.removeprefix(_BYTE_ORDER_MARK)


def _gunzip(path: Path, content: bytes) -> bytes:
    try:
        return _decompress(path, content, lambda: zlib.decompressobj(_GZIP_FORMAT))
    except zlib.error:
        _refuse_compression(path)


def _unzstd(path: Path, content: bytes) -> bytes:
    zstd = _import_zstd()
    if zstd is None:
        raise AssayError(
            f"{path}: reading zstd here needs Python 3.14, a package (pip install backports.zstd), "
            "or the scorer (pip install 'assay-client[score]')."
        )
    options = {zstd.DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG_MAX}
    try:
        return _decompress(path, content, lambda: zstd.ZstdDecompressor(options=options))
    except zstd.ZstdError:
        _refuse_compression(path)


def _import_zstd() -> Any:
    from importlib import import_module

    for name in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(name)
        except ImportError:
            continue
    return None


def _decompress(path: Path, content: bytes, start: Callable[[], Any]) -> bytes:
    """Decompresses all members. Zeros and white space after a member are no content.

    `start` creates a member's decompressor.
    """
    text = BytesIO()
    at = 0
    rest = b""
    while True:
        member = start()
        while not member.eof:
            # In pieces, so that the bytes after a member are not copied again for each one.
            if not rest:
                rest = content[at : at + _READ_BYTES]
                at += len(rest)
            if not rest:
                _refuse_compression(path)
            text.write(member.decompress(rest))
            rest = b""
        rest = member.unused_data.lstrip(b"\0" + _WHITE)
        while not rest and at < len(content):
            rest = content[at : at + _READ_BYTES].lstrip(b"\0" + _WHITE)
            at += _READ_BYTES
        if not rest:
            return text.getvalue()


def _refuse_compression(path: Path) -> NoReturn:
    raise AssayError(f"{path}: the compression is invalid, or the content is truncated.")


def read_document(
    text: bytes, name: str, *, column: str = "prediction", numbers: bool
) -> Iterator[Entry | Problem]:
    """Yields a document's predictions, and its errors.

    Its beginning decides the form: `[` starts an array, `{` starts JSON lines, and a first line
    with the cell `item_id` starts CSV. With `numbers`, the cells of CSV are numbers.
    `column` is the name of the value next to `item_id`.
    """
    start = text[:_DECIDED_AFTER].lstrip(_WHITE)
    line, end, _ = start.partition(b"\n")
    is_whole_line = bool(end) or len(text) < _DECIDED_AFTER
    if start.startswith(b"["):
        found = _read_array(text, column)
    elif start.startswith(b"{"):
        found = _read_lines(text, column)
    elif (is_whole_line and _names_items(line)) or _is_named_csv(name):
        found = _read_table(text, column, numbers=numbers)
    else:
        found = _read_lines(text, column)
    n = 0
    for row in found:
        n += 1
        yield row
    if n == 0:
        yield Problem("predictions", "there must be at least one prediction")


def _names_items(line: bytes) -> bool:
    header = next(_records(line.removesuffix(b"\r")), None)
    return isinstance(header, _Record) and "item_id" in [cell for cell, _ in header.cells]


class _InvalidError(ValueError):
    """A document that is JSON, but not of the platform."""


class _Object(dict[str, Any]):
    """An JSON object."""

    repeated: str | None = None
    """A name that it has twice."""


def _pairs(pairs: list[tuple[str, Any]]) -> _Object:
    found = _Object(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        found.repeated = next(name for name in names if names.count(name) > 1)
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise _InvalidError("NaN and infinity are not numbers")


def _integer(text: str) -> int | float:
    # Python refuses to read integers with more than 4,300 digits.
    return int(text) if len(text) < 300 else float(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_constant=_refuse_constant,
    parse_int=_integer,
)


def _syntax(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"is not valid JSON (column {error.colno})"
    if isinstance(error, RecursionError):
        return "is nested too deep"
    return f"is not valid JSON: {error}"


def _decode(text: str, column: str) -> Any:
    """Reads one value. Raises `ValueError` or `RecursionError`."""
    if text.startswith("\ufeff"):
        raise _InvalidError("there is a byte order mark")
    value = _DECODER.decode(text.strip(" \t\r\n"))
    _refuse_surrogates(text, value, column)
    return value


def _refuse_surrogates(text: str, value: Any, column: str) -> None:
    # Half a character, which UTF-8 cannot express, comes from an escape.
    if "\\u" in text and re.search(r"\\u[dD][89a-fA-F]", text):
        read = value
        if isinstance(value, _Object):
            # The platform reads no more from fields that it ignores.
            texts = [one for one in value.values() if isinstance(one, str)]
            read = [*value, *texts, value.get(column)]
        try:
            json.dumps(read, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise _InvalidError("an escape is half of a character") from None


def _text_problem(raw: bytes) -> str | None:
    """Returns why bytes are not a text, if they are not."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return _IS_UTF16 if raw.startswith(_UTF16) else "is not UTF-8"
    return None


def _read_lines(text: bytes, column: str) -> Iterator[Entry | Problem]:
    index = 0
    for line, raw in enumerate(text.split(b"\n"), 1):
        if not raw.strip(_WHITE):
            continue
        place = place_of(index, line)
        if len(raw) > ELEMENT_BYTES_MAX:
            yield Problem(place, _TOO_LONG)
        elif problem := _text_problem(raw):
            yield Problem(place, problem)
        else:
            try:
                value = _decode(raw.decode(), column)
            except (ValueError, RecursionError) as error:
                has_return = b"\r" in raw.strip(_WHITE)
                yield Problem(place, _BARE_RETURN if has_return else _syntax(error))
            else:
                yield from _entry(index, line, value, column)
        index += 1


def _read_array(text: bytes, column: str) -> Iterator[Entry | Problem]:
    index = 0
    # Bytes that are not UTF-8 become characters that no element may have.
    document = text.decode(errors="surrogateescape")
    space = re.compile(r"[ \t\r\n]*")

    def skip(at: int) -> int:
        found = space.match(document, at)
        return found.end() if found else at

    at = skip(skip(0) + 1)
    if document[at : at + 1] == "]":
        at += 1
    else:
        while True:
            start = at
            try:
                value, at = _DECODER.raw_decode(document, at)
                _refuse_surrogates(document[start:at], value, column)
            except (ValueError, RecursionError) as error:
                if _is_cut(document, start):
                    yield _cut(index)
                else:
                    yield Problem(place_of(index, None), _syntax(error))
                return
            raw = document[start:at].encode(errors="surrogateescape")
            if problem := _text_problem(raw):
                yield Problem(place_of(index, None), problem)
                return
            if len(raw) > ELEMENT_BYTES_MAX:
                yield Problem(place_of(index, None), _TOO_LONG)
            else:
                yield from _entry(index, None, value, column)
            at = skip(at)
            index += 1
            mark = document[at : at + 1]
            at = skip(at + 1)
            if mark == "]":
                break
            if mark == "":
                yield _cut(index)
                return
            if mark != ",":
                yield Problem(place_of(index - 1, None), "is not valid JSON")
                return
    if skip(at) < len(document):
        yield Problem("predictions", "there is something after the end of the array")


def _cut(n_predictions: int) -> Problem:
    message = f"the array ends in the middle, after {n_predictions} predictions"
    return Problem("predictions", message)


def _is_cut(document: str, at: int) -> bool:
    """Returns whether the document ends within the value that starts at a place."""
    depth = 0
    for token in _TOKEN.finditer(document, at):
        mark = token[0][0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
            if depth <= 0:
                return False
        elif mark == "," and depth == 0:
            return False
    return True


def _entry(index: int, line: int | None, row: Any, column: str) -> Iterator[Entry | Problem]:
    """Yields the prediction in one JSON value, or its errors."""
    place = place_of(index, line)
    if not isinstance(row, _Object):
        yield Problem(place, f"must be an object with item_id and {column}")
        return
    fields = row
    problems: list[Problem] = []
    if fields.repeated is not None:
        problems.append(Problem(f"{place}.{fields.repeated}", "is given twice"))
    is_failed = column not in fields and isinstance(fields.get("error"), dict)
    is_failed = is_failed and set(fields) <= {"item_id", "error"}
    if "item_id" not in fields:
        problems.append(Problem(f"{place}.item_id", "this field is required"))
    elif problem := id_problem(fields["item_id"]):
        problems.append(Problem(f"{place}.item_id", problem))
    if column in fields:
        if problem := value_problem(fields[column]):
            problems.append(Problem(f"{place}.{column}", problem))
    elif not is_failed:
        problems.append(Problem(f"{place}.{column}", "this field is required"))
    if problems:
        yield from problems
    else:
        value = fields.get(column)
        yield Entry(index, line, fields["item_id"], value, has_value=not is_failed)


def id_problem(item_id: Any) -> str | None:
    """Returns why a value is no id of an item, if it is none."""
    if not isinstance(item_id, str):
        return "must be a string"
    if not item_id:
        return "must not be empty"
    # A character has at most 4 bytes. Most ids are short, and there are millions of them.
    if len(item_id) * 4 > _ITEM_ID_BYTES_MAX and len(item_id.encode()) > _ITEM_ID_BYTES_MAX:
        return "must be at most 512 bytes long"
    return "must not have a NUL character" if "\0" in item_id else None


def value_problem(value: Any) -> str | None:
    """Returns why a value is no prediction of any metric, if it is none."""
    if isinstance(value, (list, dict)):
        entries = list(cast("Iterable[Any]", value))
        if isinstance(value, dict):
            numbers = cast("dict[str, Any]", value)
            if isinstance(value, _Object) and value.repeated is not None:
                return f"{value.repeated!r} is given twice"
            for label, number in numbers.items():
                if isinstance(number, bool) or not isinstance(number, (int, float)):
                    return f"the value of {label!r} must be a number"
                if isinf(number):
                    return _TOO_LARGE
        elif not all(isinstance(entry, str) for entry in entries):
            return "must have strings only"
        return "must not have a NUL character" if "\0" in "".join(entries) else None
    if isinstance(value, str):
        return "must not have a NUL character" if "\0" in value else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return (
            "must be a string, an array of strings, a number, or an object of label → probability "
            "or level → number"
        )
    return _TOO_LARGE if isinf(value) else None


@dataclass(frozen=True)
class _Record:
    line: int
    cells: list[tuple[str, bool]]
    """The text of each cell, and whether it has quotes."""


def _records(content: bytes) -> Iterator[_Record | tuple[int, str, bool]]:
    """Yields the records of CSV that are not blank.

    An error is its line, its message, and whether it hides the rest.
    """
    if content.startswith(_UTF16):
        yield 1, _IS_UTF16, True
        return
    text = content.decode(errors="surrogateescape")
    at, line = 0, 1
    while at < len(text):
        start, first_line = at, line
        cells: list[tuple[str, bool]] = []
        while True:
            is_quoted = text.startswith('"', at)
            cell = (_QUOTED if is_quoted else _PLAIN).match(text, at)
            nul = text.find("\0", at, cell.end() if cell else len(text))
            if nul >= 0:
                yield line + text.count("\n", at, nul), "there is a NUL character", True
                return
            if cell is None:
                yield line, "the quote is not closed", True
                return
            line += cell[0].count("\n")
            end = _CELL_END.match(text, cell.end())
            if end is None:
                yield line, _cell_problem(text[cell.end()], is_quoted=is_quoted), True
                return
            cells.append((cell[1].replace('""', '"') if is_quoted else cell[0], is_quoted))
            at = end.end()
            if end[0] != ",":
                break
        line += 1
        if len(cells) == 1 and not cells[0][1] and not cells[0][0].strip(" \t"):
            continue
        raw = text[start:at].encode(errors="surrogateescape")
        if problem := _text_problem(raw):
            yield first_line, problem, False
        elif (
            len(cells) > _CELLS_MAX
            or sum(len(cell.encode()) + 1 for cell, _ in cells) > ELEMENT_BYTES_MAX
        ):
            yield first_line, f"{_TOO_LONG}, or has more than 10,000 cells", False
        else:
            yield _Record(first_line, cells)


def _cell_problem(mark: str, *, is_quoted: bool) -> str:
    if mark == "\r":
        return _BARE_RETURN
    if is_quoted:
        return "there is text after the closing quote; a quote in a quoted cell is doubled"
    return "there is a quote in a cell without quotes around it"


def _read_table(text: bytes, column: str, *, numbers: bool) -> Iterator[Entry | Problem]:
    columns: tuple[int, int] | None = None
    width = 0
    index = 0
    for record in _records(text):
        if not isinstance(record, _Record):
            line, message, is_end = record
            yield Problem(place_of(index, line), message)
            if is_end or columns is None:
                return
            index += 1
            continue
        place = place_of(index, record.line)
        names = [cell for cell, _ in record.cells]
        if columns is None:
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                yield Problem(place, f"names the column {repeated[0]!r} twice")
                return
            if not {"item_id", column} <= set(names):
                yield Problem(place, f"must name the columns item_id and {column}")
                return
            columns, width = (names.index("item_id"), names.index(column)), len(names)
            continue
        if len(names) != width:
            yield Problem(place, f"has {len(names)} cells, and the first line has {width}")
        else:
            yield from _row(index, record, columns, column, numbers=numbers)
        index += 1


def _row(
    index: int, record: _Record, columns: tuple[int, int], column: str, *, numbers: bool
) -> Iterator[Entry | Problem]:
    place = place_of(index, record.line)
    (item_id, _), (cell, is_quoted) = (record.cells[number] for number in columns)
    problems: list[Problem] = []
    problem = _OPEN_QUOTE if "\n" in item_id else id_problem(item_id)
    if problem:
        problems.append(Problem(f"{place}.item_id", problem))
    value: Any = None
    has_value = bool(cell) or is_quoted
    try:
        if has_value:
            value = _cell_value(cell, column, numbers=numbers)
            if problem := value_problem(value):
                raise _InvalidError(problem)
    except (ValueError, RecursionError) as error:
        message = (
            str(error) if isinstance(error, _InvalidError) else "is not valid JSON in the cell"
        )
        problems.append(Problem(f"{place}.{column}", message))
    if problems:
        yield from problems
    else:
        yield Entry(index, record.line, item_id, value, has_value=has_value)


def _cell_value(cell: str, column: str, *, numbers: bool) -> Any:
    # A ranking or probabilities are JSON in the cell.
    if cell.startswith(("[", "{")):
        return _decode(cell, column)
    if "\n" in cell:
        raise _InvalidError(_OPEN_QUOTE)
    if not numbers:
        return cell
    if not _NUMBER.fullmatch(cell.strip(" \t")):
        raise _InvalidError(f"must be a number, not {cell!r}")
    return float(cell)
