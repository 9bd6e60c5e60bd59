"""`evaluate`: predict the items of a suite, submit the predictions, and wait for the score."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Literal, TypedDict

from ._cache import Cache, PredictionLog, digest_of
from ._core import Block, Call, Core, Json, Parallel, Steps, is_async_function, logger
from ._errors import AssayError
from ._frames import open_predictions
from ._items import Item, Items
from ._progress import PredictionMeter, is_terminal_or_notebook, write_line
from ._upload import Submission, submit

Predict = Callable[[Any], Any]
"""A sync or async function from one `input` to a prediction, or with `batch_size` from a list of
inputs to a list of predictions."""

_ASYNC_CONCURRENCY = 8


class EvaluateArguments(TypedDict, total=False):
    """The options of `evaluate`."""

    label: str | None
    metadata: Mapping[str, str] | None
    batch_size: int | None
    max_concurrency: int | None
    cache: bool | str | os.PathLike[str]
    on_error: Literal["raise", "skip"]
    fresh: bool
    progress: bool | None
    timeout: float | None


@dataclass(frozen=True)
class Predicted:
    """The predictions of an evaluation."""

    log: PredictionLog
    items: Items
    n_skipped: int


def predict_items(
    items: Items, predict: Predict, cache: Cache, options: EvaluateArguments
) -> Steps[Predicted]:
    """Predicts all items, except those that an earlier run has predicted and stored."""
    if options.get("on_error", "raise") not in ("raise", "skip"):
        raise AssayError('`on_error` must be "raise" or "skip".')
    log = cache.predictions(
        items.suite_id, items.version, options.get("label") or "", identity_of(predict)
    )
    n_stored: int = yield Block(log.load)
    progress = options.get("progress")
    is_shown = is_terminal_or_notebook() if progress is None else progress
    if n_stored and is_shown:
        write_line(f"reading {n_stored:,} predictions of an interrupted run from the cache")
    meter = PredictionMeter(is_shown, len(items), n_stored)
    skipped: list[str] = []
    limit = options.get("max_concurrency") or (
        _ASYNC_CONCURRENCY if is_async_function(predict) else 1
    )
    batches = _batches(
        (item for item in items if item.id not in log), options.get("batch_size") or 1
    )
    try:
        yield Parallel(
            (_predict_batch(batch, predict, log, options, meter, skipped) for batch in batches),
            limit,
        )
    finally:
        meter.close()
    return Predicted(log, items, len(skipped))


def submit_predicted(
    core: Core, cache: Cache, predicted: Predicted, options: EvaluateArguments
) -> Steps[Json]:
    """Submits the predictions of an evaluation in the order of the suite. Returns the job."""
    submission = Submission(
        suite_id=predicted.items.suite_id,
        suite_version=predicted.items.version,
        label=options.get("label"),
        metadata=options.get("metadata"),
        fresh=options.get("fresh", False),
        waits_for_slot=True,
    )
    pairs = predicted.log.in_order(predicted.items.ids())
    job = yield from submit(core, cache, open_predictions(pairs), submission)
    return job


def _batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    batch: list[Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _predict_batch(
    batch: list[Item],
    predict: Predict,
    log: PredictionLog,
    options: EvaluateArguments,
    meter: PredictionMeter,
    skipped: list[str],
) -> Steps[None]:
    inputs = [item.input for item in batch]
    try:
        if options.get("batch_size") is None:
            outputs: Sequence[Any] = [(yield Call(predict, inputs[0]))]
        else:
            outputs = list((yield Call(predict, inputs)))
            if len(outputs) != len(batch):
                raise AssayError(f"predict returned {len(outputs)} predictions for {len(batch)}.")
    except Exception as error:
        if options.get("on_error", "raise") == "raise":
            raise
        logger.warning("%s is skipped: %r", ", ".join(item.id for item in batch[:3]), error)
        skipped.extend(item.id for item in batch)
        return
    made = {item.id: _as_json(output) for item, output in zip(batch, outputs, strict=True)}
    yield Block(lambda: log.add(made))
    meter.add(len(made))


def _as_json(prediction: Any) -> Any:
    return prediction.tolist() if hasattr(prediction, "tolist") else prediction


def identity_of(function: Any) -> str:
    """Returns a digest of the name and the code of a function.

    So predictions that an edited function has made before are not used for the new one.
    """
    named = getattr(function, "__func__", function)
    code = getattr(named, "__code__", None)
    if code is None:
        code = getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004  # pyright: ignore[reportUnknownArgumentType]
    module = getattr(named, "__module__", "")
    name = getattr(named, "__qualname__", type(function).__qualname__)
    return digest_of(str(module), str(name), _describe_code(code) if code else "")


def _describe_code(code: CodeType) -> str:
    constants = [_describe_constant(value) for value in code.co_consts]
    return repr((code.co_code.hex(), constants, code.co_names))


def _describe_constant(value: object) -> str:
    if isinstance(value, CodeType):
        return _describe_code(value)
    # The order of a set differs from process to process.
    if isinstance(value, frozenset):
        values: frozenset[object] = value  # pyright: ignore[reportUnknownVariableType]
        return repr(sorted(map(repr, values)))
    return repr(value)
