"""Results for people: text, static HTML, and decisions about comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _models as models
from ._errors import AssayError, Regression
from ._frames import (
    PredictionFile,
    Rows,
    is_type_of_metric,
    read_lines,
)

if TYPE_CHECKING:
    from ._score import Score

_EXAMPLES_MAX = 20
_LOWER_IS_BETTER = ("rmse", "mae", "log_loss", "brier", "ece@15")


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
    missing = f", {result.n_missing:,} missing" if result.n_missing else ""
    return f"{score}, n = {result.n:,}{missing}"


def describe_result(result: models.EvalResult) -> str:
    """Returns the score with its interval, counts and suite, in one line."""
    is_best = result.release.startswith("ladder")
    name = "best score of your organization so far: " if is_best else ""
    suite = f"{result.suite_id} version {result.suite_version}"
    return f"{name}{describe_figures(result)}, {suite}"


def describe_job(job: models.Job) -> str:
    """Returns the score of a job, or its status, in one line."""
    name = f"{job.label}: " if job.label else ""
    if isinstance(job.result, models.EvalResult):
        return f"{name}{describe_result(job.result)}, {job.id}"
    progress = f" {job.progress:.0%}" if job.progress is not None else ""
    return f"{name}{job.id} {job.status}{progress}"


@dataclass(frozen=True)
class EvaluationFigures:
    """The figures of an evaluation."""

    job: models.Job
    n_skipped: int
    """The number of items whose prediction failed, with `on_error="skip"`."""

    @property
    def result(self) -> models.EvalResult:
        """The result of the job."""
        assert isinstance(self.job.result, models.EvalResult)
        return self.job.result

    @property
    def value(self) -> float:
        """The value of the metric, as far as the disclosure policy of the suite shows it."""
        return self.result.value

    @property
    def ci95(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the value, or None."""
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
    """The comparison of two jobs, item by item. `difference` is the first minus the second."""

    __slots__ = ()

    def __str__(self) -> str:
        text = f"difference {signed(self.difference)}"
        if self.ci95 is not None:
            text += f" (95 % interval {signed(self.ci95[0])} to {signed(self.ci95[1])})"
        text += f", p = {self.p_value:.2g} ({self.p_method})"
        if self.n_differ is not None:
            text += f", {self.n_differ:,} items differ"
        if self.n_needed is not None:
            text += f"; {self.n_needed:,} items needed to detect one point"
        return text

    @property
    def lower_is_better(self) -> bool:
        """`True` if a smaller value of the metric is better, as for `rmse`."""
        return self.metric in _LOWER_IS_BETTER

    def raise_if_worse(self, margin: float = 0.0) -> None:
        """Raises `Regression` if the first job is worse than the second by more than `margin`.

        It is worse if the whole 95 % interval is below `-margin`. For metrics whose smaller
        values are better, the signs are reversed. The margin is in units of the metric.
        """
        _, best = self._interval_of_gain()
        if best < -margin:
            raise Regression(self, margin)

    def not_worse(self, margin: float) -> bool:
        """Returns whether the first job is shown to be at most `margin` worse than the second.

        That is the case if the whole 95 % interval is above `-margin`.
        """
        worst, _ = self._interval_of_gain()
        return worst > -margin

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
            f"{_escape(self.metric)} difference {signed(self.difference)} {bar}",
            {
                "95 % interval": _interval(self.ci95, signed),
                "p": f"{self.p_value:.2g} ({self.p_method})",
                "items that differ": self.n_differ,
                "items needed for one point": self.n_needed,
                "jobs": f"{self.job_a} − {self.job_b}",
            },
        )


@dataclass(frozen=True)
class Check:
    """The result of `Suite.check`: whether predictions fit the items of a suite."""

    n_items: int
    """The number of items of the suite."""
    n_predictions: int
    n_missing: int
    """The number of items without a prediction. Each scores as a wrong one."""
    n_unknown: int
    """The number of predictions for items that are not in the suite."""
    n_duplicates: int
    n_wrong_type: int
    """The number of predictions that do not fit the metric of the suite."""
    missing: tuple[str, ...]
    """The ids of the first missing items, at most 20. The same holds for the other ids."""
    unknown: tuple[str, ...]
    duplicates: tuple[str, ...]
    wrong_type: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """`True` if the server accepts the predictions. Missing and unknown items are accepted."""
        return self.n_predictions > 0 and not (self.n_duplicates or self.n_wrong_type)

    def __str__(self) -> str:
        parts = (
            (self.n_missing, "missing", self.missing),
            (self.n_unknown, "unknown", self.unknown),
            (self.n_duplicates, "duplicates", self.duplicates),
            (self.n_wrong_type, "of the wrong type", self.wrong_type),
        )
        texts = [f"{self.n_items:,} items"]
        for count, name, examples in parts:
            more = ", …" if count > 3 else ""
            shown = f" ({', '.join(map(repr, examples[:3]))}{more})" if examples else ""
            texts.append(f"{count:,} {name}{shown}")
        return ", ".join(texts)


def check_predictions(source: Rows | PredictionFile, item_ids: Iterable[str], metric: str) -> Check:
    """Returns how predictions fit the items of a suite. Sends nothing."""
    import json

    open_items = dict.fromkeys(item_ids, False)
    unknown_ids: set[str] = set()
    n_predictions = 0
    counts = {"unknown": 0, "duplicates": 0, "wrong_type": 0}
    examples: dict[str, list[str]] = {name: [] for name in counts}

    def count(name: str, item_id: str) -> None:
        counts[name] += 1
        if len(examples[name]) < _EXAMPLES_MAX:
            examples[name].append(item_id)

    for chunk in read_lines(source):
        for line in chunk.splitlines():
            if not line.strip():
                continue
            row = json.loads(line)
            item_id = row["item_id"]
            n_predictions += 1
            if not is_type_of_metric(row.get("prediction"), metric):
                count("wrong_type", item_id)
            is_repeated = open_items.get(item_id, item_id in unknown_ids)
            if item_id in open_items:
                open_items[item_id] = True
            else:
                unknown_ids.add(item_id)
                count("unknown", item_id)
            if is_repeated:
                count("duplicates", item_id)
    missing = [item_id for item_id, is_predicted in open_items.items() if not is_predicted]
    return Check(
        n_items=len(open_items),
        n_predictions=n_predictions,
        n_missing=len(missing),
        n_unknown=counts["unknown"],
        n_duplicates=counts["duplicates"],
        n_wrong_type=counts["wrong_type"],
        missing=tuple(missing[:_EXAMPLES_MAX]),
        unknown=tuple(examples["unknown"]),
        duplicates=tuple(examples["duplicates"]),
        wrong_type=tuple(examples["wrong_type"]),
    )


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
        **suite,
        **{name: _number(value) for name, value in result.metrics.items()},
    }


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
