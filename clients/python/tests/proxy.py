"""A proxy that cuts connections at chosen points in HTTP/1.1 exchanges."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

Cut = Literal["before_body", "after_request", "after_headers"]
"""`before_body`: half of the request body is forwarded. `after_request`: the server has processed
the request, and the client gets nothing. `after_headers`: the client gets the headers only."""


@dataclass
class Exchange:
    """A request that passes the proxy."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class CuttingProxy:
    """Forwards to an installation. `decide` chooses which exchanges are cut."""

    upstream: str
    decide: Callable[[Exchange], Cut | None] = lambda _: None
    cuts: list[str] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> CuttingProxy:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        started = asyncio.run_coroutine_threadsafe(self._start(), self._loop)
        self.url = f"http://127.0.0.1:{started.result()}"
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = urlsplit(self.upstream)
        up_reader, up_writer = await asyncio.open_connection(address.hostname, address.port)
        try:
            while await self._exchange(reader, writer, up_reader, up_writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            up_writer.close()

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        up_reader: asyncio.StreamReader,
        up_writer: asyncio.StreamWriter,
    ) -> bool:
        """Forwards one request and its response. Returns False if the connection is cut."""
        head = await reader.readuntil(b"\r\n\r\n")
        exchange = parse_head(head)
        cut = self.decide(exchange)
        if cut:
            self.cuts.append(f"{cut} {exchange.method} {exchange.path}")
        up_writer.write(head)
        length = int(exchange.headers.get("content-length", 0))
        if cut == "before_body":
            up_writer.write(await reader.readexactly(length // 2))
            await up_writer.drain()
            return False
        await copy(reader, up_writer, length)
        response = await up_reader.readuntil(b"\r\n\r\n")
        fields = parse_head(response).headers
        body = await read_body(up_reader, fields, exchange.method, response)
        if cut == "after_request":
            return False
        writer.write(response)
        if cut == "after_headers":
            await writer.drain()
            return False
        writer.write(body)
        await writer.drain()
        return True


def parse_head(head: bytes) -> Exchange:
    first, *rest = head.decode("latin-1").split("\r\n")
    method, path, *_ = [*first.split(" "), "", ""]
    pairs = (line.split(":", 1) for line in rest if ":" in line)
    return Exchange(method, path, {name.lower(): value.strip() for name, value in pairs})


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, length: int) -> None:
    while length:
        chunk = await reader.read(min(length, 1 << 16))
        if not chunk:
            raise asyncio.IncompleteReadError(b"", length)
        writer.write(chunk)
        await writer.drain()
        length -= len(chunk)


async def read_body(
    reader: asyncio.StreamReader, headers: dict[str, str], method: str, head: bytes
) -> bytes:
    if method == "HEAD" or head.split(b" ", 2)[1] in (b"204", b"304"):
        return b""
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            line = await reader.readline()
            chunk = await reader.readexactly(int(line, 16) + 2)
            body += line + chunk
            if line.strip() == b"0":
                return body
    return await reader.readexactly(int(headers.get("content-length", 0)))
