"""A suite's items: read once for each version, then from the cache."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

from . import _frames as frames
from . import _models as models
from ._arguments import kind_of, reason_of, shown
from ._cache import Cache, write_lines
from ._core import Block, Core, Json, Steps, encode_json
from ._errors import AssayError, AssayWarning, OutOfRange

_PAGE_ITEMS = 1000


class Item(models.SuiteItem):
    """A suite's item: its `id`, and the `input` for a model."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """The item's id, as predictions name it."""
        return self.item_id


class Items(Sequence[Item]):
    """One suite version's items, in the suite's order.

    They are read from the cache one by one, so that a large suite does not fill the memory.
    """

    def __init__(self, suite_id: str, version: str, source: Path | list[bytes]) -> None:
        self.suite_id = suite_id
        self.version = version
        """The version of the suite that the items belong to. It never changes."""
        self._source = source
        self._length: int | None = None

    def __iter__(self) -> Iterator[Item]:
        for line in self._lines():
            try:
                item = Item.from_dict(json.loads(line))
            except (ValueError, RecursionError, AssayError):
                item = None
            if item is None:
                raise AssayError(f"The items in {self._source} are damaged. Delete the file.")
            yield item

    def __len__(self) -> int:
        if self._length is None:
            self._length = sum(1 for _ in self._lines())
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        """Returns one item or a slice. Each call reads the file from its start."""
        if not isinstance(index, (int, slice)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AssayError(f"An index must be an integer or a slice, not {kind_of(index)}.")
        try:
            wanted = range(len(self))[index]
        except IndexError:
            raise OutOfRange(f"{self.suite_id} has no item {index}: it has {len(self)}.") from None
        except (TypeError, ValueError) as error:
            raise AssayError(f"Items have no slice {shown(index)} ({reason_of(error)}).") from None
        if isinstance(wanted, int):
            return next(item for n, item in enumerate(self) if n == wanted)
        found = {n: item for n, item in enumerate(self) if n in wanted}
        return [found[n] for n in wanted]

    def __repr__(self) -> str:
        return f"<Items of {self.suite_id} version {self.version}: {len(self):,}>"

    def first(self) -> Item:
        """Returns the first item."""
        found = next(iter(self), None)
        if found is None:
            raise OutOfRange(f"{self.suite_id} has no items.")
        return found

    def ids(self) -> Iterator[str]:
        """Returns the item ids, in order."""
        return (item.item_id for item in self)

    def to_polars(self) -> Any:
        """Returns a polars DataFrame: `item_id`, and one column for each input field."""
        return frames.to_polars(self._rows())

    def to_pandas(self) -> Any:
        """Returns a pandas DataFrame: `item_id`, and one column for each input field."""
        return frames.to_pandas(self._rows())

    def to_arrow(self) -> Any:
        """Returns a pyarrow Table: `item_id`, and one column for each input field."""
        return frames.to_arrow(self._rows())

    def to_ndjson(self, path: str | Path) -> None:
        """Writes the items as NDJSON, each with `item_id` and `input`."""
        try:
            write_lines(Path(path), self._lines())
        except (OSError, TypeError, ValueError) as error:
            raise AssayError(f"The items cannot be written ({reason_of(error)}).") from error

    def _rows(self) -> list[Json]:
        # An input can have a field of the name `item_id`, too; the item's id is kept.
        return [{**item.input, "item_id": item.item_id} for item in self]

    def _lines(self) -> Iterator[bytes]:
        if isinstance(self._source, list):
            yield from self._source
        else:
            try:
                with self._source.open("rb") as file:
                    yield from file
            except OSError as error:
                raise AssayError(f"The items cannot be read ({reason_of(error)}).") from error


def load_items(core: Core, cache: Cache, suite_id: str, version: str | None) -> Steps[Items]:
    """Returns the current version's items, or `version`'s if they are in the cache."""
    if version is not None and (found := cached_items(cache, suite_id, version)):
        return found
    lines: list[bytes] = []
    query: dict[str, Any] = {"limit": _PAGE_ITEMS}
    while True:
        reply = yield from core.call("listSuiteItems", path={"suite_id": suite_id}, query=query)
        page = reply.decode(_page)
        current = page.version
        if not lines and (found := cached_items(cache, suite_id, current)):
            return found
        lines += page.lines
        if page.next_cursor is None:
            break
        if page.next_cursor == query.get("cursor"):
            raise AssayError(f"{suite_id}: the next page of items has the cursor of this one.")
        query["cursor"] = page.next_cursor
    path = cache.items_file(suite_id, current)
    if path is None:
        return Items(suite_id, current, lines)
    try:
        yield Block(lambda: write_lines(path, lines))
    except OSError as error:
        warnings.warn(f"The items are not kept on disk: {error}.", AssayWarning, stacklevel=2)
        return Items(suite_id, current, lines)
    return Items(suite_id, current, path)


class _Page(NamedTuple):
    version: str
    lines: list[bytes]
    next_cursor: str | None


def _page(body: Json) -> _Page:
    lines = [encode_json(Item.from_dict(item).to_dict()) + b"\n" for item in body["items"]]
    version, cursor = body["suite_version"], body["next_cursor"]
    if not isinstance(version, str) or not isinstance(cursor, (str, type(None))):
        raise AssayError("`suite_version` and `next_cursor` must be strings.")
    return _Page(version, lines, cursor)


def cached_items(cache: Cache, suite_id: str, version: str) -> Items | None:
    """Returns a version's items if they are in the cache."""
    path = cache.items_file(suite_id, version)
    return Items(suite_id, version, path) if path is not None and os.path.exists(path) else None
