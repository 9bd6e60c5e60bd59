"""Results for people: text, static HTML, and decisions about comparisons."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _models as models
from ._arguments import number_of
from ._documents import Entry, Problem, describe, read_document, read_file
from ._errors import AssayError, AssayWarning, Regression
from ._fit import compare, label_warnings
from ._frames import PredictionFile, Rows, chunks, find_scorer

if TYPE_CHECKING:
    from ._items import Items
    from ._score import Score


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 1000 else f"{value:,.0f}"


def signed(value: float) -> str:
    """Returns a number with a sign: `+0.004` or `−0.013`."""
    return f"{'−' if value < 0 else '+'}{_number(abs(value))}"


def describe_figures(result: models.EvalResult | Score) -> str:
    """Returns the score with its interval and counts, in one line."""
    score = f"{result.metric} {_number(result.value)}"
    if result.stderr is not None and result.ci95 is not None:
        low, high = (_number(end) for end in result.ci95)
        score += f" ± {_number(result.stderr)} (95 % interval {low} to {high}"
        score += f", {result.ci_method})"
    clusters = "" if result.n_clusters is None else f" in {result.n_clusters:,} clusters"
    missing = f", {result.n_missing:,} missing" if result.n_missing else ""
    return f"{score}, n = {result.n:,}{clusters}{missing}"


def describe_result(result: models.EvalResult) -> str:
    """Returns the score with its interval, counts and suite, in one line."""
    is_best = result.release.startswith("ladder")
    name = "best score of your organization so far: " if is_best else ""
    suite = f"{result.suite_id} version {result.suite_version}"
    return f"{name}{describe_figures(result)}, {suite}"


def describe_job(job: models.Job) -> str:
    """Returns a job's score, or its status, in one line."""
    name = f"{job.label}: " if job.label else ""
    if isinstance(job.result, models.EvalResult):
        return f"{name}{describe_result(job.result)}, {job.id}"
    progress = f" {job.progress:.0%}" if job.progress is not None else ""
    return f"{name}{job.id} {job.status}{progress}"


def score_of(job: models.Job) -> models.EvalResult:
    """Returns the figures of a succeeded eval. Raises `AssayError` for other jobs."""
    if not isinstance(job.result, models.EvalResult):
        hint = "wait for it first" if job.result is None else "it is no eval"
        raise AssayError(f"{job.id} has no score: {hint}. Its status is {job.status}.")
    return job.result


@dataclass(frozen=True)
class Trial:
    """The predictions of `evaluate` with `limit`. Nothing was submitted."""

    predictions: dict[str, Any]
    """The prediction of each item, by item id, in the order of the suite."""
    n_items: int
    """The number of items of the suite."""
    n_skipped: int
    """The number of items whose prediction failed, with `on_error="skip"`."""

    def __str__(self) -> str:
        skipped = f", {self.n_skipped:,} skipped" if self.n_skipped else ""
        n = len(self.predictions)
        return f"{n:,} of {self.n_items:,} items predicted{skipped}, nothing submitted"


@dataclass(frozen=True)
class EvaluationFigures:
    """An evaluation's figures."""

    job: models.Job
    n_skipped: int
    """The number of items whose prediction failed, with `on_error="skip"`."""

    @property
    def result(self) -> models.EvalResult:
        """The job's result."""
        return score_of(self.job)

    @property
    def value(self) -> float:
        """The metric's value, as far as the suite's disclosure policy shows it."""
        return self.result.value

    @property
    def ci95(self) -> tuple[float, float] | None:
        """The value's 95 % confidence interval, or None."""
        return self.result.ci95

    @property
    def metrics(self) -> dict[str, float]:
        """The other figures of the metric's family, by name."""
        return self.result.metrics

    @property
    def n_missing(self) -> int:
        """The number of items without a prediction. Each counts as a wrong one."""
        return self.result.n_missing

    def __str__(self) -> str:
        skipped = f", {self.n_skipped:,} skipped" if self.n_skipped else ""
        return f"{describe_result(self.result)}{skipped}, {self.job.id}"


class Comparison(models.Comparison):
    """The comparison between two jobs, item by item. `difference` is the first minus the second."""

    __slots__ = ()

    @property
    def verdict(self) -> str:
        """Which job is better in the metric's direction: A is the first job, B the second."""
        if self.better is None:
            return "Both jobs have the same value."
        job, size = self.better.upper(), f"{abs(self.difference):.4g}"
        text = f"No clear difference: {size} in favour of {job}"
        if self.is_significant:
            text = f"{job} is better by {size}"
        return (
            f"{text} ({self.metric}, {'smaller' if self.lower_is_better else 'larger'} is better)."
        )

    def __str__(self) -> str:
        text = f"{self.verdict} Difference {signed(self.difference)}"
        if self.ci95 is not None:
            text += f" (95 % interval {signed(self.ci95[0])} to {signed(self.ci95[1])})"
        text += f", p = {self.p_value:.2g} ({self.p_method})"
        if self.n_differ is not None:
            text += f", {self.n_differ:,} items differ"
        if self.n_needed is not None:
            text += f"; {self.n_needed:,} items needed to detect one point"
        return text

    def raise_if_worse(self, margin: float = 0.0) -> None:
        """Raises `Regression` if the first job is worse than the second by more than `margin`.

        It is worse if the whole 95 % interval is below `-margin`. For metrics whose smaller
        values are better, the signs are reversed. The margin is in units of the metric.
        """
        margin = number_of("margin", margin)
        _, best = self._interval_of_gain()
        if best < -margin:
            raise Regression(self, margin)

    def not_worse(self, margin: float) -> bool:
        """Returns whether the first job is shown to be at most `margin` worse than the second.

        That is the case if the whole 95 % interval is above `-margin`.
        """
        worst, _ = self._interval_of_gain()
        return worst > -number_of("margin", margin)

    def _interval_of_gain(self) -> tuple[float, float]:
        if self.ci95 is None:
            raise AssayError(
                f"The comparison of {self.job_a} and {self.job_b} has no interval: the suite has "
                "too few items, or the metric has none."
            )
        low, high = self.ci95
        return (-high, -low) if self.lower_is_better else (low, high)

    def _repr_html_(self) -> str:
        bar = _bar(self.difference, self.ci95, zero=True) if self.ci95 else ""
        return _table(
            f"{_escape(self.verdict)} {bar}",
            {
                "difference": signed(self.difference),
                "95 % interval": _interval(self.ci95, signed),
                "p": f"{self.p_value:.2g} ({self.p_method})",
                "items that differ": self.n_differ,
                "items needed for one point": self.n_needed,
                "jobs": f"{self.job_a} − {self.baseline or self.job_b}",
            },
        )


@dataclass(frozen=True)
class Check:
    """The `Suite.check` result: whether predictions fit a suite's items."""

    n_items: int
    """The number of items of the suite."""
    n_matched: int
    """The number of items with a prediction."""
    n_unknown: int
    """The number of predictions for items that are not in the suite. They are ignored."""
    missing: tuple[str, ...]
    """The ids of the first items without a prediction, at most 10."""
    unknown: tuple[str, ...]
    """The first ids that are not in the suite, at most 10."""
    errors: tuple[str, ...]
    """The errors for which the server refuses the predictions, or the job would fail, each with its
    place: `file:line`, or the number of the row. At most about 20."""
    warnings: tuple[str, ...]
    """Likely mistakes that the server accepts, each with its cause."""
    is_partial: bool
    """`True` if reading stopped at the last of the errors: the numbers do not cover the rest."""

    @property
    def n_missing(self) -> int:
        """The number of items without a prediction. Each scores as a wrong one."""
        return self.n_items - self.n_matched

    @property
    def ok(self) -> bool:
        """`True` if the server accepts the predictions. Missing and unknown items are accepted."""
        return not self.errors

    def __str__(self) -> str:
        parts = (
            (self.n_missing, "missing", self.missing),
            (self.n_unknown, "unknown", self.unknown),
        )
        texts = [f"{self.n_items:,} items"]
        for count, name, examples in parts:
            more = ", …" if count > 3 else ""
            shown = f" ({', '.join(map(repr, examples[:3]))}{more})" if examples else ""
            texts.append(f"{count:,} {name}{shown}")
        lines = [", ".join(texts), *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*lines, *self.errors])


def check_predictions(
    source: Rows | PredictionFile,
    item_ids: Iterable[str],
    metric: str,
    quantiles: Sequence[float] = (),
) -> Check:
    """Returns how predictions fit a suite's items. Sends nothing.

    The scorer reads them if it is installed, with the platform's code.
    """
    name = str(source.path) if isinstance(source, PredictionFile) else None
    scorer = find_scorer()
    if scorer is None:
        fit = compare(_rows(source), item_ids, metric, quantiles)
    else:
        try:
            levels = list(quantiles) or None
            text = scorer.check(
                chunks(source), list(item_ids), metric, quantiles=levels, predictions_name=name
            )
        except ValueError as error:
            raise AssayError(f"{name}: {error}" if name else str(error)) from None
        fit = json.loads(text)
    problems = (Problem(error["field"], error["message"]) for error in fit["errors"])
    return Check(
        n_items=fit["n_items"],
        n_matched=fit["n_matched"],
        n_unknown=fit["n_unmatched"],
        missing=tuple(fit["first_missing"]),
        unknown=tuple(item_id for item_id, _ in fit["first_unmatched"]),
        errors=tuple(describe(name, problem) for problem in problems),
        warnings=tuple(fit["warnings"]),
        is_partial=fit["is_partial"],
    )


def _rows(source: Rows | PredictionFile) -> Iterator[Entry | Problem]:
    if isinstance(source, PredictionFile):
        text = read_file(source.path)
        return read_document(text, source.path.name, numbers=source.numbers)
    return read_document(b"".join(source.chunks()), "", numbers=False)


def warn_of_mistakes(lines: list[bytes], items: Items, suite: models.Suite) -> None:
    """Warns about likely mistakes in predictions that the server accepts, each with its cause."""
    source = Rows(lambda: iter(lines), is_replayable=True)
    found = [*check_predictions(source, items.ids(), suite.metric, suite.quantiles).warnings]
    field = suite.sequence.options if suite.sequence else None
    if field is not None:
        options = {item.item_id: item.input.get(field) for item in items}
        found += label_warnings(_rows(source), options)
    for text in found:
        warnings.warn(f"{suite.suite_id}: {text}.", AssayWarning, stacklevel=2)


def warn_of_counts(job: models.Job) -> None:
    """Warns if most predictions in a job were for unknown items, or most items had none."""
    result = job.result
    if not isinstance(result, models.EvalResult):
        return
    text = ""
    if result.n_unmatched * 2 > result.n_submitted:
        text = (
            f"{result.n_unmatched} of {result.n_submitted} predictions were for items that the "
            "suite does not have; do the ids have the form of the suite's?"
        )
    elif result.n_missing * 2 > result.n:
        text = (
            f"{result.n_missing} of {result.n} items had no prediction, and count as the worst "
            "possible one."
        )
    if text:
        warnings.warn(f"{job.id}: {text}", AssayWarning, stacklevel=2)


def job_html(job: models.Job, base_url: str) -> str:
    """Returns a job as static HTML: status, score with a bar, counts and links."""
    result = job.result
    heading = f"{job.id}: {job.status}"
    rows: dict[str, Any] = {"label": job.label}
    if isinstance(result, models.EvalResult):
        if result.release.startswith("ladder"):
            name = "best score of your organization so far"
        else:
            name = result.metric
        heading = _figure_heading(name, result)
        suite = f"{result.suite_id} version {result.suite_version}"
        rows.update(_figure_rows(result, {"suite": suite}))
    if job.error is not None:
        rows["error"] = f"{job.error.code}: {job.error.message}"
    table = _table(heading, rows)
    links = [_link(f"{base_url}/jobs/{job.id}", job.id)]
    if job.trace_url:
        links.append(_link(job.trace_url, "trace"))
    return f"{table}<div>{' · '.join(links)}</div>"


def score_html(score: Score) -> str:
    """Returns a score as static HTML: the value with a bar, and counts."""
    return _table(_figure_heading(score.metric, score), _figure_rows(score, {}))


def _figure_heading(name: str, result: models.EvalResult | Score) -> str:
    return f"{_escape(name)} {_number(result.value)} {_bar(result.value, result.ci95)}"


def _figure_rows(result: models.EvalResult | Score, suite: dict[str, str]) -> dict[str, Any]:
    return {
        "95 % interval": _interval(result.ci95, _number, result.ci_method),
        "items": f"{result.n:,} ({result.n_missing:,} missing)",
        "clusters": None if result.n_clusters is None else f"{result.n_clusters:,}",
        "ceiling": _estimate(result.ceiling),
        "share of the ceiling": _estimate(result.share_of_ceiling),
        "skill": _estimate(result.skill),
        **suite,
        **{name: _number(value) for name, value in result.metrics.items()},
        **{
            f"{field.field} {group.group}": f"{_number(group.value)}, n = {group.n:,}"
            for field in result.slices
            for group in field.groups
        },
    }


def _estimate(figure: models.Ceiling | models.ShareOfCeiling | models.Skill | None) -> str | None:
    if figure is None:
        return None
    interval = _interval(figure.ci95, _number)
    return _number(figure.value) + (f" ({interval})" if interval else "")


def _interval(ci95: Sequence[float] | None, show: Any, method: str | None = None) -> str | None:
    if ci95 is None:
        return None
    suffix = f" ({method})" if method else ""
    return f"{show(ci95[0])} to {show(ci95[1])}{suffix}"


def _escape(text: object) -> str:
    from html import escape

    return escape(str(text))


def _link(url: str, text: str) -> str:
    if not url.startswith(("http://", "https://")):
        return _escape(text)
    return f'<a href="{_escape(url)}" rel="noopener">{_escape(text)}</a>'


def _table(heading: str, rows: dict[str, Any]) -> str:
    """Returns a table. The heading is HTML already."""
    cells = "".join(
        f'<tr><td style="text-align:left">{_escape(name)}</td>'
        f'<td style="text-align:left">{_escape(value)}</td></tr>'
        for name, value in rows.items()
        if value is not None
    )
    return f"<div><strong>{heading}</strong><table>{cells}</table></div>"


def _bar(value: float, ci95: Sequence[float] | None, zero: bool = False) -> str:
    """Returns an SVG bar for a value with its interval."""
    low, high = ci95 or (value, value)
    if zero:
        reach = max(abs(low), abs(high), 1e-9) * 1.1
        start, span = -reach, 2 * reach
    else:
        start, span = min(0.0, low), max(1.0, high) - min(0.0, low)

    def x(position: float) -> float:
        return round((position - start) / span * 198 + 1, 1)

    origin = f'<path d="M{x(0)} 1V15" stroke="#888"/>' if zero else ""
    filled = "" if zero else f'<rect x="1" y="5" width="{x(value)}" height="6" fill="#7aa6d8"/>'
    return (
        '<svg width="200" height="16" role="img" style="vertical-align:middle">'
        f"<title>{_number(value)}</title>"
        f'<rect x="1" y="5" width="198" height="6" fill="#8884"/>{filled}{origin}'
        f'<path d="M{x(low)} 8H{x(high)}M{x(low)} 4V12M{x(high)} 4V12" stroke="currentColor"/>'
        f'<circle cx="{x(value)}" cy="8" r="2.5" fill="currentColor"/></svg>'
    )
