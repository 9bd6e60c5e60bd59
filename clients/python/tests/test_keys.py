"""Idempotency keys and parts."""

from __future__ import annotations

import gzip
import hashlib
from itertools import islice
from typing import Any

import pytest

from assay_client import _upload
from assay_client._evaluate import identity_of
from assay_client._upload import PartWriter, Submission, inline_digest, needs_next_key, next_keys

SUBMISSION = Submission("suite:lunch", "1", "label", {"a": "1", "b": "2"})


def test_key_follows_from_content() -> None:
    key = SUBMISSION.idempotency_key("d")
    assert key == Submission("suite:lunch", "1", "label", {"b": "2", "a": "1"}).idempotency_key("d")
    others = [
        Submission("suite:other", "1", "label", {"a": "1", "b": "2"}),
        Submission("suite:lunch", "2", "label", {"a": "1", "b": "2"}),
        Submission("suite:lunch", "1", None, {"a": "1", "b": "2"}),
        Submission("suite:lunch", "1", "label", {"a": "1"}),
    ]
    keys = {other.idempotency_key("d") for other in others} | {key}
    assert len(keys | {SUBMISSION.idempotency_key("e")}) == 6
    assert len(key) == 64


def test_fresh_key_is_random() -> None:
    fresh = Submission("suite:lunch", "1", fresh=True)
    assert fresh.idempotency_key("d") != fresh.idempotency_key("d")


def test_next_key_has_suffix() -> None:
    assert list(islice(next_keys("k"), 3)) == ["k", "k-2", "k-3"]


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        ({"status": "succeeded"}, False),
        ({"status": "queued"}, False),
        ({"status": "cancelled"}, True),
        ({"status": "failed", "error": {"code": "internal"}}, True),
        ({"status": "failed", "error": {"code": "timeout"}}, True),
        ({"status": "failed", "error": {"code": "invalid_predictions"}}, False),
    ],
)
def test_status_decides_next_key(job: dict[str, Any], expected: bool) -> None:
    assert needs_next_key(job) is expected


def test_digest_ignores_white_space_and_escapes() -> None:
    first = inline_digest([b'{"item_id":"a","prediction":["\\u00fc"]}'])
    second = inline_digest(['{ "prediction": ["ü"], "item_id": "a", "note": 1 }'.encode()])
    assert first == second
    assert first != inline_digest([b'{"item_id":"a","prediction":"\\u00fc"}'])


def test_parts_are_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_upload, "_PART_BYTES", 1000)
    rows = [(f"item-{n}", hashlib.sha256(str(n).encode()).hexdigest()) for n in range(500)]

    def parts() -> list[bytes]:
        writer = PartWriter()
        return [part for row in rows for part in writer.add_row(*row)] + list(writer.finish())

    made = parts()
    assert made == parts()
    assert {len(part) for part in made[:-1]} == {1000}
    text = gzip.decompress(b"".join(made)).decode()
    assert text.splitlines()[7].startswith('{"item_id":"item-7"')
    assert len(text.splitlines()) == 500


def test_edited_function_has_other_identity() -> None:
    def make(source: str) -> Any:
        names: dict[str, Any] = {"__name__": "module"}
        exec(source, names)
        return names["predict"]

    source = "def predict(q):\n    return q['a'] in {'x', 'y'}"
    assert identity_of(make(source)) == identity_of(make(source))
    assert identity_of(make(source)) != identity_of(make(source.replace("'a'", "'b'")))
    assert identity_of(make("class P:\n  def __call__(self, q): return 1\npredict = P()"))
