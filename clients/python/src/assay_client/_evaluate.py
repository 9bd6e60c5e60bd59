"""`evaluate`: predict a suite's items, submit the predictions, and wait for the score."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, TypedDict, cast

from . import _models as models
from ._arguments import (
    flag_of,
    integer_of,
    kind_of,
    label_of,
    metadata_of,
    number_of,
    reason_of,
    shown,
)
from ._cache import Cache, PredictionLog
from ._core import Block, Call, Core, Json, Parallel, Steps, is_async_function, logger
from ._errors import AssayError, ValidationFailed
from ._frames import metric_problem, open_predictions, plain_value, prediction_line
from ._identity import identity_of
from ._items import Item, Items
from ._progress import PredictionMeter, is_terminal_or_notebook, write_line
from ._results import Trial
from ._upload import Submission, submit

Predict = Callable[[Any], Any]
"""A sync or async function from one `input` to a prediction, or with `batch_size` from a list of
inputs to a list of predictions."""

_ASYNC_CONCURRENCY = 8


class EvaluateArguments(TypedDict, total=False):
    """The `evaluate` options."""

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
    suite: models.Suite


def id_of(name: str, value: Any, kind: type[models.Job | models.Suite]) -> str:
    """Returns a job's or a suite's id, which callers can pass as an object."""
    if isinstance(value, models.Job) and kind is models.Job:
        return value.id
    if isinstance(value, models.Suite) and kind is models.Suite:
        return value.suite_id
    if isinstance(value, str):
        return value
    what = kind.__name__
    raise AssayError(f"`{name}` must be a {what} or its id, not {kind_of(value)}.")


def check_options(options: Mapping[str, Any]) -> None:
    """Raises `AssayError` for an option of `evaluate` that does not exist or has no meaning."""
    for name, value in options.items():
        if name not in EvaluateArguments.__annotations__:
            known = ", ".join(EvaluateArguments.__annotations__)
            raise AssayError(f"evaluate has no option `{name}`. Options: {known}.")
        if name in ("batch_size", "max_concurrency") and value is not None:
            integer_of(name, value, 1)
    if options.get("timeout") is not None:
        number_of("timeout", options["timeout"])
    on_error = options.get("on_error", "raise")
    if not isinstance(on_error, str) or on_error not in ("raise", "skip"):
        raise AssayError('`on_error` must be "raise" or "skip".')
    label_of(options.get("label"))
    metadata_of(options.get("metadata"))
    flag_of("fresh", options.get("fresh"))
    flag_of("progress", options.get("progress"))


def predict_items(
    core: Core,
    items: Items,
    predict: Predict,
    cache: Cache,
    options: EvaluateArguments,
    limit: int | None = None,
) -> Steps[Predicted]:
    """Predicts all items, or the first `limit`, except those that an earlier run has stored.

    Raises `AssayError` for the first prediction that the metric does not accept.
    """
    if limit is not None:
        integer_of("limit", limit, 1)
    if not callable(predict):
        raise AssayError(f"`predict` must be a function, not {kind_of(predict)}.")
    reply = yield from core.call("getSuite", path={"suite_id": items.suite_id})
    suite = reply.decode(models.Suite.from_dict)
    progress = options.get("progress")
    is_shown = is_terminal_or_notebook() if progress is None else progress
    identity, unknown = identity_of(predict)
    log = PredictionLog(None)
    if identity:
        log = cache.predictions(items.suite_id, items.version, options.get("label") or "", identity)
    elif is_shown:
        write_line(f"an interrupted run starts again: {unknown} in predict cannot be compared")
    n_stored: int = yield Block(log.load)
    if n_stored and is_shown:
        write_line(f"reading {n_stored:,} predictions of an interrupted run from the cache")
    n_wanted = len(items) if limit is None else min(limit, len(items))
    n_known = sum(item_id in log for item_id in islice(items.ids(), n_wanted))
    meter = PredictionMeter(is_shown, n_wanted, n_known)
    skipped: list[str] = []
    n_at_once = options.get("max_concurrency") or (
        _ASYNC_CONCURRENCY if is_async_function(predict) else 1
    )
    batches = _batches(
        (item for item in islice(items, n_wanted) if item.id not in log),
        options.get("batch_size") or 1,
    )
    calls = (
        _predict_batch(batch, predict, suite, log, options, meter, skipped) for batch in batches
    )
    try:
        # A prediction of the wrong form is noticed before the second call, which may be expensive.
        first = next(calls, None)
        if first is not None:
            yield from first
        yield Parallel(calls, n_at_once)
    except KeyboardInterrupt:
        write_line(f"interrupted; {log.kept()}")
        raise
    finally:
        meter.close()
    return Predicted(log, items, len(skipped), suite)


def trial_of(predicted: Predicted, limit: int) -> Trial:
    """Returns the predictions of the first `limit` items."""
    items = predicted.items
    return Trial(
        predictions=dict(predicted.log.in_order(islice(items.ids(), limit))),
        n_items=len(items),
        n_skipped=predicted.n_skipped,
    )


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
        suite=predicted.suite,
        items=predicted.items,
    )
    pairs = predicted.log.in_order(predicted.items.ids())
    try:
        job = yield from submit(core, cache, open_predictions(pairs), submission)
    except ValidationFailed:
        # Predictions that were refused must not come back after the model was repaired.
        yield Block(predicted.log.delete)
        raise
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
    suite: models.Suite,
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
            outputs = _listed((yield Call(predict, inputs)))
            if len(outputs) != len(batch):
                raise AssayError(f"predict returned {len(outputs)} predictions for {len(batch)}.")
    except Exception as error:
        if isinstance(error, AssayError) or options.get("on_error", "raise") == "raise":
            raise
        skipped_ids = ", ".join(item.id for item in batch[:3])
        logger.warning("%s is skipped: %s", skipped_ids, reason_of(error))
        skipped.extend(item.id for item in batch)
        return
    made = {item.id: _as_json(item.id, output) for item, output in zip(batch, outputs, strict=True)}
    for item_id, prediction in made.items():
        _check(item_id, prediction, suite.metric, suite.quantiles)
    yield Block(lambda: log.add(made))
    meter.add(len(made))


def _listed(outputs: Any) -> list[Any]:
    """Returns a batch's predictions. Other containers have no order, or another meaning."""
    is_frame = hasattr(outputs, "iloc") or hasattr(outputs, "columns")
    is_list = hasattr(outputs, "__iter__") or hasattr(outputs, "__getitem__")
    if is_frame or not is_list or isinstance(outputs, (Mapping, Set, str, bytes)):
        kind = type(cast("object", outputs)).__name__
        raise AssayError(
            f"predict returned a {kind} for a batch. "
            "Return a list with one prediction for each input."
        )
    return list(outputs)


def _check(item_id: str, prediction: Any, metric: str, quantiles: Sequence[float] = ()) -> None:
    if problem := metric_problem(prediction, metric, quantiles):
        raise AssayError(
            f"predict returned {shown(prediction)} for the item {item_id}, "
            f"which the metric {metric} does not accept: {problem}."
        )
    prediction_line((item_id, prediction))


def _as_json(item_id: str, prediction: Any) -> Any:
    try:
        return plain_value(prediction)
    except Exception as error:
        reason = reason_of(error)
    raise AssayError(f"The prediction of the item {item_id} cannot be read: {reason}.")
