"""Argument checks. Each error names the argument and its rule."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Mapping, Set
from typing import Any, cast

from ._errors import AssayError, OutOfRange

_SHOWN_CHARACTERS = 80


def shown(value: Any) -> str:
    """Returns a value for a message: its `repr`, cut, or its type's name."""
    try:
        text = printable(repr(value))
    except Exception:
        text = f"<{kind_of(value)}>"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def printable(text: str) -> str:
    """Returns a text that can be printed: half characters become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def kind_of(value: Any) -> str:
    """Returns a value's type name."""
    return type(value).__name__


def reason_of(error: BaseException) -> str:
    """Returns an exception's type and text, also if its text cannot be made."""
    try:
        text = printable(str(error))
    except Exception:
        text = ""
    return f"{kind_of(error)}: {text}" if text else kind_of(error)


def text_of(name: str, value: Any) -> str:
    """Returns a string that UTF-8 can express. Raises `AssayError` for other values."""
    if not isinstance(value, str):
        raise AssayError(f"`{name}` must be a string, not {kind_of(value)}.")
    if not is_utf8(value):
        raise AssayError(f"`{name}` has half of a character, a surrogate.")
    return str(value)


def path_of(name: str, value: Any) -> str:
    """Returns a file's or folder's path. Raises `AssayError` for other values."""
    try:
        path = os.fsdecode(value)
        is_path = "\0" not in path
    except Exception:
        path, is_path = "", False
    if not is_path:
        raise AssayError(f"`{name}` must be a path, not {shown(value)}.")
    return path


def is_utf8(text: str) -> bool:
    """Returns whether UTF-8 can express a text. Surrogates, which are half characters, cannot."""
    try:
        str.encode(text)  # A subclass can have a method of its own.
    except UnicodeEncodeError:
        return False
    return True


def label_of(label: Any) -> str | None:
    """Returns a job's label, which is optional. Raises `AssayError` if it is blank."""
    if label is None:
        return None
    if not text_of("label", label).strip():
        raise AssayError("`label` must not be blank. Leave it out for a job without a label.")
    return str(label)


def metadata_of(metadata: Any) -> dict[str, str] | None:
    """Returns a job's metadata, which is optional. Raises `AssayError` for other values."""
    if metadata is None:
        return None
    return {
        text_of("a key of metadata", key): text_of(f"metadata[{shown(key)}]", value)
        for key, value in pairs_of("metadata", metadata)
    }


def pairs_of(name: str, values: Any) -> list[tuple[Any, Any]]:
    """Returns a dict's keys and values. Raises `AssayError` for other values."""
    if not isinstance(values, Mapping):
        raise AssayError(f"`{name}` must be a dict, not {kind_of(values)}.")
    try:
        return [*values.items()]  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
    except Exception as error:
        raise AssayError(f"`{name}` cannot be read ({reason_of(error)}).") from error


def header_of(name: str, value: Any) -> str:
    """Returns a header's value. An error's message does not repeat it."""
    if not isinstance(value, str):
        raise AssayError(f"`{name}` must be a string, not {kind_of(value)}.")
    if not all(" " <= letter <= "~" for letter in value) or value.strip() != value:
        raise AssayError(f"`{name}` must have visible ASCII characters only.")
    return value


def integer_of(name: str, value: Any, least: int) -> int:
    """Returns an integer. Raises `AssayError` for other values, and below `least`."""
    try:
        number = operator.index(value)
    except Exception:
        number = None
    if number is None or isinstance(value, bool):
        raise AssayError(f"`{name}` must be an integer, not {kind_of(value)}.")
    if number < least:
        # An index below 0 is an `IndexError`, as for lists.
        kind = OutOfRange if name == "index" else AssayError
        raise kind(f"`{name}` must be at least {least}, not {shown(number)}.")
    return number


def slice_of(part: slice) -> tuple[int, int | None, int]:
    """Returns start, stop and step for a slice that counts from a listing's start."""
    try:
        start = 0 if part.start is None else operator.index(part.start)
        stop = None if part.stop is None else operator.index(part.stop)
        step = 1 if part.step is None else operator.index(part.step)
    except Exception:
        start, stop, step = 0, None, 0
    if start < 0 or (stop or 0) < 0 or step < 1:
        raise OutOfRange(
            f"A listing can only be sliced from its start, with a positive step: {shown(part)}."
        )
    return start, stop, step


def number_of(name: str, value: Any, least: float = -math.inf) -> float:
    """Returns a number that is not NaN. Raises `AssayError` for other values."""
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except Exception:
        number = math.nan
    if math.isnan(number):
        raise AssayError(f"`{name}` must be a number, not {shown(value)}.")
    if number < least:
        raise AssayError(f"`{name}` must be at least {least:g}, not {number:g}.")
    return number


def flag_of(name: str, value: Any) -> bool:
    """Returns a boolean. Raises `AssayError` for a value that is neither true nor false."""
    try:
        return bool(value)
    except Exception:
        pass
    raise AssayError(f"`{name}` must be True or False, not {kind_of(value)}.")


def list_of(name: str, values: Any) -> list[Any]:
    """Returns an argument's elements in their order. Raises `AssayError` if it has none."""
    if isinstance(values, (str, bytes, Mapping, Set)):
        raise AssayError(f"`{name}` must be a list, not {kind_of(cast('object', values))}.")
    try:
        for method in ("tolist", "to_list", "to_pylist"):
            if hasattr(values, method):
                values = getattr(values, method)()
                break
        return [*values]
    except Exception as error:
        raise AssayError(f"`{name}` cannot be read as a list ({reason_of(error)}).") from error


def optional_list(name: str, values: Any) -> list[Any] | None:
    """Returns an argument's elements, or None for None."""
    return None if values is None else list_of(name, values)
