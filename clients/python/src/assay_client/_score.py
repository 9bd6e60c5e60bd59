"""`score`: a job's figures, computed on this machine by the platform's scorer."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from . import _models as models
from ._arguments import list_of, number_of, path_of, text_of
from ._errors import AssayError, AssayWarning
from ._fit import difference_of
from ._frames import (
    PredictionFile,
    Predictions,
    Rows,
    chunks,
    find_scorer,
    form_of,
    open_answers,
    open_predictions,
    read_lines,
)
from ._record import Record, record
from ._results import describe_figures, score_html

# The scorer counts NDJSON lines, and rows are one line each.
_SAMPLE_LINES = 1000
_LINE_OF_ROWS = re.compile(r"^(?:line |answers:)(\d+)")


@record
class Score(Record):
    """The figures of predictions: those of a job on a suite that discloses exact figures."""

    metric: str
    value: float
    """The metric over all items. An item without a prediction counts as a wrong one."""
    stderr: float | None = None
    """The standard error of the value, if there are enough items."""
    ci95: tuple[float, float] | None = None
    """The 95 % confidence interval of the value."""
    ci_method: str | None = None
    metrics: dict[str, float]
    """The other figures of the metric's family, by name."""
    n: int
    """The number of items with an answer."""
    n_submitted: int
    """The number of predictions."""
    n_unmatched: int
    """The number of predictions for items without an answer."""
    n_missing: int
    """The number of items without a prediction."""
    n_clusters: int | None = None
    """The number of clusters, if any."""
    design_effect: float | None = None
    """The squared ratio of `stderr` to that of independent items."""
    slices: tuple[models.FieldSlices, ...] = ()
    """The figures of the slices, by group field."""
    ceiling: models.Ceiling | None = None
    """The noise ceiling or floor."""
    share_of_ceiling: models.ShareOfCeiling | None = None
    """The share of the ceiling that the value reaches."""
    skill: models.Skill | None = None
    """The skill, if any."""

    def __str__(self) -> str:
        return describe_figures(self)

    def _repr_html_(self) -> str:
        return score_html(self)


def score(
    predictions: Predictions,
    answers: Any,
    metric: str | None = None,
    clip: tuple[float, float] | None = None,
    *,
    rankings: Any = None,
    labels: Any = None,
    quantiles: Sequence[float] | None = None,
) -> Score:
    """Scores predictions on this machine, with a job's figures. Sends nothing.

    `predictions` has any form of `Suite.submit`. With `rankings`, it is the item ids; `labels` are
    those of the columns.

    `answers` has these forms with the column `answer`, or is a suite's folder, with its metric and
    bounds.

    `clip` bounds one item's loss: (low, high). `quantiles` is the levels for `pinball`
    and `wis`, if `answers` is no folder.

    Other threads run meanwhile. Raises `AssayError` without the scorer, or with the location of the
    first invalid prediction or answer.
    """
    scorer = _load_scorer()
    if metric is not None:
        text_of("metric", metric)
    if clip is not None:
        clip = _bounds(clip)
    try:
        if folder := _folder(answers):
            answers = folder / "answers.ndjson"
            metric, clip_of_suite = scorer.read_suite(folder, metric)
            clip = clip or clip_of_suite
        if metric is None:
            raise AssayError("`metric` is required unless `answers` is the folder of a suite.")
        source = open_predictions(predictions, rankings, metric, labels)
        name = str(source.path) if isinstance(source, PredictionFile) else None
        gold, options = _answers(open_answers(answers, metric))
        found, known = _Sample(chunks(source)), _Sample(gold)
        # The folder has the clusters and slices of the items, and the retest.
        options |= {"suite": folder, "predictions_name": name}
        options["quantiles"] = quantiles and list(quantiles)
        text: str = scorer.score(found, known, metric, clip, **options)
    except (ValueError, OSError) as error:
        raise AssayError(_LINE_OF_ROWS.sub(_row_of_line, str(error))) from error
    if form_of(metric) == "probabilities":
        _warn_of_labels(found.values("prediction"), known.values("answer"))
    return Score.from_dict(json.loads(text))


class _Sample:
    """Chunks of NDJSON that keep their first lines."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._lines: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self._lines = self._lines or chunk.splitlines()[:_SAMPLE_LINES]
            yield chunk

    def values(self, column: str) -> Iterator[Any]:
        """Returns the first lines' values. Other file forms have none."""
        for line in self._lines:
            try:
                yield json.loads(line)[column]
            except (ValueError, KeyError, TypeError, RecursionError):
                continue


def _warn_of_labels(predictions: Iterator[Any], answers: Iterator[Any]) -> None:
    labels = {answer for answer in answers if isinstance(answer, str)}
    rows: list[list[str]] = [[*row] for row in predictions if isinstance(row, dict) and row]
    wrong = [row for row in rows if labels.isdisjoint(row)]
    if labels and len(wrong) * 2 > len(rows):
        warnings.warn(
            f"{len(wrong)} of the first {len(rows)} predictions have no label of the answers"
            f"{difference_of(wrong[0][0], sorted(labels))}.",
            AssayWarning,
            stacklevel=3,
        )


def _load_scorer() -> Any:
    scorer = find_scorer()
    if scorer is None:
        raise AssayError(
            "assay.score needs the scorer, which is not installed. "
            "Run: pip install 'assay-client[score]'"
        )
    return scorer


def _bounds(clip: Any) -> tuple[float, float]:
    bounds = [number_of("clip", bound) for bound in list_of("clip", clip)]
    if len(bounds) != 2:
        raise AssayError(f"`clip` must be (low, high), not {len(bounds)} numbers.")
    return bounds[0], bounds[1]


def _folder(answers: Any) -> Path | None:
    if not isinstance(answers, (str, os.PathLike)):
        return None
    path = path_of("answers", answers)
    return Path(path) if os.path.isdir(path) else None


def _answers(source: Rows | PredictionFile) -> tuple[Iterator[bytes], dict[str, Any]]:
    if isinstance(source, Rows):
        return source.chunks(), {}
    # Lines keep their numbers only if they are passed on as they are.
    lines = chunks(source) if _is_plain_lines(source) else read_lines(source)
    return lines, {"answers_name": str(source.path)}


def _is_plain_lines(source: PredictionFile) -> bool:
    with source.path.open("rb") as file:
        start = file.read(64 * 1024)
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


def _row_of_line(location: re.Match[str]) -> str:
    name = "answers" if location[0].startswith("answers") else "predictions"
    return f"{name}[{int(location[1]) - 1}]"
