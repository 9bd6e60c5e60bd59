"""The cache on disk: suite items, unfinished predictions and unfinished uploads.

Folder layout: `items/`, `predictions/` and `uploads/`. It can be deleted completely at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ._core import encode_json
from ._errors import AssayWarning

_STATE_SECONDS = 8 * 24 * 3600  # Uploads expire after 7 days.


def digest_of(*parts: str) -> str:
    """Returns several strings' SHA-256, in hexadecimal digits."""
    return hashlib.sha256(encode_json(parts)).hexdigest()


class Cache:
    """One installation's cache. Without a folder it stores nothing."""

    def __init__(self, folder: Path | None, base_url: str) -> None:
        self._folder = folder
        self._base_url = base_url

    def items_file(self, suite_id: str, version: str) -> Path | None:
        """Returns the file for one suite version's items."""
        return self._path("items", digest_of(self._base_url, suite_id, version) + ".ndjson")

    def predictions(self, *identity: str) -> PredictionLog:
        """Returns an evaluation's prediction log."""
        return PredictionLog(self._path("predictions", digest_of(self._base_url, *identity)))

    def upload_state(self, *identity: str) -> UploadState:
        """Returns an upload's state."""
        return UploadState(self._path("uploads", digest_of(self._base_url, *identity)))

    def _path(self, kind: str, name: str) -> Path | None:
        return self._folder / kind / name if self._folder else None


def _make_folder(path: Path) -> None:
    # Predictions and items may be confidential.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Writes a file that appears only when it is complete."""
    _make_folder(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
    try:
        with os.fdopen(handle, "wb") as file:
            for line in lines:
                file.write(line)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


class PredictionLog:
    """Predictions on disk, appended as they are made."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._made: dict[str, Any] = {}
        self._lock = threading.Lock()

    def load(self) -> int:
        """Reads an earlier run's predictions. Returns their number."""
        if self._path is None or not os.path.exists(self._path):
            return 0
        try:
            with self._path.open("rb") as file:
                for line in file:
                    try:
                        item_id, prediction = json.loads(line)
                    except (ValueError, TypeError):
                        continue  # The process ended while it wrote this line.
                    if isinstance(item_id, str):
                        self._made[item_id] = prediction
        except OSError as error:
            self._forget(error)
        return len(self._made)

    def _forget(self, error: OSError) -> None:
        # The evaluation can go on; only an interrupted one could not be continued.
        self._path = None
        warnings.warn(f"Predictions are not kept on disk: {error}.", AssayWarning, stacklevel=2)

    def add(self, predictions: Mapping[str, Any]) -> None:
        """Appends predictions. They survive a process crash."""
        lines = b"".join(encode_json(pair) + b"\n" for pair in predictions.items())
        with self._lock:
            self._made.update(predictions)
            if self._path is None:
                return
            try:
                _make_folder(self._path)
                # The first line may follow one that a crash has cut off.
                is_new = not self._path.exists()
                with self._path.open("ab") as file:
                    file.write(lines if is_new else b"\n" + lines)
            except OSError as error:
                self._forget(error)

    def kept(self) -> str:
        """Returns what a later run for the same evaluation finds, for people."""
        if self._path is None:
            return "its predictions are not kept"
        return f"{len(self._made):,} predictions are kept, and the same call continues with them"

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._made

    def in_order(self, item_ids: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Returns the predictions in these items' order, without missing ones."""
        return ((item, self._made[item]) for item in item_ids if item in self._made)

    def delete(self) -> None:
        """Deletes the file."""
        _delete(self._path)


class UploadState:
    """An upload's id, so that a later process can resume it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def load(self) -> str | None:
        """Returns the upload's id, if there is one."""
        try:
            return self._path.read_text(encoding="utf-8").strip() if self._path else None
        except (OSError, UnicodeDecodeError):
            # Without the state, the upload begins again.
            return None

    def save(self, upload_id: str) -> None:
        """Stores the id, and deletes expired uploads' states."""
        if self._path is None:
            return
        try:
            write_lines(self._path, [upload_id.encode()])
        except OSError as error:
            self._path = None
            warnings.warn(f"The upload cannot be resumed: {error}.", AssayWarning, stacklevel=2)
            return
        oldest = time.time() - _STATE_SECONDS
        for path in self._path.parent.iterdir():
            # Another process can delete the file at any time.
            with suppress(OSError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def delete(self) -> None:
        """Deletes the state."""
        _delete(self._path)


def _delete(path: Path | None) -> None:
    if path is not None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(f"{path} cannot be deleted: {error}.", AssayWarning, stacklevel=2)
