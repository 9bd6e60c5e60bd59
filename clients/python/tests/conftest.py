"""Fixtures. End-to-end tests use a real installation, which `ASSAY_TEST_UP` describes."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import assay_client as assay

PACKAGE_FOLDER = Path(__file__).resolve().parent.parent
# Each wait's timeout, in seconds. The platform tests multiply it by the machine's slowness.
WAIT_TIMEOUT = float(os.environ.get("ASSAY_TEST_WAIT_SECONDS", "180"))


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "e2e: needs a running installation")


@pytest.fixture(scope="session")
def up() -> dict[str, Any]:
    """The JSON object that `cargo up` prints."""
    path = os.environ.get("ASSAY_TEST_UP")
    if not path:
        pytest.fail('set ASSAY_TEST_UP to the output of `cargo up`, or select -m "not e2e"')
    return json.loads(Path(path).read_text())


@pytest.fixture
def client(up: dict[str, Any], tmp_path: Path) -> Iterator[assay.Assay]:
    """A client with an API key and an empty cache."""
    with assay.Assay(up["api_key"], up["rest"], cache=tmp_path / "cache") as client:
        yield client


@pytest.fixture
def owner(up: dict[str, Any], tmp_path: Path) -> Iterator[assay.Assay]:
    """A client with an owner's session."""
    with assay.Assay(up["owner_session"], up["rest"], cache=tmp_path / "cache") as client:
        yield client


@pytest.fixture
def label() -> str:
    """A label that no other test has used."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture(scope="session")
def openapi() -> dict[str, Any]:
    """The repository's OpenAPI document."""
    default = PACKAGE_FOLDER.parent.parent / "docs" / "openapi.json"
    return json.loads(Path(os.environ.get("ASSAY_OPENAPI", default)).read_text())


def habit(question: dict[str, Any]) -> list[str]:
    """Ranks a lunch item's options by their frequency in the past."""
    return sorted(question["options"], key=lambda dish: -question["past"].count(dish))
