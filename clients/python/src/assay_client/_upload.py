"""Submissions: inline or by upload, with idempotency keys that follow from the content."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from . import _models as models
from ._arguments import flag_of, kind_of, label_of, metadata_of
from ._cache import Cache, UploadState
from ._core import Block, Core, Json, Parallel, Steps, encode_json, logger, without_none
from ._documents import Entry, Problem, describe, read_document, read_file
from ._errors import (
    AssayError,
    ConnectionFailed,
    Internal,
    InvalidState,
    NotFound,
    ValidationFailed,
)
from ._frames import PredictionFile, Rows, prediction_line, read_lines
from ._items import Items
from ._progress import OnProgress, UploadMeter
from ._results import warn_of_mistakes
from ._tables import RETRIES

_INLINE_BYTES_MAX: int = RETRIES["upload"]["inline_max_bytes"]
_PART_BYTES: int = RETRIES["upload"]["part_bytes"]
CONCURRENT_PARTS: int = RETRIES["upload"]["concurrent_parts"]
_READ_BYTES = 1 << 20
# Fast compression: about 3.5 times smaller at 100 MB/s.
_COMPRESSION_LEVEL = 1
_GZIP_FORMAT = 31
_KEYS_MAX = 50


@dataclass(frozen=True)
class Submission:
    """What is submitted besides the predictions."""

    suite_id: str
    suite_version: str | None
    label: str | None = None
    metadata: Mapping[str, str] | None = None
    fresh: bool = False
    waits_for_slot: bool = False
    suite: models.Suite | None = None
    items: Items | None = None
    """The items, if they are known without a request: predictions are compared with them."""

    def __post_init__(self) -> None:
        label_of(self.label)
        object.__setattr__(self, "metadata", metadata_of(self.metadata))
        flag_of("fresh", self.fresh)
        flag_of("wait_for_slot", self.waits_for_slot)

    def fields(self) -> Json:
        """Returns the request body's fields, without predictions."""
        return without_none(
            suite_id=self.suite_id,
            suite_version=self.suite_version,
            label=self.label,
            metadata=self.metadata or None,
        )

    def idempotency_key(self, content_digest: str) -> str:
        """Returns the submission's SHA-256. With `fresh`, it has a random suffix."""
        metadata = sorted(self.metadata.items()) if self.metadata else None
        identity = [self.suite_id, self.suite_version, self.label, metadata, content_digest]
        key = hashlib.sha256(encode_json(identity)).hexdigest()
        return f"{key}-{secrets.token_hex(4)}" if self.fresh else key


def next_keys(key: str) -> Iterator[str]:
    """Returns the key, then the key with the suffixes `-2`, `-3` and so on."""
    yield key
    for number in range(2, _KEYS_MAX):
        yield f"{key}-{number}"


def needs_next_key(job: Mapping[str, Any]) -> bool:
    """Returns whether a key's job is useless: it was cancelled, or the platform failed."""
    rules = RETRIES["idempotency"]
    failure = job["error"]["code"] if job.get("error") else None
    return job["status"] in rules["next_key_after_status"] or (
        job["status"] == "failed" and failure in rules["next_key_after_failure"]
    )


def _job_of(body: Json) -> Json:
    models.Job.from_dict(body)
    return body


def create_job(
    core: Core, submission: Submission, digest: str, content: Iterable[bytes]
) -> Steps[Json]:
    """Submits predictions and returns the job. `content` is the JSON object's rest."""
    head = encode_json(submission.fields())[:-1]
    body = b"".join(chain((head,), content, (b"}",)))
    for key in next_keys(submission.idempotency_key(digest)):
        reply = yield from core.call(
            "createEval",
            body=body,
            idempotency_key=key,
            waits_for_slot=submission.waits_for_slot,
        )
        job = reply.decode(_job_of)
        if not needs_next_key(job):
            return job
        logger.info("%s is %s, submitting again with another key", job["id"], job["status"])
    raise AssayError("All jobs of this submission failed or were cancelled. Pass fresh=True.")


def submit(
    core: Core,
    cache: Cache,
    source: Rows | PredictionFile,
    submission: Submission,
    progress: bool | OnProgress | None = None,
) -> Steps[Json]:
    """Submits predictions inline, or by upload if they are large. Returns the job.

    Raises `ValidationFailed` with a file's lines, if the predictions are in one.
    """
    steps = _submit(core, cache, source, submission, progress)
    if isinstance(source, Rows):
        return (yield from steps)
    try:
        return (yield from steps)
    except ValidationFailed as error:
        failure = error
    places: dict[int, str] = yield Block(lambda: _places(source))
    raise _in_file(failure, source, places)


def _places(source: PredictionFile) -> dict[int, str]:
    """Returns each prediction's place in a file by its index; no places if it cannot be read."""
    try:
        text = read_file(source.path)
    except (AssayError, OSError):
        # The file was sent as it is, so its places are the platform's.
        return {}
    document = read_document(text, source.path.name, numbers=source.numbers)
    return {row.index: row.place for row in document if isinstance(row, Entry)}


def _in_file(
    error: ValidationFailed, source: PredictionFile, places: Mapping[int, str]
) -> ValidationFailed:
    """Returns an error with places in a file instead of places in the request."""
    of_predictions = ("predictions", "line ")
    if not any(found.field.startswith(of_predictions) for found in error.fields):
        return error
    fields: list[Json] = []
    for found in error.fields:
        if not found.field.startswith(of_predictions):
            fields.append(found._asdict())
            continue
        index = re.match(r"predictions\[(\d+)\]", found.field)
        place = found.field
        if index and int(index[1]) in places:
            place = places[int(index[1])] + place[index.end() :]
        text = describe(str(source.path), Problem(place, found.message))
        fields.append({"field": place, "reason": found.reason, "message": text})
    return ValidationFailed(
        error.code,
        "\n".join(str(one["message"]) for one in fields),
        status=error.status,
        request_id=error.request_id,
        details={**error.details, "fields": fields},
        retry_after=error.retry_after,
    )


def _submit(
    core: Core,
    cache: Cache,
    source: Rows | PredictionFile,
    submission: Submission,
    progress: bool | OnProgress | None = None,
) -> Steps[Json]:
    content: _Content
    if isinstance(source, PredictionFile):
        is_small = source.path.stat().st_size <= _INLINE_BYTES_MAX
        if source.content_encoding != "identity" or not is_small:
            content = _FileContent(source)
            return (yield from _submit_upload(core, cache, content, submission, progress))
    chunks = read_lines(source)
    head: list[bytes] = yield Block(lambda: _read_head(chunks, _room_for_predictions(submission)))
    lines = [line for chunk in head for line in chunk.splitlines() if line.strip()]
    if not lines:
        raise AssayError("There are no predictions.")
    n_bytes = sum(map(len, lines)) + len(lines)
    if n_bytes <= _room_for_predictions(submission):
        suite, items = submission.suite, submission.items
        if suite is not None and items is not None:
            yield Block(lambda: warn_of_mistakes([line + b"\n" for line in lines], items, suite))
        digest = yield Block(lambda: inline_digest(lines))
        content_parts = (b',"predictions":[', b",".join(lines), b"]")
        job = yield from create_job(core, submission, digest, content_parts)
        if items is not None:
            core.checked_jobs.add(job["id"])
        return job
    if isinstance(source, PredictionFile):
        content = _FileContent(source)
    elif source.is_replayable:
        content = _RowContent(None, source)
    else:
        content = _RowContent(chain(head, chunks))
    return (yield from _submit_upload(core, cache, content, submission, progress))


def _room_for_predictions(submission: Submission) -> int:
    return _INLINE_BYTES_MAX - len(encode_json(submission.fields())) - len(',"predictions":[]')


def _read_head(chunks: Iterator[bytes], n_bytes: int) -> list[bytes]:
    """Reads chunks until there are more than `n_bytes`, or none are left."""
    head: list[bytes] = []
    total = 0
    for chunk in chunks:
        head.append(chunk)
        total += len(chunk)
        if total > n_bytes:
            break
    return head


def inline_digest(lines: Iterable[bytes]) -> str:
    """Returns the predictions' SHA-256. White space and escapes do not change it."""
    digest = hashlib.sha256()
    for line in lines:
        try:
            row = json.loads(line)
            digest.update(encode_json([row["item_id"], row["prediction"]]) + b"\n")
        except (ValueError, KeyError, TypeError):
            # The server reports what is wrong with this line.
            digest.update(line + b"\n")
    return digest.hexdigest()


class _Content:
    """An upload's bytes as parts, and the digest over what was read so far."""

    content_type = "application/x-ndjson"
    content_encoding = "gzip"
    n_bytes: int | None = None
    is_replayable = True

    def __init__(self) -> None:
        self.digest = hashlib.sha256()

    @property
    def n_parts(self) -> int | None:
        return None if self.n_bytes is None else -(-self.n_bytes // _PART_BYTES)

    def parts(self) -> Iterator[bytes]:
        """Returns the parts from the first one on."""
        raise NotImplementedError


class _FileContent(_Content):
    """A file that is sent as it is."""

    def __init__(self, file: PredictionFile) -> None:
        super().__init__()
        self._path = file.path
        self.content_type = file.content_type
        self.content_encoding = file.content_encoding
        self.n_bytes = file.path.stat().st_size

    def parts(self) -> Iterator[bytes]:
        self.digest = hashlib.sha256(self.content_encoding.encode())
        with self._path.open("rb") as file:
            while part := file.read(_PART_BYTES):
                self.digest.update(part)
                yield part


class _RowContent(_Content):
    """Rows that are compressed as they are read."""

    def __init__(self, once: Iterator[bytes] | None, source: Rows | None = None) -> None:
        super().__init__()
        self._once = once
        self._source = source
        self.is_replayable = source is not None

    def parts(self) -> Iterator[bytes]:
        chunks = self._once if self._source is None else read_lines(self._source)
        assert chunks is not None
        writer = PartWriter()
        self.digest = writer.digest
        for chunk in chunks:
            yield from writer.add(chunk)
        yield from writer.finish()


class PartWriter:
    """Compresses NDJSON into equal parts. The same rows result in the same parts."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self._compressor = zlib.compressobj(_COMPRESSION_LEVEL, zlib.DEFLATED, _GZIP_FORMAT)
        self._buffer = bytearray()

    def add(self, chunk: bytes) -> Iterator[bytes]:
        """Adds lines. Returns the parts that are full."""
        self.digest.update(chunk)
        for start in range(0, len(chunk), _READ_BYTES):
            self._buffer += self._compressor.compress(chunk[start : start + _READ_BYTES])
            while len(self._buffer) >= _PART_BYTES:
                yield self._take(_PART_BYTES)

    def add_row(self, item_id: str, prediction: Any) -> list[bytes]:
        """Adds one prediction. Returns the parts that are full."""
        return list(self.add(prediction_line((item_id, prediction))))

    def finish(self) -> Iterator[bytes]:
        """Returns the remaining parts."""
        self._buffer += self._compressor.flush()
        while self._buffer:
            yield self._take(_PART_BYTES)

    def _take(self, n_bytes: int) -> bytes:
        with memoryview(self._buffer) as view:
            part = bytes(view[:n_bytes])
        del self._buffer[:n_bytes]
        return part


@dataclass
class _Target:
    """The upload that parts are sent to."""

    upload_id: str
    received: dict[int, str] = field(default_factory=dict[int, str])
    """The SHA-256 of each part that the server has, by number."""
    is_ready: bool = False


def _submit_upload(
    core: Core,
    cache: Cache,
    content: _Content,
    submission: Submission,
    progress: bool | OnProgress | None,
) -> Steps[Json]:
    upload_id = yield from upload(core, cache, content, progress)
    # Another upload with the same content has the same key: the server compares contents.
    reference = (b',"input_ref":', encode_json(upload_id))
    digest = content.digest.hexdigest()
    return (yield from create_job(core, submission, digest, reference))


def upload(
    core: Core, cache: Cache, content: _Content, progress: bool | OnProgress | None
) -> Steps[str]:
    """Uploads a content, or continues its earlier upload. Returns its id.

    Raises `ValidationFailed` if the content is not valid, and `AssayError` if it arrived damaged.
    """
    meter = UploadMeter(progress, content.n_parts)
    parts = content.parts()
    first: bytes = yield Block(lambda: next(parts, b""))
    if not first:
        raise AssayError("There are no predictions.")
    # The first part identifies the content; the others' digests are compared one by one.
    identity = (content.content_encoding, str(content.n_bytes), hashlib.sha256(first).hexdigest())
    state = cache.upload_state(*identity)
    target = yield from _find_target(core, state)
    if target is not None and target.is_ready:
        known = target.received
        if content.is_replayable and (yield Block(lambda: _is_same(content, known))):
            logger.info("%s has the same content, nothing is sent", target.upload_id)
            return target.upload_id
        target = None
        if content.is_replayable:
            parts = content.parts()
            first = yield Block(lambda: next(parts, b""))
    if target is None:
        target = yield from _create_target(core, content, state)
    elif target.received:
        meter.resumed(target.upload_id, len(target.received))
        logger.info("resuming %s with %d parts", target.upload_id, len(target.received))
    sent = _Counter()
    upload_id, received = target.upload_id, target.received
    yield Parallel(
        (
            send_part(core, upload_id, number, part, meter, received.get(number))
            for number, part in sent.count(chain((first,), parts))
        ),
        CONCURRENT_PARTS,
    )
    if any(number > sent.value for number in received):
        # An earlier content with the same beginning was longer.
        yield from _discard(core, state, upload_id)
        raise AssayError("The predictions have changed since the upload began. Submit them again.")
    try:
        yield from complete(core, upload_id)
    except ValidationFailed:
        state.delete()
        raise
    return upload_id


class _Counter:
    """Numbers elements from 1 and keeps the last number."""

    value = 0

    def count(self, elements: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        for element in elements:
            self.value += 1
            yield self.value, element


def _is_same(content: _Content, received: Mapping[int, str]) -> bool:
    """Returns whether a content has exactly these parts. Reads it completely."""
    number = 0
    for number, part in enumerate(content.parts(), 1):
        if hashlib.sha256(part).hexdigest() != received.get(number):
            return False
    return number == len(received)


def _find_target(core: Core, state: UploadState) -> Steps[_Target | None]:
    upload_id: str | None = yield Block(state.load)
    if upload_id is None:
        return None
    try:
        reply = yield from core.call("getUpload", path={"upload_id": upload_id})
    except NotFound:
        return None
    found = reply.decode(models.Upload.from_dict)
    if found.status not in ("pending", "ready"):
        return None
    received = {part.number: part.sha256 for part in found.parts}
    return _Target(upload_id, received, found.status == "ready")


def _create_target(core: Core, content: _Content, state: UploadState) -> Steps[_Target]:
    body = without_none(
        kind="predictions",
        content_type=content.content_type,
        content_encoding=content.content_encoding,
        bytes=content.n_bytes,
    )
    upload_id = yield from create_upload(core, body)
    yield Block(lambda: state.save(upload_id))
    return _Target(upload_id)


def create_upload(core: Core, body: Json) -> Steps[str]:
    """Creates an upload and returns its id.

    After an unknown outcome it creates another one: an upload without parts expires by itself.
    """
    may_repeat = RETRIES["upload"]["recreate_after_unknown_outcome"]
    retries = core.policy.max_retries if may_repeat else 0
    for remaining in range(retries, -1, -1):
        try:
            reply = yield from core.call("createUpload", body=body)
        except (ConnectionFailed, Internal):
            if not remaining:
                raise
        else:
            return reply.decode(models.Upload.from_dict).id
    raise AssertionError("the last attempt returns or raises")


def send_part(
    core: Core,
    upload_id: str,
    number: int,
    part: bytes,
    meter: UploadMeter | None = None,
    received: str | None = None,
) -> Steps[None]:
    """Sends one part, unless the server has received it with the same SHA-256 already."""
    if not isinstance(part, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AssayError(f"`content` must be bytes, not {kind_of(part)}.")
    digest: str = yield Block(lambda: hashlib.sha256(part).hexdigest())
    if received != digest:
        reply = yield from core.call(
            "putUploadPart",
            path={"upload_id": upload_id, "number": str(number)},
            body=part,
            headers={"Content-Type": "application/octet-stream"},
        )
        if reply.decode(models.UploadPart.from_dict).sha256 != digest:
            raise AssayError(f"Part {number} of {upload_id} arrived damaged. Submit again.")
    if meter is not None:
        meter.add(len(part), was_sent=received != digest)


def complete(core: Core, upload_id: str) -> Steps[None]:
    """Completes an upload. Raises an exception unless it is ready afterwards."""
    reply = yield from core.call("completeUpload", path={"upload_id": upload_id})
    found = reply.decode(models.Upload.from_dict)
    if found.status != "ready":
        reason = f"{found.error.code}: {found.error.message}" if found.error else "unknown reason"
        raise AssayError(f"{upload_id} is {found.status}: {reason}")


def _discard(core: Core, state: UploadState, upload_id: str) -> Steps[None]:
    yield Block(state.delete)
    yield from delete_upload(core, upload_id)


def delete_upload(core: Core, upload_id: str) -> Steps[None]:
    """Deletes an upload, best effort: otherwise it expires by itself."""
    try:
        yield from core.call("deleteUpload", path={"upload_id": upload_id})
    except (NotFound, InvalidState, ConnectionFailed) as error:
        logger.info("%s was not deleted: %s", upload_id, error)
