"""This machine's Debian and Python package registries, read from its client settings.

No registry is named here. Lab machines are offered the registries that this machine's apt and pip are configured for.
"""

from __future__ import annotations

import base64
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rigup.errors import InputError, MissingTool
from rigup.sources.package_index import index_url, pip_settings

SOURCES = Path("/etc/apt")
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
ONE_LINE = re.compile(r"deb\s+(?:\[[^]]*\]\s*)?(\S+)\s+(\S+)(.*)")
OFF = ("no", "false", "without", "off", "disable", "0")
"""Values that apt accepts for `Enabled: no`."""


@dataclass(frozen=True)
class Source:
    """One archive of binary packages over HTTP in apt's configuration; `uri` has no slash at the end and no login.

    login: whether the configured URI contains a user and password.
    """

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    login: bool = False

    @property
    def host(self) -> str:
        return urlsplit(self.uri).netloc

    @property
    def name(self) -> str:
        """The last part of the path, such as "debian-security"."""
        return self.uri.rpartition("/")[2]


def sources(folder: Path = SOURCES) -> list[Source]:
    """The sources in an /etc/apt, in apt's order; see sources.list(5)."""
    found: list[Source] = []
    for file in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        if file.is_file() and file.suffix in (".list", ".sources"):
            lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
            found += _one_line(lines) if file.suffix == ".list" else _deb822(lines)
    return found


def _one_line(lines: list[str]) -> Iterator[Source]:
    for line in lines:
        if match := ONE_LINE.match(line.partition("#")[0].strip()):
            yield from _http([match[1]], [match[2]], match[3].split())


def _deb822(lines: list[str]) -> Iterator[Source]:
    for stanza in re.split(r"\n\s*\n", "\n".join(lines)):
        unfolded = re.sub(r"\n[ \t]+", " ", stanza)
        pairs = (line.partition(":") for line in unfolded.splitlines())
        fields = {key.strip().lower(): value.split() for key, _, value in pairs}
        if "deb" in fields.get("types", ()) and fields.get("enabled", ["yes"])[0].lower() not in OFF:
            yield from _http(*(fields.get(key, []) for key in ("uris", "suites", "components")))


def _http(uris: list[str], suites: list[str], components: list[str]) -> Iterator[Source]:
    for uri in uris:
        if uri.startswith(("http://", "https://")):
            bare, login = without_login(uri.rstrip("/"))
            yield Source(bare, tuple(suites), tuple(components), bool(login))


def debian_mirrors(found: Iterable[Source]) -> tuple[str, str] | None:
    """The Debian archive and its security archive among apt sources; None to use mmdebstrap's default.

    Other archives may end in "debian" and have a component "main", too: Debian's is the one with updates of a release,
    otherwise the one on the security archive's host, otherwise the one with the shortest path. Raises InputError if one
    of the two requires a login, which the build cannot use.
    """
    main = [source for source in found if "main" in source.components]
    security = next((source for source in main if source.name == "debian-security"), None)
    archives = [source for source in main if source.name == "debian"]
    if security is None or not archives:
        return None
    updated = {source.uri for source in archives if any(suite.endswith("-updates") for suite in source.suites)}
    archive = min(archives, key=lambda it: (it.uri not in updated, it.host != security.host, it.uri.count("/")))
    for source in (archive, security):
        if source.login:
            message = f"{SOURCES}: {source.uri}: its address contains a login, which lab images cannot use"
            raise InputError(message, "use a Debian mirror without a login on the machine that runs the lab")
    return archive.uri, security.uri


def without_login(url: str) -> tuple[str, str]:
    """A URL without its user and password, and these as an Authorization header ("" for none)."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    header = "Basic " + base64.b64encode(unquote(login).encode()).decode() if at else ""
    return parts._replace(netloc=host).geturl(), header


def package_index() -> str | None:
    """The index that this machine's pip uses, without a slash at the end; None without pip."""
    try:
        return index_url().rstrip("/")
    except MissingTool:
        return None


def apt_proxies() -> dict[str, str]:
    """The proxies in this machine's apt configuration, by scheme."""
    words = ["apt-config", "shell", "http", "Acquire::http::Proxy", "https", "Acquire::https::Proxy"]
    try:
        lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {scheme: value.strip("'") for scheme, _, value in pairs if value.strip("'") not in ("", "DIRECT")}


def opener(proxies: dict[str, str]) -> urllib.request.OpenerDirector:
    """Opens URLs like this machine's clients: with their proxies and certificates."""
    context = ssl.create_default_context()
    for certificates in (str(SYSTEM_CERTIFICATES), pip_settings().get("cert", "")):
        if Path(certificates).is_file():
            context.load_verify_locations(certificates)
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({**urllib.request.getproxies(), **proxies}),
        urllib.request.HTTPSHandler(context=context),
    )
