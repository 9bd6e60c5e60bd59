"""The scorer of Assay: computes the figures of a job locally."""

import os
from collections.abc import Iterable
from typing import Literal

def score(
    predictions: Iterable[bytes],
    answers: Iterable[bytes],
    metric: str,
    clip: tuple[float, float] | None = None,
    *,
    layout: Literal["lines", "array"] = "lines",
    compression: Literal["gzip", "zstd"] | None = None,
    predictions_name: str | None = None,
    answers_name: str = "answers",
) -> str:
    """Scores predictions, and returns the figures as JSON.

    `predictions` and `answers` are iterables of `bytes`, which are read once. They may be cut
    anywhere. Answers are NDJSON with `item_id` and `answer`. The `layout` of predictions is
    `lines` (NDJSON) or `array`, and their `compression` is `gzip`, `zstd` or `None`.

    Errors name the two as `predictions_name` and `answers_name`.

    Raises `ValueError` with the location of the first invalid prediction or answer.
    """

def read_suite(
    folder: str | os.PathLike[str], metric: str | None = None
) -> tuple[str, tuple[float, float] | None]:
    """Returns the metric for the answers in a folder, and the bounds of the loss of an item, if any.

    `metric` replaces the metric of the suite, whose bounds are for its own metric only.

    Raises `ValueError` if `suite.toml` is invalid, or if it is missing without `metric`.
    """
