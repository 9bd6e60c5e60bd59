"""The scorer of Assay: computes the figures of a job locally."""

import os
from collections.abc import Iterable

def score(
    predictions: Iterable[bytes],
    answers: Iterable[bytes],
    metric: str,
    clip: tuple[float, float] | None = None,
    *,
    predictions_name: str | None = None,
    answers_name: str = "answers",
) -> str:
    """Scores predictions, and returns the figures as JSON.

    `predictions` and `answers` are iterables of `bytes`, which are read once. They may be cut
    anywhere. Answers are NDJSON with `item_id` and `answer`. Predictions are NDJSON, a JSON array or
    CSV, possibly compressed, as their content shows.

    Errors name the two as `predictions_name` and `answers_name`.

    Raises `ValueError` with the location of the first invalid prediction or answer.
    """

def check(
    predictions: Iterable[bytes],
    item_ids: list[str],
    metric: str,
    *,
    predictions_name: str | None = None,
) -> str:
    """Compares predictions with the items of a suite, and returns the comparison as JSON.

    It has the numbers of items, of items with a prediction and of predictions for other items, and
    the errors for which a job would fail. `predictions` is an iterable of `bytes`, which may be cut
    anywhere: NDJSON, a JSON array or CSV, possibly compressed, as their content shows.
    `predictions_name` is the name of their file.

    Raises `ValueError` if the predictions cannot be decompressed.
    """

def read_suite(
    folder: str | os.PathLike[str], metric: str | None = None
) -> tuple[str, tuple[float, float] | None]:
    """Returns the metric for the answers in a folder, and the bounds of the loss of an item, if any.

    `metric` replaces the metric of the suite, whose bounds are for its own metric only.

    Raises `ValueError` if `suite.toml` is invalid, or if it is missing without `metric`.
    """
