"""Settings and profiles."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import assay_client as assay
from assay_client._settings import load_settings, parse_profiles


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("ASSAY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "assay" / "config.toml"
    path.parent.mkdir()
    path.write_text(
        '[default]\nbase_url = "https://default.example"\napi_key = "key-default"\n'
        "[work]\nbase_url = 'https://work.example/'\napi_key = \"key-work\"  # rotated\n"
    )
    path.chmod(0o600)
    return path


def test_argument_precedes_environment_and_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_settings().api_key == "key-default"
    assert load_settings(profile="work").base_url == "https://work.example"
    monkeypatch.setenv("ASSAY_PROFILE", "work")
    assert load_settings().api_key == "key-work"
    monkeypatch.setenv("ASSAY_API_KEY", "key-env")
    assert load_settings().api_key == "key-env"
    assert load_settings("key-argument", "https://x").api_key == "key-argument"


def test_missing_setting_names_sources(config: Path) -> None:
    config.unlink()
    with pytest.raises(assay.AssayError) as raised:
        load_settings(base_url="https://x")
    text = str(raised.value)
    assert "`api_key`" in text
    assert "ASSAY_API_KEY" in text
    assert "profile `default`" in text


def test_unknown_profile_raises() -> None:
    with pytest.raises(assay.AssayError, match="Profiles: default, work"):
        load_settings(profile="home")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_readable_file_is_rejected(config: Path, mode: int) -> None:
    config.chmod(mode)
    with pytest.raises(assay.AssayError, match="other users can read it"):
        load_settings()
    # Without a needed profile, the file is not read.
    assert load_settings("key", "https://x").api_key == "key"


def test_settings_hide_key() -> None:
    secret = "svc_live_" + "x" * 38
    assert secret not in repr(load_settings(secret, "https://x"))
    assert secret not in repr(assay.Assay(secret, "https://x"))


def test_parser_reads_subset() -> None:
    text = (
        '# comment\n\n[a]\napi_key = "q\\"\\u00e9"\nn = 3 # number\nok=true\n'
        "[\"my profile\"]\nbase_url = 'https://x#y'\n"
    )
    assert parse_profiles(text, "f") == {
        "a": {"api_key": 'q"é', "n": "3", "ok": "true"},
        "my profile": {"base_url": "https://x#y"},
    }


@pytest.mark.parametrize("line", ["api_key", "[a", 'x = "open', "x = [1, 2]", 'x = """a"""'])
def test_parser_names_line(line: str) -> None:
    with pytest.raises(assay.AssayError, match="f, line 2"):
        parse_profiles(f"[a]\n{line}\n", "f")


def test_cache_folder_follows_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load_settings(cache=False).cache_folder is None
    assert load_settings(cache=tmp_path).cache_folder == tmp_path
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "c"))
    assert load_settings().cache_folder == tmp_path / "c"
    monkeypatch.delenv("ASSAY_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert load_settings().cache_folder == tmp_path / "assay"


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_missing_certificates_are_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(tmp_path / "nothing"))
    with pytest.raises(assay.AssayError, match=rf"{name} names a place .*nothing"):
        assay.Assay("svc_live_key", "https://assay.example").me()
