"""All models' base class, and JSON value conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, fields
from datetime import date, datetime, timezone
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ._errors import AssayError

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: bool) -> Callable[[T], T]:
        return lambda decorator: decorator


T = TypeVar("T")
Decoder = Callable[[Any], Any]

_FIELDS: dict[type, tuple[Field[Any], ...]] = {}
_SECRETS = ("key", "token", "secret", "device_code")
_NUMBER_MAX = 1.7976931348623157e308


class Record:
    """The models' base class: immutable, without unknown response fields."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            for field in _fields_of(type(self)):
                value = values.pop(field.name, field.default)
                if value is MISSING:
                    raise TypeError(f"{type(self).__name__} needs the argument {field.name!r}")
                object.__setattr__(self, field.name, value)
            if values:
                raise TypeError(f"{type(self).__name__} has no field {next(iter(values))!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _values_of(self) == _values_of(other)

    def __hash__(self) -> int:
        return hash(_values_of(self))

    def __repr__(self) -> str:
        # Credentials must not appear in logs and notebooks.
        shown = ", ".join(
            f"{field.name}={'…' if field.name in _SECRETS else repr(getattr(self, field.name))}"
            for field in _fields_of(type(self))
        )
        return f"{type(self).__name__}({shown})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), _values_of(self))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Creates the model from a response's JSON object. Ignores unknown fields.

        Raises `AssayError` if the object lacks a field that is always present.
        """
        if not isinstance(data, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AssayError(f"A response has {type(data).__name__} instead of {cls.__name__}.")
        values: dict[str, Any] = {}
        for field in _fields_of(cls):
            value = data.get(field.name)
            if value is not None:
                values[field.name] = cls._decode(field, value)
            elif field.default is MISSING:
                raise AssayError(f"A response lacks the field `{field.name}` of {cls.__name__}.")
        return cls(**values)

    @classmethod
    def _decode(cls, field: Field[Any], value: Any) -> Any:
        hint = str(field.type)
        decode = _decoder_of(hint)
        try:
            made = decode(value) if decode else value
            is_valid = _check_of(hint)(made)
        except AssayError:
            raise
        except Exception:
            is_valid, made = False, None
        if not is_valid:
            # The value can be a credential.
            raise AssayError(f"A response has an invalid field `{field.name}` of {cls.__name__}.")
        return made

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as a dict. Nested models become dicts, timestamps stay `datetime`."""
        return {field.name: _plain(getattr(self, field.name)) for field in _fields_of(type(self))}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Makes a class a frozen dataclass with slots.

    The methods are `Record`'s. A plain `dataclass` compiles five functions for each class, which
    would take most of the `import assay_client` time.
    """
    return dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)


@cache
def _decoder_of(hint: str) -> Decoder | None:
    """Returns the converter of JSON values to a type, or None if JSON's value is used as is."""
    from . import _models

    hint = hint.removesuffix(" | None").replace("models.", "")
    if hint.startswith("tuple["):
        decode = _decoder_of(hint[6:].split(", ")[0])
        return all_of(decode) if decode else each
    if hint in _DECODERS:
        return _DECODERS[hint]
    found = [getattr(_models, name, None) for name in hint.split(" | ")]
    if isinstance(found[0], str):
        return _decoder_of(found[0])
    models = [model for model in found if isinstance(model, type) and issubclass(model, Record)]
    return one_of(*models) if len(models) > 1 else models[0].from_dict if models else None


@cache
def _check_of(hint: str) -> Callable[[Any], bool]:
    """Returns a check on decoded values for a `_models.py` type. Decoders check the others."""
    checks = [_CHECKS[option] for option in hint.split(" | ") if option in _CHECKS]
    if checks:
        return lambda value: any(check(value) for check in checks)
    if hint.startswith("dict["):
        return _is_dict_of_numbers if hint.startswith("dict[str, float]") else _is_dict
    if hint.startswith("tuple["):
        return _is_pair if hint.startswith("tuple[float, float]") else _is_tuple
    return lambda value: True


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) <= _NUMBER_MAX)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_dict_of_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, cast("dict[str, Any]", value).values()))


def _is_tuple(value: Any) -> bool:
    return isinstance(value, tuple)


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and list(map(_is_number, cast("Any", value))) == [True, True]


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: type(value) is str,
    "int": lambda value: type(value) is int,
    "float": _is_number,
    "bool": lambda value: type(value) is bool,
}


def _values_of(instance: object) -> tuple[Any, ...]:
    return tuple(getattr(instance, field.name) for field in _fields_of(type(instance)))


def _restore(cls: type[Record], values: tuple[Any, ...]) -> Record:
    names = (field.name for field in _fields_of(cls))
    return cls(**dict(zip(names, values, strict=True)))


def _fields_of(cls: type) -> tuple[Field[Any], ...]:
    found = _FIELDS.get(cls)
    if found is None:
        found = _FIELDS[cls] = fields(cls)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value  # pyright: ignore[reportUnknownVariableType]
        return [_plain(item) for item in items]
    return value


def parse_time(text: str) -> datetime:
    """Returns an RFC 3339 timestamp's time, in UTC."""
    # datetime.fromisoformat in Python 3.10 does not accept `Z`.
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)


def format_time(time: datetime | date | str) -> str:
    """Returns an API parameter for a time. A naive `datetime` is in local time."""
    if isinstance(time, str):
        return time
    if isinstance(time, datetime):
        return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    return time.isoformat()


def parse_date(text: str) -> date:
    """Returns an RFC 3339 date."""
    return date.fromisoformat(text)


def each(value: Any) -> Any:
    """Returns an array as a tuple, and any other value as it is."""
    if isinstance(value, list):
        items: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        return tuple(items)
    return value


def all_of(decode: Decoder) -> Decoder:
    """Returns an array decoder whose elements need `decode`."""
    return lambda values: tuple(decode(value) for value in values)


def one_of(*models: type[Record]) -> Decoder:
    """Returns a decoder that chooses the model with the most fields in common with the object."""

    def decode(data: Mapping[str, Any]) -> Record:
        best = max(models, key=lambda model: sum(f.name in data for f in _fields_of(model)))
        return best.from_dict(data)

    return decode


_DECODERS: dict[str, Decoder] = {"datetime": parse_time, "date": parse_date}
