"""Function identity: another function never has this one's predictions."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import pytest

from assay_client._identity import identity_of

SCALE = 1.5


def _identity(function: Any) -> str:
    identity, unknown = identity_of(function)
    assert identity, unknown
    return identity


def constant(value: float, question: object) -> float:
    return value


def helper(question: object) -> float:
    return 1.0


def uses_helper(question: object) -> float:
    return helper(question)


class Base:
    def __call__(self, question: object) -> float:
        return self.forward(question)

    def forward(self, question: object) -> float:
        return 1.0


class Model(Base):
    def __init__(self, weight: object) -> None:
        self.weight = weight


class Other(Base):
    def __init__(self, weight: object) -> None:
        self.weight = weight

    def forward(self, question: object) -> float:
        return 2.0


def decorated(function: Callable[..., float]) -> Callable[..., float]:
    @functools.wraps(function)
    def call(question: object) -> float:
        return function(question)

    return call


def closed_over(value: object) -> Callable[[object], object]:
    return lambda question: value


def with_default(value: float) -> Callable[..., float]:
    def predict(question: object, scale: float = value) -> float:
        return scale

    return predict


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (functools.partial(constant, 1.0), functools.partial(constant, 2.0)),
        (functools.partial(constant, value=1.0), functools.partial(constant, value=2.0)),
        (functools.partial(constant, 1.0), functools.partial(helper, 1.0)),
        (decorated(helper), decorated(uses_helper)),
        (functools.lru_cache(helper), functools.lru_cache(uses_helper)),
        (functools.lru_cache(decorated(helper)), functools.lru_cache(decorated(uses_helper))),
        (operator.itemgetter("a"), operator.itemgetter("b")),
        (operator.attrgetter("a"), operator.attrgetter("b")),
        (operator.methodcaller("f", 1), operator.methodcaller("f", 2)),
        (Model(1), Model(2)),
        (Model([1, {"a": 2}]), Model([1, {"a": 3}])),
        (Model(1), Other(1)),
        (Model(1).forward, Model(2).forward),
        (Model(1).forward, Other(1).forward),
        (closed_over(1), closed_over(2)),
        (closed_over(helper), closed_over(uses_helper)),
        (with_default(1.0), with_default(2.0)),
        (len, repr),
        (lambda q: 1, lambda q: 2),
        ({"a": 1}.get, {"a": 2}.get),
    ],
)
def test_different_functions_have_different_identities(one: Any, other: Any) -> None:
    assert _identity(one) != _identity(other)
    assert _identity(one) == _identity(one)


def test_edited_code_changes_the_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [_identity(function) for function in (uses_helper, Model(1), decorated(uses_helper))]
    monkeypatch.setitem(globals(), "helper", lambda question: 3.0)
    monkeypatch.setattr(Base, "forward", lambda self, question: 3.0)
    after = [_identity(function) for function in (uses_helper, Model(1), decorated(uses_helper))]
    assert all(old != new for old, new in zip(before, after, strict=True))


def test_equal_functions_have_one_identity() -> None:
    for make in (lambda: functools.partial(constant, 1.0), lambda: Model({"a": {1, 2}})):
        assert _identity(make()) == _identity(make())


def test_what_cannot_be_compared_has_no_identity() -> None:
    for unknown in (Model(object()), Model(open), functools.partial(constant, iter([]))):
        identity, _ = identity_of(unknown)
        if unknown.__class__ is Model and unknown.weight is open:
            continue  # a function of the interpreter can be compared
        assert identity == ""
    numpy = pytest.importorskip("numpy")
    ones, twos = Model(numpy.ones(3)), Model(2 * numpy.ones(3))
    assert _identity(ones) != _identity(twos)


def test_recursive_values_end() -> None:
    model = Model(None)
    model.weight = [model]
    assert _identity(model) == _identity(model)
