"""Progress on stderr: for uploads, and for predictions."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_BAR_WIDTH = 10
_BLOCKS = " ▏▎▍▌▋▊▉█"
_REDRAW_SECONDS = 0.2


class UploadProgress(NamedTuple):
    """An upload's progress."""

    parts_done: int
    """The number of parts that the server has, with those of an earlier run."""
    parts_total: int | None
    """The number of all parts, or None if it is not known yet."""
    bytes_done: int
    bytes_per_second: float
    """The speed of this run."""
    seconds_left: float | None
    """The estimated time until the last part is sent, or None if it is not known."""

    def __str__(self) -> str:
        speed = f"{self.bytes_per_second / 1e6:.1f} MB/s"
        if self.parts_total is None:
            return f"{self.parts_done} parts · {speed}"
        share = self.parts_done / self.parts_total
        left = ""
        if self.seconds_left is not None:
            left = f" · {int(self.seconds_left) // 60}:{int(self.seconds_left) % 60:02} left"
        counts = f"{self.parts_done}/{self.parts_total} parts"
        return f"{share * 100:.0f} %|{_bar(share)}| {counts} · {speed}{left}"


def _bar(share: float) -> str:
    eighths = round(share * _BAR_WIDTH * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_BLOCKS[rest] if rest else "")).ljust(_BAR_WIDTH)


OnProgress = Callable[[UploadProgress], Any]


class UploadMeter:
    """Counts the upload parts and reports the progress. Threads can share it."""

    def __init__(self, report: bool | OnProgress | None, parts_total: int | None) -> None:
        """Creates the meter. `report` is `True` for a line on stderr, or a function."""
        self._report = report
        self._parts_total = parts_total
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._parts = self._bytes = self._sent_parts = self._sent_bytes = 0

    def resumed(self, upload_id: str, n_parts: int) -> None:
        """Reports that an earlier run has sent some parts."""
        if self._report is True:
            total = f" of {self._parts_total}" if self._parts_total else ""
            write_line(f"resuming {upload_id}: {n_parts}{total} parts are already uploaded")

    def add(self, n_bytes: int, was_sent: bool) -> None:
        """Counts one part, which an earlier run sent unless `was_sent`."""
        with self._lock:
            self._parts += 1
            self._bytes += n_bytes
            if was_sent:
                self._sent_parts += 1
                self._sent_bytes += n_bytes
            progress = self._progress()
        if self._report is True:
            is_last = progress.parts_done == progress.parts_total
            sys.stderr.write(f"\r{progress}   " + ("\n" if is_last else ""))
            sys.stderr.flush()
        elif callable(self._report):
            self._report(progress)

    def _progress(self) -> UploadProgress:
        seconds = max(time.monotonic() - self._started, 1e-6)
        left = None
        if self._parts_total is not None and self._sent_parts:
            left = (self._parts_total - self._parts) * seconds / self._sent_parts
        speed = self._sent_bytes / seconds
        return UploadProgress(self._parts, self._parts_total, self._bytes, speed, left)


class PredictionMeter:
    """A prediction progress bar: tqdm if it is installed, otherwise a line on stderr."""

    def __init__(self, is_shown: bool, total: int, done: int) -> None:
        """Creates the bar. `done` predictions exist from an earlier run."""
        self._total = total
        self._done = done
        self._lock = threading.Lock()
        self._drawn = 0.0
        self._is_shown = is_shown
        self._bar = _tqdm(total, done) if is_shown else None

    def add(self, count: int) -> None:
        """Counts predictions."""
        with self._lock:
            self._done += count
            if self._bar is not None:
                self._bar.update(count)
            elif self._is_shown and time.monotonic() - self._drawn > _REDRAW_SECONDS:
                self._drawn = time.monotonic()
                self._draw("")

    def close(self) -> None:
        """Leaves the bar as it is."""
        if self._bar is not None:
            self._bar.close()
        elif self._is_shown:
            self._draw("\n")

    def _draw(self, end: str) -> None:
        share = self._done / max(self._total, 1)
        sys.stderr.write(f"\r{share * 100:.0f} %|{_bar(share)}| {self._done}/{self._total}{end}")
        sys.stderr.flush()


def _tqdm(total: int, done: int) -> Any:
    from importlib import import_module

    try:
        tqdm: Any = import_module("tqdm.auto")
    except ImportError:
        return None
    return tqdm.tqdm(total=total, initial=done, desc="predictions", unit="")


def is_terminal_or_notebook() -> bool:
    """Returns whether somebody is likely to read progress on stderr."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def write_line(text: str) -> None:
    """Writes a line to stderr."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
