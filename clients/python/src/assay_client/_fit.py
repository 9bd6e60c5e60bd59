"""The comparison of predictions with the items and the metric of a suite, without answers.

It has the verdicts of the platform's comparison, which the scorer contains.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from ._documents import ERRORS_MAX, Entry, Problem
from ._frames import form_of, metric_problem
from ._tables import METRICS_OF_ALL_ITEMS

_NAMED_MAX = 10


def compare(
    rows: Iterable[Entry | Problem],
    item_ids: Iterable[str],
    metric: str,
    quantiles: Sequence[float] = (),
) -> dict[str, Any]:
    """Returns how predictions fit a suite's items, in the form of the scorer's `check`."""
    items: dict[str, str | None] = dict.fromkeys(item_ids)
    unknown: dict[str, str] = {}
    errors: list[dict[str, str]] = []
    first_repeated_unknown: str | None = None
    n_matched = 0
    n_unmatched = 0
    padded: list[str] = []
    separated: list[str] = []
    is_list = metric != "accuracy" and form_of(metric) == "rankings"

    def add(field: str, message: str) -> None:
        errors.append({"field": field, "message": message})

    is_partial = False
    for row in rows:
        if isinstance(row, Problem):
            add(row.field, row.message)
        elif row.has_value:
            place = row.place
            padded += _first(_texts(row.value), lambda text: text.strip() != text)
            if is_list and isinstance(row.value, str):
                separated += _first((row.value,), _is_separated)
            if problem := metric_problem(row.value, metric, quantiles):
                message = f"is no prediction for the suite's metric, {metric}: {problem}"
                add(f"{place}.prediction", message)
            if row.item_id not in items:
                n_unmatched += 1
                if row.item_id in unknown and first_repeated_unknown is None:
                    first_repeated_unknown = place
                unknown.setdefault(row.item_id, place)
            elif (first := items[row.item_id]) is not None:
                add(f"{place}.item_id", f"this item is already predicted by {first}")
            else:
                n_matched += 1
                items[row.item_id] = place
        if len(errors) >= ERRORS_MAX:
            is_partial = True
            break
    missing = [item_id for item_id, place in items.items() if place is None]
    warnings: list[str] = []
    if not is_partial:
        if first_repeated_unknown is not None:
            add(f"{first_repeated_unknown}.item_id", "this item is already predicted")
        if missing and metric in METRICS_OF_ALL_ITEMS.split():
            add("predictions", f"{metric} needs a prediction for each item of the suite")
        warnings = _warnings(items, unknown, (n_matched, n_unmatched, len(missing)))
        if len(separated) * 2 > n_matched + n_unmatched:
            first = separated[0]
            warnings.append(f"{first!r} is one id; write a ranking of several as an array of texts")
        if padded:
            warnings.append(
                f"{len(padded)} predictions have white space around an id or a label, such as "
                f"{padded[0]!r}; it counts as a part"
            )
    return {
        "n_items": len(items),
        "n_matched": n_matched,
        "n_unmatched": n_unmatched,
        "first_unmatched": list(unknown.items())[:_NAMED_MAX],
        "first_missing": missing[:_NAMED_MAX],
        "errors": errors,
        "is_partial": is_partial,
        "warnings": warnings,
    }


def _warnings(
    items: Iterable[str], unknown: Iterable[str], counts: tuple[int, int, int]
) -> list[str]:
    n_matched, n_unmatched, n_missing = counts
    n_values = n_matched + n_unmatched
    n_items = n_matched + n_missing
    if n_unmatched * 2 > n_values:
        cause = ""
        plain = {_plain(item): item for item in items}
        for item_id in list(unknown)[:_NAMED_MAX]:
            if (item := plain.get(_plain(item_id))) is not None:
                cause = (
                    f": {item_id!r} differs from {item!r} in case, white space or Unicode form only"
                )
                break
        return [
            f"{n_unmatched} of {n_values} predictions are for items that the suite does not "
            f"have{cause}"
        ]
    if n_missing * 2 > n_items:
        return [
            f"{n_missing} of {n_items} items have no prediction, and count as the worst possible "
            "one"
        ]
    return []


def label_warnings(rows: Iterable[Entry | Problem], options: Mapping[str, Any]) -> list[str]:
    """Returns warnings if most predictions have labels that are no options of their items.

    `options` has those of each item.
    """
    n_values = n_wrong = 0
    example = ""
    for row in rows:
        if isinstance(row, Problem) or not isinstance(known := options.get(row.item_id), list):
            continue
        names: list[Any] = known  # pyright: ignore[reportUnknownVariableType]
        wrong = next((text for text in _texts(row.value) if text not in names), None)
        n_values += 1
        if wrong is not None:
            n_wrong += 1
            example = example or difference_of(wrong, names)
    if n_wrong * 2 <= n_values:
        return []
    return [f"{n_wrong} of {n_values} predictions have labels that are no options{example}"]


def difference_of(label: str, known: Sequence[Any]) -> str:
    """Returns how a label differs from the known ones, for a message's end."""
    for one in known:
        if isinstance(one, str) and _plain(one) == _plain(label):
            return f": {label!r} differs from {one!r} in case, white space or Unicode form only"
    return f", such as {label!r} instead of {known[0]!r}" if known else ""


def _texts(value: Any) -> Iterable[str]:
    """Returns the ids or labels of a prediction."""
    if isinstance(value, str):
        return (value,)
    return cast("Iterable[str]", value) if isinstance(value, (list, dict)) else ()


def _first(texts: Iterable[str], is_mistake: Callable[[str], bool]) -> list[str]:
    """Returns the first text that is a mistake, or none."""
    for text in texts:
        if is_mistake(text):
            return [text]
    return []


def _is_separated(text: str) -> bool:
    return any(mark in text.strip() for mark in " |,;\t")


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text.strip().lower())
