"""Hostile arguments and hostile responses: every exception is an `AssayError` without credentials.

`ASSAY_FUZZ_ROUNDS` is the round count, `ASSAY_FUZZ_SEED` the seed, and `ASSAY_FUZZ_ONLY` one
round to repeat: a failure prints them.
"""

from __future__ import annotations

import asyncio
import decimal
import gzip
import inspect
import json
import logging
import math
import os
import random
import socketserver
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timezone
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import assay_client as assay
from assay_client._tables import OPERATIONS

ROUNDS = int(os.environ.get("ASSAY_FUZZ_ROUNDS", "400"))
SEED = int(os.environ.get("ASSAY_FUZZ_SEED", "20261128"))
ONLY = os.environ.get("ASSAY_FUZZ_ONLY")
KEY = "svc_live_Zq7c0KvT9mWx3uNe5RyB1dLs"
# A server that never lets a client finish would keep it busy for ever.
REQUESTS_MAX = 40


class UserError(Exception):
    """What the user's functions raise."""


# ------------------------------------------------------------------------------------- responses


class Server(socketserver.ThreadingTCPServer):
    """Responds with the bytes that `script` returns for a method and a path."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: Callable[[str, str], bytes] = lambda method, path: b""
        self.n_requests = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # The client has ended the connection.


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        method, path, *_ = [*self.rfile.readline().decode("latin-1").split(" "), "", ""]
        length = 0
        while (line := self.rfile.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        self.rfile.read(length)
        self.server.n_requests += 1
        if self.server.n_requests <= REQUESTS_MAX:
            self.wfile.write(self.server.script(method, path))


def respond(status: int, body: bytes, headers: list[tuple[str, str]] | None = None) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers or []]
    return "\r\n".join(lines).encode("utf-8") + b"\r\n\r\n" + body


def examples_of(openapi: Mapping[str, Any]) -> dict[str, Any]:
    """Returns each operation's example for a successful response."""
    found: dict[str, Any] = {}
    for methods in openapi["paths"].values():
        for operation in methods.values():
            for status, response in operation["responses"].items():
                content = response.get("content", {}).get("application/json", {})
                example = content.get("example")
                if example is None and content.get("examples"):
                    example = next(iter(content["examples"].values()))["value"]
                if status.startswith("2") and example is not None:
                    found[operation["operationId"]] = example
    return found


JSON_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 10**30, "", "x", "\ud800", KEY, "9999-99-99T99:99:99Z"),
    *([], {}, [[]], [None], {"": None}, "0001-01-01T00:00:00+23:59", "queued", "failed", 1e308),
    *({"code": KEY, "message": KEY}, {"error": 5}, [1, 2, 3], -(10**400), "\0", "a" * 3000),
]
HEADERS: list[tuple[str, list[str]]] = [
    ("Retry-After", ["-5", "NaN", "inf", "1e999", "9" * 400, "soon", "", "0", "0.001", KEY]),
    ("X-RateLimit-Limit", ["60", "x", "-1", "9" * 5000]),
    ("X-RateLimit-Remaining", ["0", "0", "-1", "NaN", "0, 0", "٣"]),
    ("X-RateLimit-Reset", ["0", "NaN", "inf", "-inf", "1e400", "9" * 30, "x"]),
    ("Date", ["x", "Thu, 99 Foo 99999 99:99:99 GMT", "Mon, 01 Jan 0001 00:00:00 +9999", ""]),
    ("X-Request-Id", [KEY, "é", "", "req_1"]),
    ("X-Key-Expires-At", [KEY, "soon"]),
    ("Location", [f"https://u:{KEY}@h/{KEY}", "http://[::1", "/v1/me", "//", KEY]),
    ("Content-Range", ["bytes 0-1/2", "bytes */x", "/-1", "bytes 0-0/99999999999999999999", KEY]),
    ("Content-Type", ["text/html", "application/json; charset=x", "text/event-stream"]),
    ("Content-Encoding", ["gzip", "br", "zstd", "x"]),
    ("Set-Cookie", [f"session={KEY}; Domain=..", "="]),
    ("Transfer-Encoding", ["chunked", "gzip"]),
    ("Content-Length", ["5", "-1", "x"]),
    ("WWW-Authenticate", [f"Bearer {KEY}"]),
]
STATUSES = [101, 199, 200, 201, 202, 204, 205, 206, 226, 299, 300, 301, 302, 303, 304, 307, 308]
STATUSES += [400, 401, 402, 403, 404, 405, 407, 409, 413, 415, 422, 429, 431, 499, 500, 501, 502]
STATUSES += [503, 504, 511, 599, 600, 999]


def mutated(chance: random.Random, value: Any) -> Any:
    """Returns a JSON value in which one part is another one, or absent."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        name = chance.choice(list(value))
        if chance.random() < 0.15:
            return {key: part for key, part in value.items() if key != name}
        return {**value, name: mutated(chance, value[name])}
    if isinstance(value, list) and value and chance.random() < 0.8:
        return [mutated(chance, value[0]), *value[1:]]
    return chance.choice(JSON_VALUES)


def hostile_bytes(chance: random.Random, body: bytes) -> bytes:
    return chance.choice(
        [
            lambda: body[: chance.randrange(len(body) + 1)],
            lambda: body + body,
            lambda: b"",
            lambda: b"<html>" + KEY.encode(),
            lambda: b"[" * 100_000,
            lambda: b'{"a":' * 30_000,
            lambda: b"9" * 6000,
            lambda: b'{"id": NaN}',
            lambda: b"\xff\xfe\x00\xd8",
            lambda: body.decode().encode("utf-16"),
            lambda: b"null",
            lambda: gzip.compress(body)[:-3],
            lambda: b"data: " + body + b"\n\nevent: error\ndata: [1]\n\n",
            lambda: b"data: {\n\n",
            lambda: b"event: error\ndata: " + KEY.encode() + b"\n\n",
            lambda: bytes(chance.randrange(256) for _ in range(30)),
        ]
    )()


def hostile_response(chance: random.Random, example: Any) -> bytes:
    """Returns a response: mostly in the right form with one wrong part, else anything."""
    kind = chance.random()
    if kind < 0.03:
        garbage = [b"", b"SSH-2.0-x\r\n", b"HTTP/9.9 abc\r\n\r\n", b"HTTP/1.1 200", b"\0" * 50]
        garbage += [b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A" * 70_000]
        garbage += [b"HTTP/1.1 100 Continue\r\n\r\n" * 3, b"HTTP/1.1 -1 X\r\n\r\n"]
        return chance.choice(garbage)
    status = 200
    body = json.dumps(example).encode()
    if kind < 0.25:
        body = json.dumps(mutated(chance, example)).encode()
    elif kind < 0.35:
        body = hostile_bytes(chance, body)
    elif kind < 0.6:
        status = chance.choice(STATUSES)
        code = chance.choice(["rate_limited", "quota_exceeded", "validation_failed", KEY, "x"])
        details = {"limit": "concurrent_jobs", "max": 1, "fields": [{"field": KEY}], "url": KEY}
        details["resets_at"] = "2026-01-01T00:00:00Z"
        error = {"error": {"code": code, "message": f"bad {KEY}", "details": details}}
        body = json.dumps(mutated(chance, error) if chance.random() < 0.7 else error).encode()
        if chance.random() < 0.2:
            body = hostile_bytes(chance, body)
    names = chance.sample(HEADERS, chance.choice([0, 0, 1, 3, 6]))
    headers = [(name, chance.choice(values)) for name, values in names]
    if headers and chance.random() < 0.3:
        headers += headers
    return respond(status, body, headers)


# ------------------------------------------------------------------------------------- arguments


class Raising:
    """An object whose methods all raise an exception."""

    def _fail(self, *_: Any) -> Any:
        raise ZeroDivisionError("hostile")

    __len__ = __iter__ = __getitem__ = __str__ = __repr__ = __bool__ = __index__ = _fail
    __float__ = __int__ = __fspath__ = __contains__ = __hash__ = __eq__ = _fail  # type: ignore[assignment]


class RaisingAttributes:
    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


class Lying:
    """An object that has every attribute."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


class Endless(Mapping[str, Any]):
    def __len__(self) -> int:
        return -1

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])


class OddText(str):
    def encode(self, *_: Any, **__: Any) -> bytes:
        raise ZeroDivisionError("hostile")


def recursive() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def nested(depth: int) -> Any:
    made: Any = "x"
    for _ in range(depth):
        made = [made]
    return made


def failing() -> Iterator[Any]:
    yield ("a", ["x"])
    raise UserError("the iterator of the user")


MATRIX = np.array([[0.25, 0.75], [0.5, 0.5]])
VALUES: list[Callable[[], Any]] = [
    *(lambda: None, lambda: True, lambda: 0, lambda: -1, lambda: 3, lambda: 10**400),
    *(lambda: math.nan, lambda: math.inf, lambda: -0.0, lambda: 1.5, lambda: 1 + 2j),
    *(lambda: "", lambda: " ", lambda: "x", lambda: "\udc80", lambda: "\0", lambda: "é\r\nA: b"),
    *(lambda: "..", lambda: "a" * 70_000, lambda: b"", lambda: b"\xff", lambda: bytearray(b"a")),
    *(list, dict, lambda: set(), lambda: {"a"}, lambda: (), lambda: ("a", "b", "c")),
    *(lambda: [1, "a", None], lambda: {1: 1, "1": 2}, lambda: {"a": math.nan}, lambda: {None: 1}),
    *(lambda: {"a": ["x"], "b": ["y"]}, lambda: [("a", 1.5), ("b", 2)], lambda: ["a", "b"]),
    *(lambda: {"a": {"x": 0.5, "y": decimal.Decimal("0.5")}}, lambda: {"a": "\ud800"}),
    *(lambda: recursive(), lambda: nested(5), lambda: nested(20_000), lambda: {"a": nested(3000)}),
    *(lambda: [("a", value()) for value in VALUES[:30]], lambda: failing(), lambda: iter([])),
    *(
        lambda: (x for x in [("a", ["x"]), ("b", 3, 4)]),
        lambda: iter([("a", "x")]),
        lambda: range(5),
    ),
    *(
        lambda: decimal.Decimal("1.5"),
        lambda: decimal.Decimal("sNaN"),
        lambda: decimal.Decimal("1e999"),
    ),
    *(lambda: object(), lambda: Raising(), lambda: RaisingAttributes(), lambda: Lying()),
    *(lambda: Endless(), lambda: OddText("x"), lambda: [Raising()], lambda: {"a": Raising()}),
    *(lambda: [("a", Lying())], lambda: [(Raising(), 1)], lambda: Exception("x"), lambda: int),
    *(lambda: datetime.min, lambda: datetime.max, lambda: datetime.now(timezone.utc)),
    *(lambda: date(1, 1, 1), lambda: slice(0, 2), lambda: slice("a", None), lambda: len),
    *(lambda: np.int64(3), lambda: np.float64("nan"), lambda: np.bool_(True), lambda: np.str_("a")),
    *(lambda: np.array(["a", "b"]), lambda: np.array([1.5, math.nan]), lambda: MATRIX),
    *(lambda: np.zeros((2, 2, 2)), lambda: np.array(5), lambda: np.array([object()])),
    *(
        lambda: np.datetime64("NaT"),
        lambda: np.array([b"a"]),
        lambda: np.zeros(0),
        lambda: np.ma.masked,
    ),
    *(
        lambda: pd.NA,
        lambda: pd.NaT,
        lambda: pd.Timestamp.max,
        lambda: pd.Series([1.5, None], ["a", "b"]),
    ),
    *(lambda: pd.Series({("a", 1): 2}), lambda: pd.Index(["a", "b"]), lambda: pd.DataFrame()),
    lambda: pd.DataFrame({"item_id": ["a", "b"], "prediction": [1.0, None]}),
    lambda: pd.DataFrame({"item_id": ["a", None], "prediction": [["x"], {"x": pd.NA}]}),
    lambda: pd.DataFrame({"item_id": ["a", "b"], "x": [0.5, 0.5], "y": [0.5, math.nan]}),
    lambda: pd.DataFrame([["a", 1, 2]], columns=["item_id", "prediction", "prediction"]),
    lambda: pd.DataFrame(
        {"prediction": ["x", "y"]}, index=pd.MultiIndex.from_tuples([(1, 2), (3, 4)])
    ),
    lambda: pd.DataFrame(
        {"item_id": pd.Categorical(["a", "b"]), "prediction": pd.array([1, None])}
    ),
    lambda: pd.DataFrame({"item_id": ["a"], "prediction": [pd.Timestamp("2026-01-01")]}),
    *(
        lambda: pl.DataFrame(),
        lambda: pl.Series([1.5, None]),
        lambda: pl.lit(1),
        lambda: pl.col("a"),
    ),
    lambda: pl.DataFrame({"item_id": ["a", "b"], "prediction": [math.nan, None]}),
    lambda: pl.DataFrame({"item_id": ["a", None], "prediction": [[1], None]}),
    lambda: pl.DataFrame({"item_id": ["a", "a"], "x": [0.5, None], "y": [1, 0]}),
    lambda: pl.DataFrame({"item_id": ["a"], "prediction": [object()]}),
    lambda: pl.LazyFrame({"item_id": ["a"], "prediction": [1]}).select(pl.col("none")),
    lambda: pa.table(
        {"item_id": ["a", "b"], "prediction": pa.array([decimal.Decimal("1.5"), None])}
    ),
    lambda: pa.table({"item_id": [1, 2], "prediction": ["x", "y"]}),
    lambda: pa.table(
        {
            "item_id": ["a"],
            "prediction": pa.array([[("x", 0.5), ("x", 0.5)]], pa.map_(pa.string(), pa.float64())),
        }
    ),
    *(lambda: pa.array([1, None]), lambda: pa.scalar(1.5), lambda: pa.record_batch({"a": [1]})),
    lambda: [{"item_id": "a", "prediction": ["x"]}, {"item_id": "a"}],
    lambda: [{"item_id": "a", "answer": ["x"]}, {"item_id": "b", "answer": {"x": 1}}],
]


def write_files(folder: Path) -> list[Path]:
    """Writes all sorts of files, mostly broken."""
    lines = b'{"item_id":"a","prediction":["x"]}\n{"item_id":"b","prediction":"y"}\n'
    table = pa.table({"item_id": ["a", "b"], "prediction": ["x", "y"]})
    parquet.write_table(table, folder / "good.parquet")
    whole = (folder / "good.parquet").read_bytes()
    wide = pa.table({"item_id": ["a", "b"], "x": [0.5, None], "y": [0.5, 1.0]})
    parquet.write_table(wide, folder / "wide.parquet")
    contents = {
        "good.ndjson": lines,
        "cut.ndjson": lines[:-20],
        "cut.parquet": whole[:-30],
        "magic.parquet": b"PAR1",
        "array.json": b'[{"item_id":"a","prediction":1},',
        "lines.json": lines,
        "cr.csv": b"item_id,prediction\ra,x\rb,y\r",
        "cr.ndjson": lines.replace(b"\n", b"\r"),
        "utf16.csv": "item_id,prediction\na,é\n".encode("utf-16"),
        "cp1252.csv": "item_id,prediction\na,é\n".encode("cp1252"),
        "wide.csv": b"item_id,prediction\na," + b"x" * 150_000 + b"\n",
        "quote.csv": b'item_id,prediction\na,"x\n',
        "empty.ndjson": b"",
        "nul.csv": b"\0" * 100,
        "cut.gz": gzip.compress(lines * 50)[:-10],
        "garbage.gz": b"\x1f\x8b" + b"x" * 50,
        "good.zst": pa.compress(lines, "zstd", asbytes=True),
        "garbage.zst": b"\x28\xb5\x2f\xfd" + b"x" * 50,
        "skippable.zst": b"\x50\x2a\x4d\x18\xff\xff\xff\xff",
        "object.pkl": b"\x80\x04cos\nsystem\n",
        "array.npy": b"\x93NUMPY\x01\x00",
        "deep.ndjson": b'{"item_id":"a","prediction":' + b"[" * 100_000 + b"\n",
        "numbers.json": b'[{"item_id":"a","prediction":' + b"9" * 5000 + b"}]",
        "nan.ndjson": b'{"item_id":"a","prediction":NaN}\n',
        "surrogate.ndjson": b'{"item_id":"\\ud800","prediction":1}\n',
        "random.bin": random.Random(1).randbytes(500),
        "suite.toml": b"metric = [[[",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    os.mkfifo(folder / "pipe.ndjson")
    paths = [*folder.iterdir(), folder, folder / "none", folder / ("n" * 5000), Path("/dev/null")]
    return [*paths, Path(os.fsdecode(b"/\xff"))]


PLAUSIBLE: dict[str, list[Callable[[], Any]]] = {
    "timeout": [lambda: 0, lambda: 0.001],
    "path": [lambda: "/v1/me", lambda: "/v1/jobs?limit=1", lambda: "me", lambda: "//x"],
    "method": [lambda: "GET", lambda: "post", lambda: "G T", lambda: "É"],
    "metric": [lambda: "accuracy", lambda: "log_loss", lambda: "ndcg@10", lambda: "none"],
    "on_error": [lambda: "skip", lambda: "raise"],
    "profile": [lambda: None],
    "follow": [lambda: False],
}


def raise_user_error(*_: Any) -> Any:
    raise UserError("the function of the user")


async def raise_async(_: Any) -> Any:
    raise UserError("the function of the user")


FUNCTIONS: list[Callable[[], Any]] = [
    *(lambda: lambda question: ["ramen"], lambda: lambda question: math.nan, lambda: len),
    *(lambda: lambda question: Raising(), lambda: lambda question: MATRIX, lambda: raise_async),
    *(lambda: raise_user_error, lambda: lambda question: iter(["x"]), lambda: dict, lambda: 5),
    *(lambda: lambda questions: [["x"] for _ in questions], lambda: Lying(), lambda: Raising()),
]


class Round:
    """One call to a public function with chosen arguments and responses."""

    def __init__(self, number: int, server: Server, files: list[Path], examples: dict[str, Any]):
        self.number = number
        self.chance = random.Random(f"{SEED}-{number}")
        self.server = server
        self.files = files
        self.examples = examples
        self.is_hostile_server = self.chance.random() < 0.5
        self.call = ""
        server.n_requests = 0
        server.script = self.respond

    def respond(self, method: str, path: str) -> bytes:
        from assay_client._raw import operation_of

        operation = operation_of(method, path.split("?")[0])
        example = self.examples.get(operation, {})
        if operation in ("getSuite", "listSuites", "listSuiteItems") and self.chance.random() < 0.5:
            return respond(200, json.dumps(example).encode())
        if self.is_hostile_server:
            return hostile_response(self.chance, example)
        return respond(200, json.dumps(example).encode())

    def value(self, name: str) -> Any:
        """Returns an argument: in the usual form or, often, a hostile one."""
        if name in ("predict", "on_update") and self.chance.random() < 0.9:
            return self.chance.choice(FUNCTIONS)()
        if name in PLAUSIBLE and self.chance.random() < 0.5:
            return self.chance.choice(PLAUSIBLE[name])()
        if name in ("predictions", "answers", "rankings", "path") and self.chance.random() < 0.3:
            return self.chance.choice(self.files)
        if name.endswith("_id") and self.chance.random() < 0.6:
            return "suite:lunch"
        return self.chance.choice(VALUES)()

    def arguments(self, function: Callable[..., Any]) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                for option in ("label", "batch_size", "max_concurrency", "on_error", "cache"):
                    if self.chance.random() < 0.2:
                        named[option] = self.value(option)
            elif parameter.name in ("wait_for_slot", "follow", "client"):
                continue
            elif (
                parameter.kind is parameter.KEYWORD_ONLY or parameter.default is not parameter.empty
            ):
                if self.chance.random() < 0.4 or parameter.default is parameter.empty:
                    named[parameter.name] = self.value(parameter.name)
            else:
                positional.append(self.value(parameter.name))
        return positional, named

    def targets(self, client: Any, connection: Any) -> list[tuple[str, Callable[..., Any]]]:
        """Returns the public functions, with response objects' methods."""
        suite = connection.suite(self.examples["getSuite"])
        metric = self.chance.choice(["accuracy", "log_loss", "rmse", "ndcg@10", "exact_match"])
        object.__setattr__(suite, "metric", metric)
        job = connection.job(self.examples["getJob"])
        owners = [client, suite, job, suite, client, suite]
        owners += [value for value in vars(client).values() if hasattr(value, "_pages")]
        owner = self.chance.choice(owners)
        skipped = ("close", "raise_if_worse", "to_dict", "from_dict")
        names = [name for name in dir(owner) if name[0] != "_" and name not in skipped]
        functions = [(f"{type(owner).__name__}.{name}", getattr(owner, name)) for name in names]
        return [(name, function) for name, function in functions if inspect.ismethod(function)]


def use(result: Any) -> None:
    """Uses what a call has returned, as callers do."""
    str(result), repr(result)
    if hasattr(result, "_repr_html_"):
        result._repr_html_()
    for name in ("first", "all", "to_polars", "to_pandas", "to_arrow", "ids"):
        if hasattr(result, name) and not isinstance(result, (assay.Job, assay.Suite)):
            getattr(result, name)()
    if hasattr(result, "rate_limit"):
        str(result.rate_limit)
        result.json()
    if isinstance(result, (assay.Pages, assay.Items)) or inspect.isgenerator(result):
        for entry in islice(result, 5):
            str(entry), repr(entry)
    if hasattr(result, "job_id") is False and type(result).__name__ == "Output":
        list(islice(result, 5))


async def use_async(result: Any) -> None:
    if inspect.isawaitable(result):
        result = await result
    str(result), repr(result)
    if hasattr(result, "__aiter__"):
        n = 0
        async for entry in result:
            str(entry), repr(entry)
            n += 1
            if n == 5:
                break


def texts_of(error: BaseException) -> Iterator[str]:
    """Returns every text in an exception and the ones it names."""
    yield "".join(traceback.format_exception(error))
    seen: list[BaseException] = []
    queue: list[BaseException | None] = [error]
    while queue:
        found = queue.pop()
        if found is None or any(found is one for one in seen):
            continue
        seen.append(found)
        yield from (str(found), repr(found), repr(found.args))
        queue += [found.__cause__, found.__context__]
    for name in ("message", "details", "fields", "limit", "max", "resets_at", "url", "request_id"):
        yield repr(getattr(error, name, None))


class Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        # The HTTP library logs the response headers, in which this server repeats the key.
        if (
            record.name.startswith(("assay_client", "httpx2"))
            or "receive_response" not in record.msg
        ):
            self.texts += [record.getMessage(), repr(record.args)]


def run_round(round: Round, folder: Path, records: Records) -> None:
    """Makes one call. Raises what no caller may see."""
    records.texts.clear()
    texts: list[str] = []
    is_async = round.chance.random() < 0.2
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            if round.chance.random() < 0.1:
                call_function(round, folder)
            elif is_async:
                asyncio.run(call_async(round, folder))
            else:
                call_method(round, folder)
        except assay.AssayError as error:
            texts += texts_of(error)
            texts.append(str(error).encode().decode())  # It can be printed.
        except UserError:
            pass
    texts += [str(warning.message) for warning in warned] + records.texts
    assert not [text for text in texts if KEY in text], "the credential is in a text"


def call_method(round: Round, folder: Path) -> None:
    with assay.Assay(KEY, round.server.url, cache=cache_of(round, folder), max_retries=1) as client:
        name, function = round.chance.choice(round.targets(client, client._connection))
        round.call = name
        positional, named = round.arguments(function)
        result = function(*positional, **named)
        if name.endswith(".upload"):
            with result as stream:
                for _ in range(3):
                    stream.add(round.value("x"), round.value("x"))
        use(result)


async def call_async(round: Round, folder: Path) -> None:
    cache = cache_of(round, folder)
    async with assay.AsyncAssay(KEY, round.server.url, cache=cache, max_retries=1) as client:
        name, function = round.chance.choice(round.targets(client, client._connection))
        round.call = name
        positional, named = round.arguments(function)
        await use_async(function(*positional, **named))


def call_function(round: Round, folder: Path) -> None:
    """Calls a module function, a constructor or a result's method."""
    comparison = assay.Comparison.from_dict(round.examples["createComparison"])
    functions: list[Callable[..., Any]] = [
        *(assay.score, assay.score, assay.Assay, assay.AsyncAssay),
        *(comparison.raise_if_worse, comparison.not_worse),
        assay.evaluate,
    ]
    function = round.chance.choice(functions)
    round.call = function.__name__
    positional, named = round.arguments(function)
    # A caller's client is used as it is.
    named.pop("http_client", None)
    if function is assay.score and round.chance.random() < 0.7:
        named["metric"] = "accuracy"
    result = function(*positional, **named)
    if isinstance(result, assay.Assay):
        named.pop("http_client", None)
        str(result)


def cache_of(round: Round, folder: Path) -> Any:
    if round.chance.random() < 0.8:
        return False
    return folder / round.chance.choice(["cache", "good.ndjson", "none"])


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


def test_no_call_raises_another_exception_or_shows_the_key(
    server: Server,
    openapi: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def sleep(seconds: float) -> None:
        assert 0 <= seconds <= 120, f"a sleep of {seconds} s"

    async def sleep_async(seconds: float) -> None:
        sleep(seconds)

    monkeypatch.setattr("assay_client._sync_runner.time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr("assay_client._async_runner.asyncio.sleep", sleep_async)
    monkeypatch.setenv("ASSAY_API_KEY", KEY)
    monkeypatch.setenv("ASSAY_BASE_URL", server.url)
    monkeypatch.setenv("ASSAY_CACHE", str(tmp_path / "own-cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "files"
    folder.mkdir()
    files = write_files(folder)
    examples = examples_of(openapi)
    assert len(examples) > len(OPERATIONS) / 2
    records = Records()
    root = logging.getLogger()
    level = root.level
    root.addHandler(records)
    root.setLevel(logging.DEBUG)
    try:
        for number in [int(ONLY)] if ONLY else range(ROUNDS):
            round = Round(number, server, files, examples)
            try:
                run_round(round, folder, records)
            except (Exception, pytest.fail.Exception) as error:
                raise AssertionError(
                    f"{round.call}: repeat with ASSAY_FUZZ_SEED={SEED} ASSAY_FUZZ_ONLY={number}"
                ) from error
    finally:
        root.removeHandler(records)
        root.setLevel(level)
    written = capsys.readouterr()
    assert KEY not in written.out + written.err
