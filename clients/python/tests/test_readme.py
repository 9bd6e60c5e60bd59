"""Every README example runs as it is, in order, as one notebook's cells.

The cells run in one event loop, so `await` works in them as in Jupyter, and the sync client is
used inside a running loop.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import assay_client as assay

from .conftest import PACKAGE_FOLDER, habit

pytestmark = pytest.mark.e2e


def examples() -> list[tuple[int, str]]:
    text = (PACKAGE_FOLDER / "README.md").read_text()
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    cells = [(text.count("\n", 0, match.start(1)), match[1]) for match in found]
    has_scorer = find_spec("assay_scorer") is not None
    # `test_score.py` warns if the scorer is not installed.
    return [cell for cell in cells if has_scorer or "assay.score(" not in cell[1]]


def names_of_reader(label: str) -> dict[str, Any]:
    """Returns what the README expects from its reader: their own models."""

    async def rank(questions: list[dict[str, Any]]) -> list[list[str]]:
        return [habit(question) for question in questions]

    def rank_frame(frame: Any) -> pl.Series:
        return pl.Series([habit(row) for row in frame.iter_rows(named=True)])

    return {
        "__name__": "readme",
        "my_server": SimpleNamespace(rank=rank),
        "model": SimpleNamespace(rank=rank_frame),
        "number": label,
    }


def write_suite(folder: Path, answers: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    toml = 'suite_id = "suite:lunch"\nversion = "1"\nmetric = "accuracy"\n'
    (folder / "suite.toml").write_text(toml)
    rows = (json.dumps({"item_id": k, "answer": v}) for k, v in answers.items())
    (folder / "answers.ndjson").write_text("\n".join(rows))


def write_compressed_predictions(folder: Path, client: assay.Assay) -> None:
    items = client.suites.items("suite:lunch")
    rows = "".join(f'{{"item_id":"{item.id}","prediction":["ramen"]}}\n' for item in items)
    with pa.CompressedOutputStream(str(folder / "predictions.ndjson.zst"), "zstd") as file:
        file.write(rows.encode())


def test_readme_examples_run(
    up: dict[str, Any],
    client: assay.Assay,
    label: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ASSAY_API_KEY", up["api_key"])
    monkeypatch.setenv("ASSAY_BASE_URL", up["rest"])
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    write_compressed_predictions(tmp_path, client)
    names = names_of_reader(label)
    # Invented answers: the hidden ones do not leave the server.
    names["answers"] = {item.id: "ramen" for item in client.suites.items("suite:lunch")}
    write_suite(tmp_path / "suites" / "lunch", names["answers"])

    async def run_cells() -> None:
        for line, source in examples():
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            code = compile("\n" * line + source, "README.md", "exec", flags)
            result = eval(code, names)
            if inspect.isawaitable(result):
                await result

    asyncio.run(run_cells())
    output = capsys.readouterr().out
    score = r"accuracy 0\.\d{3} ± 0\.\d{3} \(95 % interval .*, cluster_wilson\), n = 400 in 40"
    assert re.search(score, output)
    assert "400 items, 0 missing, 0 unknown" in output
    assert "predictions[1].item_id duplicate" in output
    assert re.search(r"Difference [+−]0\.\d{3} \(95 % interval", output)
