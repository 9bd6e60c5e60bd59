"""Generates the sync client from the async one.

The shells contain no decisions; those are in the core. So the sync client is the async client
without `async` and `await`.

    python scripts/generate_sync.py            # writes the files
    python scripts/generate_sync.py --check    # fails if a file is outdated
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "assay_client"
FILES = {
    "aio.py": "client.py",
    "_async_objects.py": "_objects.py",
    "_async_resources.py": "_resources.py",
}
REPLACEMENTS = (
    (r"Awaitable\[(list\[T\]|T)\]", r"\1"),
    (r"AsyncIterator", "Iterator"),
    (r"Async(Runner|Pool|Transport)\b", r"Sync\1"),
    (r"\bAsync([A-Z])", r"\1"),
    (r"\bhttpx2\.AsyncClient", "httpx2.Client"),
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"__a(enter|exit|iter)__", r"__\1__"),
    (r"\b_async_(objects|resources)\b", r"_\1"),
    (r"\b_async_runner\b", "_sync_runner"),
    (r"\baevaluate\b", "evaluate"),
    (r"\basync client\b", "sync client"),
    (r"T \| list\[T\]:\n", "T | list[T]:\n"),
    (
        r"from collections.abc import Iterator, Awaitable, ",
        "from collections.abc import Iterator, ",
    ),
)


def main() -> int:
    """Writes or checks the generated files. Returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="fail if a file is out of date")
    is_check = parser.parse_args().check
    status = 0
    for source, target in FILES.items():
        text = sync_source(source)
        path = SOURCES / target
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if is_check:
            print(f"{path} is out of date: run {Path(__file__).name}", file=sys.stderr)
            status = 1
        else:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path}")
    return status


def sync_source(name: str) -> str:
    """Returns a module's sync counterpart."""
    text = (SOURCES / name).read_text(encoding="utf-8")
    for pattern, replacement in REPLACEMENTS:
        text = re.sub(pattern, replacement, text)
    title, rest = text.split("\n", 1)
    note = f"Generated from `{name}` by `scripts/generate_sync.py`. Do not edit."
    text = f'{title.removesuffix(chr(34) * 3)}\n\n{note}\n"""\n{rest}'
    for command in (["check", "--select", "I,F401,RUF022", "--fix", "--quiet"], ["format"]):
        options = ["--isolated", "--config", "line-length = 100", "--stdin-filename", "x.py", "-"]
        finished = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options],
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        if not finished.stdout:
            sys.exit(f"ruff failed: {finished.stderr}")
        text = finished.stdout
    return text


if __name__ == "__main__":
    sys.exit(main())
