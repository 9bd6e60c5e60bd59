"""The package: generated files, size, and its one dependency."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from .conftest import PACKAGE_FOLDER

WHEEL_BYTES_MAX = 100 * 1024


def run_script(name: str, *arguments: str) -> None:
    command = [sys.executable, str(PACKAGE_FOLDER / "scripts" / name), "--check", *arguments]
    subprocess.run(command, check=True)


def test_generated_files_are_current(openapi: dict[str, Any]) -> None:
    arguments = []
    if os.environ.get("ASSAY_OPENAPI"):
        arguments += ["--openapi", os.environ["ASSAY_OPENAPI"]]
    for name in ("retries", "metrics"):
        if not (PACKAGE_FOLDER.parent / f"{name}.json").exists():
            arguments += [f"--{name}", str(PACKAGE_FOLDER / f"{name}.json")]
    run_script("generate_models.py", *arguments)
    run_script("generate_sync.py")


def test_wheel_is_small(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
    ]
    subprocess.run([*command, str(PACKAGE_FOLDER)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size <= WHEEL_BYTES_MAX


def test_extra_pins_scorer_of_repository() -> None:
    workspace = PACKAGE_FOLDER.parent.parent / "Cargo.toml"
    if not workspace.exists():
        pytest.skip("not in the repository")
    version = re.search(r'^version = "(.+)"$', workspace.read_text(), re.MULTILINE)
    assert version
    extra = f'score = ["assay-scorer=={version[1]}"]'
    assert extra in (PACKAGE_FOLDER / "pyproject.toml").read_text()


def test_import_loads_no_scorer() -> None:
    code = "import assay_client, sys; print([m for m in sys.modules if 'score' in m])"
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, check=True, capture_output=True).stdout.strip() == b"[]"


def test_stubs_of_the_contract_can_be_imported_too(tmp_path: Path) -> None:
    # Generators for the package `assay.v1` write these files.
    stubs = tmp_path / "assay" / "v1"
    stubs.mkdir(parents=True)
    (stubs / "evals_pb2.py").write_text("stubs = True\n")
    code = "import assay_client; from assay.v1 import evals_pb2; print(evals_pb2.stubs)"
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": paths},
        check=True,
        capture_output=True,
    )
    assert ran.stdout.strip() == b"True"


def test_only_transport_uses_http_library() -> None:
    for path in (PACKAGE_FOLDER / "src" / "assay_client").glob("*.py"):
        has_import = re.search(r"^ +import httpx2|^import httpx2", path.read_text(), re.MULTILINE)
        # The clients name its types in annotations.
        assert not has_import or path.name in ("_transport.py", "client.py", "aio.py"), path


def code_of(source: str) -> list[tuple[str, int | None]]:
    """Returns a module's nodes with their lines, without docstrings."""
    nodes = list(ast.walk(ast.parse(source)))
    texts = [node.value for node in nodes if isinstance(node, ast.Expr)]
    hidden = {id(node) for node in texts if isinstance(node, ast.Constant)}
    hidden |= {id(node) for node in nodes if getattr(node, "value", None) in texts}
    return [
        (type(node).__name__, getattr(node, "lineno", None))
        for node in nodes
        if id(node) not in hidden and not isinstance(node, ast.Expr)
    ]


def test_wheel_has_the_code_of_the_sources() -> None:
    place = spec_from_file_location("hatch_build", PACKAGE_FOLDER / "hatch_build.py")
    assert place
    assert place.loader
    hatch_build = module_from_spec(place)
    place.loader.exec_module(hatch_build)
    for path in (PACKAGE_FOLDER / "src" / "assay_client").glob("*.py"):
        source = path.read_text(encoding="utf-8")
        for is_documented in (True, False):
            short = hatch_build.shorten(source, is_documented=is_documented)
            assert code_of(short) == code_of(source), path
            assert len(short.splitlines()) == len(source.splitlines())
    assert '"""Evaluates' in hatch_build.shorten(
        (PACKAGE_FOLDER / "src" / "assay_client" / "client.py").read_text(), is_documented=True
    )
