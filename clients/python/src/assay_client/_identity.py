"""A function's identity: which predictions from an interrupted run belong to the same one.

Another function's prediction would be scored without a word. So everything that can change
what a function returns belongs to its identity, and a function that has something unknown has none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, cast

from ._cache import digest_of

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_NATIVE = (BuiltinFunctionType, WrapperDescriptorType)


class _UnknownError(Exception):
    """A value whose content cannot be compared with another process's."""


def identity_of(function: Any) -> tuple[str, str]:
    """Returns a function's digest, or an empty text and the type that has no identity.

    It covers code, defaults and closures, partials' arguments, the functions and plain values that
    it names, and an object's attributes.
    """
    try:
        return digest_of("".join(_Description().of(function))), ""
    except _UnknownError as unknown:
        return "", str(unknown)
    except Exception:
        # The object's attributes raise exceptions, or it is nested too deep.
        return "", type(function).__name__


class _Description:
    """A value's parts, each once."""

    def __init__(self) -> None:
        self._seen: dict[int, object] = {}

    def of(self, value: Any) -> Iterator[str]:
        if isinstance(value, _PLAIN):
            yield f"{type(value).__name__}:{value!r};"
            return
        if id(value) in self._seen:
            # Keeping the value keeps its id from being used again.
            yield f"again:{list(self._seen).index(id(value))};"
            return
        self._seen[id(value)] = value
        yield f"{type(value).__module__}.{type(value).__qualname__}("
        yield from self._content(value)
        yield ")"

    def _content(self, value: Any) -> Iterator[str]:
        if isinstance(value, functools.partial):
            yield from self._all(value.func, value.args, value.keywords)
        elif isinstance(value, FunctionType):
            yield from self._function(value)
        elif isinstance(value, MethodType):
            yield from self._all(value.__func__, value.__self__)
        elif isinstance(value, CodeType):
            yield value.co_code.hex()
            yield from self._all(value.co_consts, value.co_names, value.co_freevars)
        elif isinstance(value, _NATIVE):
            yield f"{value.__qualname__}"
            owner = getattr(value, "__self__", None)
            if owner is not None and not isinstance(owner, ModuleType):
                yield from self.of(owner)
            else:
                yield str(getattr(value, "__module__", ""))
        elif isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, type):
            yield from self._class(cast("type[Any]", value))
        elif isinstance(value, PurePath):
            yield str(value)
        elif isinstance(value, Mapping):
            yield from self._mapping(value)  # pyright: ignore[reportUnknownArgumentType]
        elif isinstance(value, (tuple, list)):
            yield from self._all(*cast("list[Any]", value))
        elif isinstance(value, (set, frozenset)):
            # A set's order differs from process to process.
            members = cast("set[Any]", value)
            yield from sorted("".join(_Description().of(member)) for member in members)
        elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
            yield f"{value.dtype}{value.shape}"
            yield from self.of(bytes(value.tobytes()))
        elif hasattr(value, "__wrapped__") and not hasattr(value, "__dict__"):
            yield from self.of(value.__wrapped__)
        else:
            yield from self._object(value)

    def _all(self, *values: Any) -> Iterator[str]:
        for value in values:
            yield from self.of(value)

    def _mapping(self, values: Mapping[Any, Any]) -> Iterator[str]:
        for key, value in values.items():
            yield from self._all(key, value)

    def _function(self, function: FunctionType) -> Iterator[str]:
        yield f"{function.__module__}.{function.__qualname__};"
        yield from self._all(function.__code__, function.__defaults__, function.__kwdefaults__)
        for cell in function.__closure__ or ():
            try:
                content = cell.cell_contents
            except ValueError:
                continue  # not assigned yet
            yield from self.of(content)
        wrapped = getattr(function, "__wrapped__", None)
        if wrapped is not None:
            yield from self.of(wrapped)
        for name in sorted(_names(function.__code__)):
            used = function.__globals__.get(name)
            # Other objects, such as loaded models, are common here and cannot be compared.
            if isinstance(used, (FunctionType, type, functools.partial, *_PLAIN)) or hasattr(
                used, "__wrapped__"
            ):
                yield f"{name}="
                yield from self.of(used)

    def _class(self, cls: type[Any]) -> Iterator[str]:
        """Yields the code in a class and its bases."""
        for base in cls.__mro__:
            yield f"{base.__module__}.{base.__qualname__};"
            if base.__module__ == "builtins":
                continue
            for name, member in sorted(vars(base).items()):
                actual = (
                    getattr(member, "__func__", None) or getattr(member, "fget", None) or member
                )
                if isinstance(actual, (FunctionType, *_PLAIN)) and not name.startswith("__doc"):
                    yield f"{name}="
                    yield from self.of(actual)

    def _object(self, value: Any) -> Iterator[str]:
        cls = cast("Any", type(value))  # pyright: ignore[reportUnknownArgumentType]
        state: dict[str, Any] | None = getattr(value, "__dict__", None)
        slots = [name for base in cls.__mro__ for name in getattr(base, "__slots__", ())]
        if state is None and not slots:
            if cls.__module__ in ("operator", "_operator"):
                yield from self.of(value.__reduce__()[1])
                return
            if "__call__" not in vars(cls) or cls.__module__ == "builtins":
                raise _UnknownError(f"{cls.__module__}.{cls.__qualname__}")
        if not isinstance(getattr(cls, "__init__", None), (FunctionType, WrapperDescriptorType)):
            raise _UnknownError(f"{cls.__module__}.{cls.__qualname__}")
        yield from self.of(cls)
        for name, content in sorted((state or {}).items()):
            yield f".{name}="
            yield from self.of(content)
        for name in slots:
            if hasattr(value, name) and name != "__dict__":
                yield f".{name}="
                yield from self.of(getattr(value, name))


def _names(code: CodeType) -> set[str]:
    """Returns the names that a function and those inside it use."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))
