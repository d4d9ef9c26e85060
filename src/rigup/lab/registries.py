"""Where this machine gets Debian packages and Python distributions from: read from its own client settings.

No registry is named here. What apt and pip of this machine are set up for is what the machines of a lab are offered.
"""

from __future__ import annotations

import re
import ssl
import subprocess
import urllib.request
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from rigup.errors import MissingTool
from rigup.operations import package_index as pip_here

SOURCES = Path("/etc/apt")
SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
URI = re.compile(r"https?://[^\s\]]+")


def uris(folder: Path = SOURCES) -> list[str]:
    """The URIs of every apt source under an /etc/apt, without a slash at the end, comments left out."""
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*.[ls]*"))]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    kept = [line for line in lines if not line.lstrip().startswith("#")]
    return [uri.rstrip("/") for line in kept for uri in URI.findall(line)]


def debian_mirrors(found: Iterable[str]) -> tuple[str, str] | None:
    """The Debian archive and its security archive among apt URIs; None lets mmdebstrap take its own default."""
    by_name = {uri.rsplit("/", 1)[-1]: uri for uri in found}
    if "debian" in by_name and "debian-security" in by_name:
        return by_name["debian"], by_name["debian-security"]
    return None


@cache
def pip_settings() -> dict[str, str]:
    """pip's own settings, asked once."""
    return pip_here.pip_settings()


@cache
def package_index() -> str | None:
    """The Python package index of this machine's pip, without a slash at the end; None where there is no pip."""
    try:
        return pip_here.index_url().rstrip("/")
    except MissingTool:
        return None


def apt_proxies() -> dict[str, str]:
    """The proxies that apt of this machine is set up for, by scheme."""
    words = ["apt-config", "shell", "http", "Acquire::http::Proxy", "https", "Acquire::https::Proxy"]
    try:
        lines = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    except FileNotFoundError:
        return {}
    pairs = (line.partition("=") for line in lines)
    return {scheme: value.strip("'") for scheme, _, value in pairs if value.strip("'") not in ("", "DIRECT")}


def opener(proxies: dict[str, str]) -> urllib.request.OpenerDirector:
    """What fetches a URL as this machine's clients would: their proxies and their certificates."""
    context = ssl.create_default_context()
    for certificates in (str(SYSTEM_CERTIFICATES), pip_settings().get("cert", "")):
        if Path(certificates).is_file():
            context.load_verify_locations(certificates)
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({**urllib.request.getproxies(), **proxies}),
        urllib.request.HTTPSHandler(context=context),
    )
