"""The environment's proxy: which one is used for an address, and which addresses use none."""

from __future__ import annotations

import os
import re
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, getproxies_environment, proxy_bypass

from ._errors import AssayError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_ENTRY = re.compile(r"(?:\[([^\]]+)\]|([^:]+))(?::(\d+))?")


class Proxy(NamedTuple):
    """A proxy, and its address parts that no message may have."""

    url: str
    secrets: list[str]


def proxy_for(address: str) -> Proxy | None:
    """Returns the environment's proxy for an address. None: a direct connection.

    Raises `AssayError` with the variable's name if its proxy cannot be used, so that no
    request leaves this machine by another way than its user wants.
    """
    parts = urlsplit(address)
    host = parts.hostname or ""
    proxies = getproxies()
    if excludes(proxies.get("no", ""), host, parts.port or _DEFAULT_PORTS[parts.scheme]):
        return None
    # Windows and macOS have their own exceptions in the system's settings.
    if not getproxies_environment() and proxy_bypass(host):
        return None
    kind = next((kind for kind in (parts.scheme, "all") if proxies.get(kind)), None)
    if kind is None:
        return None
    text = proxies[kind].strip()
    return _checked(text if "://" in text else f"http://{text}", _variable(kind))


def _variable(kind: str) -> str:
    names = (f"{kind}_proxy", f"{kind}_proxy".upper())
    return next((name for name in names if os.environ.get(name)), "the proxy of the system")


def _checked(url: str, variable: str) -> Proxy:
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, is_valid = urlsplit(""), False
    remedy = "Use a proxy with http:// or https://, or exclude the address with NO_PROXY."
    if not is_valid:
        raise AssayError(f"{variable} is no valid address of a proxy. {remedy}")
    scheme = parts.scheme.lower()
    if scheme in ("socks5", "socks5h"):
        if find_spec("socksio") is None:
            raise AssayError(
                f"{variable} names a proxy with {scheme}://, which needs the package socksio: "
                f"pip install 'httpx2[socks]'. {remedy}"
            )
    elif scheme not in ("http", "https"):
        known = "http, https, socks5 and socks5h"
        raise AssayError(
            f"{variable} names a proxy with {scheme}://. The client supports {known}. {remedy}"
        )
    found = [parts.username, parts.password]
    secrets = [text for text in found if text]
    return Proxy(url, [*secrets, *map(unquote, secrets)])


def excludes(no_proxy: str, host: str, port: int) -> bool:
    """Returns whether `NO_PROXY` excludes a host: by name, domain, address or network."""
    entries = re.split(r"[\s,]+", no_proxy.strip())
    return any(_matches(entry.lower(), host.lower(), port) for entry in entries if entry)


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    try:
        # Without a port, an IPv6 address has no brackets.
        return _is_in(host, entry)
    except ValueError:
        pass
    found = _ENTRY.fullmatch(entry)
    if found is None or (found[3] and int(found[3]) != port):
        return False
    name: str = found[1] or found[2]
    try:
        return _is_in(host, name)
    except ValueError:
        pass
    domain = name.removeprefix("*").strip(".")
    host = host.rstrip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _is_in(host: str, network: str) -> bool:
    """Returns whether a host is in a network. Raises `ValueError` if it is no network."""
    found = ip_network(network, strict=False)
    try:
        return ip_address(host) in found
    except ValueError:
        return False
