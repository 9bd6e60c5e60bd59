"""A client's settings: arguments, environment variables and profiles."""

from __future__ import annotations

import os
import re
import stat
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ._arguments import kind_of, path_of, reason_of, text_of
from ._errors import AssayError, AssayWarning

Profile = dict[str, str]

_SECTION = re.compile(r"\[\s*(?:\"([^\"\\]+)\"|'([^']+)'|([A-Za-z0-9_-]+))\s*\]")
_PAIR = re.compile(r"([A-Za-z0-9_-]+)\s*=\s*(.+)")
_BASIC_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"\s*(?:#.*)?')
_LITERAL_STRING = re.compile(r"'([^']*)'\s*(?:#.*)?")
_OTHER_VALUE = re.compile(r"([A-Za-z0-9:.+_-]+)\s*(?:#.*)?")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Settings:
    """One client's settings."""

    api_key: str
    """An API key or a session token. Empty for operations that need no credential."""
    base_url: str
    """The address of the installation, without a slash at the end."""
    cache_folder: Path | None
    """The folder of the cache, or None without a cache."""

    def __repr__(self) -> str:
        # The credential must not appear in logs and notebooks.
        return f"Settings(base_url={self.base_url!r})"


def load_settings(
    api_key: str | None = None,
    base_url: str | None = None,
    profile: str | None = None,
    cache: bool | str | os.PathLike[str] | None = None,
) -> Settings:
    """Returns the settings. Arguments precede environment variables, which precede the profile.

    Raises `AssayError` if the API key or the address is set nowhere.
    """
    for argument, value in (("api_key", api_key), ("base_url", base_url), ("profile", profile)):
        if value is not None:
            text_of(argument, value)
    key = os.environ.get("ASSAY_API_KEY") if api_key is None else api_key
    url = base_url or os.environ.get("ASSAY_BASE_URL")
    name = profile or os.environ.get("ASSAY_PROFILE")
    # A profile is only required if it is named or if a setting is missing.
    stored = load_profile(name) if name or key is None or not url else {}
    key = stored.get("api_key") if key is None else key
    url = url or stored.get("base_url")
    if key is None:
        raise _missing("API key", "api_key", "ASSAY_API_KEY", name)
    if not url:
        raise _missing("address", "base_url", "ASSAY_BASE_URL", name)
    key = key.strip()
    if not all("!" <= letter <= "~" for letter in key):
        # The message does not repeat the key.
        raise AssayError("The API key contains a character that keys do not have. Copy it again.")
    url = _checked_url(url.strip())
    if key and _sends_in_the_clear(url):
        warnings.warn(
            f"{url} has no TLS, so the key can be read on the way. Use https://.",
            AssayWarning,
            stacklevel=4,
        )
    # The documentation shows paths that begin with /v1.
    return Settings(key, url.rstrip("/").removesuffix("/v1"), cache_folder(cache))


def _checked_url(url: str) -> str:
    """Returns an address. The messages do not repeat it, as it can be or contain a credential."""
    if not url.startswith(("http://", "https://")):
        raise AssayError("`base_url` must begin with https:// or http://.")
    try:
        parts = urlsplit(url)
        is_valid = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        parts, is_valid = urlsplit(""), False
    if not is_valid or not all("!" <= letter <= "~" for letter in url):
        raise AssayError(
            "`base_url` is no valid address. It has a host, and possibly a port and a path, such "
            "as https://assay.example.org."
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise AssayError(
            "`base_url` must not have a user name, a password, a query or a fragment. Pass the "
            "credential as `api_key`."
        )
    return url


def _sends_in_the_clear(url: str) -> bool:
    """Returns whether a credential would leave this machine without TLS."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme != "http" or host == "localhost" or host.endswith(".localhost"):
        return False
    import ipaddress

    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True


def _missing(what: str, argument: str, variable: str, profile: str | None) -> AssayError:
    return AssayError(
        f"The {what} is not set. Pass `{argument}` to the client, set the environment variable "
        f"{variable}, or add `{argument}` to the profile `{profile or 'default'}` in "
        f"{config_file()}."
    )


def config_file() -> Path:
    """Returns the profile file's path."""
    home = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(home) if home else Path.home() / ".config") / "assay" / "config.toml"
    except RuntimeError:
        raise AssayError("There is no home folder. Set XDG_CONFIG_HOME.") from None


def cache_folder(cache: bool | str | os.PathLike[str] | None) -> Path | None:
    """Returns the cache folder. `False` is no cache, None and `True` are the default."""
    if cache is False:
        return None
    if cache is None or cache is True:
        given = os.environ.get("ASSAY_CACHE")
    elif isinstance(cache, (str, os.PathLike)):  # pyright: ignore[reportUnnecessaryIsInstance]
        given = path_of("cache", cache)
    else:
        raise AssayError(f"`cache` must be a folder, True or False, not {kind_of(cache)}.")
    try:
        if given:
            return Path(given).expanduser()
        home = os.environ.get("XDG_CACHE_HOME")
        return (Path(home) if home else Path.home() / ".cache") / "assay"
    except RuntimeError:
        return None  # The user has no home.


def load_profile(name: str | None) -> Profile:
    """Returns a profile. Without a name, it is `default`, and empty if it does not exist.

    Raises `AssayError` if the named profile does not exist, if other users can read the file, or
    if the file is not valid.
    """
    path = config_file()
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if name is None:
            return {}
        raise AssayError(f"The profile `{name}` does not exist: there is no file {path}.") from None
    except (OSError, ValueError) as error:
        # A decoding error's text can have the keys.
        reason = "it is not UTF-8" if isinstance(error, UnicodeError) else reason_of(error)
        mode, text = 0, None
    else:
        reason = ""
    if text is None:
        raise AssayError(f"{path} cannot be read: {reason}.")
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise AssayError(
            f"{path} contains API keys and other users can read it (mode {mode & 0o777:04o}). "
            f"Run `chmod 600 {path}`; if others may have read the keys, rotate them."
        )
    profiles = parse_profiles(text, str(path))
    if name is not None and name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise AssayError(f"The profile `{name}` is not in {path}. Profiles: {known}.")
    return profiles.get(name or "default", {})


def parse_profiles(text: str, source: str) -> dict[str, Profile]:
    """Parses the TOML subset that profiles use: tables, and pairs with one value on the line.

    tomllib exists only from Python 3.11 on; one parser for all versions avoids two behaviours.
    Values that are not strings are returned as their text. Raises `AssayError` with the line.
    """
    profiles: dict[str, Profile] = {}
    current: Profile = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        header = _SECTION.fullmatch(line.split("#", 1)[0].strip())
        if header:
            current = profiles.setdefault(next(filter(None, header.groups())), {})
            continue
        pair = _PAIR.fullmatch(line)
        value = _parse_value(pair[2]) if pair else None
        if pair is None or value is None:
            raise AssayError(f"{source}, line {number}: expected `[profile]` or `name = value`.")
        current[pair[1]] = value
    return profiles


def _parse_value(text: str) -> str | None:
    if text.startswith(('"""', "'''")):
        return None
    if basic := _BASIC_STRING.fullmatch(text):
        return _ESCAPE.sub(_unescape, basic[1])
    other = _LITERAL_STRING.fullmatch(text) or _OTHER_VALUE.fullmatch(text)
    return other[1] if other else None


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) > 1:
        number = int(escape[1:], 16)
        return chr(number) if number <= sys.maxunicode else match[0]
    return _ESCAPES.get(escape, match[0])
