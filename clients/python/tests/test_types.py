"""The Python examples in the README and the guide have no type errors in strict mode.

`.ci/python` runs these tests, which need mypy and pyright (`requirements-types.txt`).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from .conftest import PACKAGE_FOLDER

GUIDE = PACKAGE_FOLDER.parent.parent / "docs" / "guide.md"
# What the examples expect from their reader.
NAMES = """
from __future__ import annotations

from typing import Any

import assay_client as assay

my_server: Any
model: Any
session: str
number: str
answers: dict[str, str]
"""
# Readers write functions without types; strict mode asks for them.
PARAMETERS = re.compile(r"^( *(?:async )?def \w+\()(\w+(?:, \w+)*)?\):", re.MULTILINE)


def typed(definition: re.Match[str]) -> str:
    names = (definition[2] or "").split(", ")
    arguments = ", ".join(f"{name}: Any" for name in names if name)
    return f"{definition[1]}{arguments}) -> Any:"


def write_module(document: Path, folder: Path) -> Path:
    """Writes a document's examples as a module, as one notebook's cells."""
    cells = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    body = textwrap.indent(PARAMETERS.sub(typed, "\n".join(cells)), "    ")
    path = folder / f"{document.stem.lower()}_examples.py"
    path.write_text(f"{NAMES}\n\nasync def examples() -> None:\n{body}")
    return path


@pytest.fixture(params=["README.md", "guide.md"])
def module(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    document = GUIDE if request.param == "guide.md" else PACKAGE_FOLDER / request.param
    if not document.exists():
        pytest.skip("not in the repository")
    return write_module(document, tmp_path)


def test_examples_have_no_errors_of_mypy(module: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    options = ["--strict", "--config-file=", "--python-version=3.10", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, str(module)]
    done = subprocess.run(
        command, cwd=PACKAGE_FOLDER / "src", capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 0


def test_examples_have_no_errors_of_pyright(module: Path, tmp_path: Path) -> None:
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("pyright is not installed")
    settings = {
        "include": [module.name],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.10",
        "extraPaths": [str(PACKAGE_FOLDER / "src")],
        # Cells end with a result, and the reader's objects can be anything.
        **dict.fromkeys(
            ("reportUnknownMemberType", "reportUnusedImport", "reportUnusedVariable"), False
        ),
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [pyright, "-p", str(tmp_path), "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    assert [f"{one['range']['start']['line'] + 1}: {one['message']}" for one in found] == []
