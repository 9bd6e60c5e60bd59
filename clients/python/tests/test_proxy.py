"""The environment's proxy, and the addresses that use none."""

from __future__ import annotations

import asyncio
import os
import socketserver
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator

import pytest

import assay_client as assay
from assay_client._proxy import excludes, proxy_for

PASSWORD = "pr0xy-Passw0rd"
ADDRESS = "https://assay.example:8443"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("no_proxy", "host", "expected"),
    [
        ("*", "assay.example", True),
        ("other, *", "assay.example", True),
        ("assay.example", "assay.example", True),
        ("assay.example", "eu.assay.example", True),
        ("assay.example", "notassay.example", False),
        (".assay.example", "eu.assay.example", True),
        (".assay.example", "assay.example", True),
        ("*.assay.example", "eu.assay.example", True),
        ("Assay.EXAMPLE", "assay.example", True),
        ("assay.example.", "assay.example", True),
        ("other.example assay.example", "assay.example", True),
        ("assay.example:8443", "assay.example", True),
        ("assay.example:443", "assay.example", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.0/23", "10.1.3.255", True),
        ("10.0.0.0/8", "10.example", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.30", False),
        ("10.1.2.3:8443", "10.1.2.3", True),
        ("10.1.2.3:1", "10.1.2.3", False),
        ("::1", "::1", True),
        ("[::1]", "::1", True),
        ("[::1]:8443", "::1", True),
        ("[::1]:1", "::1", False),
        ("fd00::/8", "fd12::1", True),
        ("fd00::/8", "fe80::1", False),
        ("fd00::/8", "10.1.2.3", False),
        ("localhost", "localhost", True),
        ("localhost", "127.0.0.1", False),
        ("", "assay.example", False),
        (", ,", "assay.example", False),
        ("10.0.0.0/99,[::1,:80,/,.", "assay.example", False),
    ],
)
def test_no_proxy_excludes_hosts(no_proxy: str, host: str, expected: bool) -> None:
    assert excludes(no_proxy, host, 8443) is expected


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ({"https_proxy": "p:3128"}, "http://p:3128"),
        ({"ALL_PROXY": "https://p"}, "https://p"),
        ({"HTTP_PROXY": "http://p"}, None),
        ({"HTTPS_PROXY": "http://p", "NO_PROXY": "assay.example"}, None),
        ({"HTTPS_PROXY": "http://p", "ALL_PROXY": "socks4://q"}, "http://p"),
        ({"ALL_PROXY": "socks4://q", "NO_PROXY": "*"}, None),
        ({}, None),
    ],
)
def test_environment_names_proxy(
    variables: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    proxy = proxy_for(ADDRESS)
    assert (proxy and proxy.url) == expected


@pytest.mark.parametrize("scheme", ["socks4", "socks4a", "socks5", "socks5h", "socks", "ftp", "x"])
@pytest.mark.parametrize("name", ["ALL_PROXY", "https_proxy"])
def test_unusable_proxy_is_an_error(
    scheme: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, f"{scheme}://user:{PASSWORD}@127.0.0.1:1080")
    monkeypatch.setitem(sys.modules, "socksio", None)
    client = assay.Assay("svc_live_key", ADDRESS, cache=False)
    with pytest.raises(assay.AssayError, match=f"^{name} names a proxy with {scheme}://") as raised:
        client.me()

    async def read() -> None:
        async with assay.AsyncAssay("svc_live_key", ADDRESS, cache=False) as aclient:
            await aclient.me()

    with pytest.raises(assay.AssayError, match=f"^{name} names a proxy"):
        asyncio.run(read())
    text = "".join(traceback.format_exception(raised.value))
    assert PASSWORD not in text
    assert "http://" in text


@pytest.mark.parametrize(
    "url", ["http://", "http://u:p@", "http://h:x", "http://[::1", "http://h:0"]
)
def test_invalid_proxy_is_an_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", url)
    with pytest.raises(assay.AssayError, match=r"^ALL_PROXY is no valid address"):
        proxy_for(ADDRESS)


def test_socks_is_supported_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("socksio")
    monkeypatch.setenv("ALL_PROXY", f"socks5h://user:{PASSWORD}@127.0.0.1:1")
    with pytest.raises(assay.ConnectionFailed) as raised:
        assay.Assay("svc_live_key", ADDRESS, cache=False, max_retries=0).me()
    assert PASSWORD not in "".join(traceback.format_exception(raised.value))


class RefusingProxy(socketserver.BaseRequestHandler):
    """A proxy that repeats the whole request, with its credential, and refuses it."""

    requests: list[bytes]

    def handle(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (more := self.request.recv(65536)):
            head += more
        self.requests.append(head)
        body = b"no entry for " + PASSWORD.encode()
        status = f"HTTP/1.1 407 {PASSWORD}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.request.sendall(status.encode() + body)


@pytest.fixture
def refusing_proxy() -> Iterator[tuple[str, list[bytes]]]:
    RefusingProxy.requests = []
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), RefusingProxy) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}", RefusingProxy.requests
        server.shutdown()


@pytest.mark.parametrize("address", [ADDRESS, "http://assay.example"])
def test_proxy_is_used_and_its_password_hidden(
    address: str,
    refusing_proxy: tuple[str, list[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    host, requests = refusing_proxy
    monkeypatch.setenv("ALL_PROXY", f"http://user:{PASSWORD}@{host}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", assay.AssayWarning)  # One address has no TLS.
        client = assay.Assay("svc_live_key", address, cache=False, max_retries=0)
    with client, pytest.raises(assay.AssayError) as raised:
        client.me()
    (request,) = requests
    assert b"proxy-authorization: basic" in request.lower()
    texts = ["".join(traceback.format_exception(raised.value)), repr(raised.value.__context__)]
    # The HTTP library logs the status line, in which this proxy repeats the password.
    texts += [record.getMessage() for record in caplog.records if record.name == "assay_client"]
    assert PASSWORD not in "".join(texts)


@pytest.mark.parametrize(
    "address",
    [
        "https://user:S3cret-word@assay.example",
        "https://S3cret-word@assay.example",
        "https://assay.example?key=S3cret-word",
        "https://assay.example/#S3cret-word",
        "svc_live_S3cret-word",
        "https://[::1/S3cret-word",
        "https://assay.example:99999/S3cret-word",
        "https:///S3cret-word",
    ],
)
def test_address_with_a_credential_is_refused_without_it(address: str) -> None:
    with pytest.raises(assay.AssayError, match="`base_url`") as raised:
        assay.Assay("svc_live_key", address)
    assert "S3cret-word" not in "".join(traceback.format_exception(raised.value))
