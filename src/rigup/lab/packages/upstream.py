"""What the machines of a lab may download, with the settings of this machine's own apt and pip."""

from __future__ import annotations

import html
import re
import urllib.request
from http.client import HTTPResponse
from urllib.parse import urljoin, urlsplit

from rigup.lab.packages import registries
from rigup.lab.packages.registries import without_login
from rigup.sources.package_index import pip_settings

INDEX_PATH = "/pypi/simple/"
FILES_PATH = "/pypi/files/"
HREF = re.compile(r'href="([^"]+)"')
SECONDS = 120


class Upstream:
    """The archives of the machines' own apt sources, and the Python package index of this machine's pip.

    archives: URIs of the machines' apt sources, all http. index: the simple index, None for none.
    """

    def __init__(self, archives: list[str], index: str | None) -> None:
        self.index, self._index_login = without_login(index or "")
        own = {source.uri.partition("://")[2]: source.uri for source in registries.sources()}
        places = [uri.partition("://")[2] for uri in archives]
        # Machines request http; the archive is fetched with the scheme of this machine's own source.
        self.archives = {f"http://{place}/": own.get(place, f"http://{place}") + "/" for place in places}
        # Hosts of files are learned from the index's pages; pip always requests a page first.
        self.file_hosts: dict[str, str] = {}
        self._apt = registries.opener(registries.apt_proxies())
        proxy = pip_settings().get("proxy")
        self._pip = registries.opener({"http": proxy, "https": proxy} if proxy else {})

    def address(self, target: str) -> str | None:
        """The address for a request's target; None if the lab does not offer it."""
        if ".." in target.partition("?")[0]:
            return None
        for asked, fetched in self.archives.items():
            if target.startswith(asked):
                return fetched + target.removeprefix(asked)
        if self.index and target.startswith(INDEX_PATH):
            return f"{self.index}/{target.removeprefix(INDEX_PATH)}"
        host, _, path = target.removeprefix(FILES_PATH).partition("/")
        if target.startswith(FILES_PATH) and host in self.file_hosts:
            return f"{self.file_hosts[host]}/{path}"
        return None

    def open(self, target: str, headers: dict[str, str]) -> HTTPResponse:
        """Downloads a target; raises urllib.error.HTTPError and URLError like urllib."""
        address = self.address(target)
        assert address is not None
        client = self._pip if target.startswith("/") else self._apt
        request = urllib.request.Request(address, headers=headers)  # noqa: S310  configured for pip and apt
        if self._index_login and urlsplit(address).netloc == urlsplit(self.index).netloc:
            request.add_unredirected_header("Authorization", self._index_login)
        response: HTTPResponse = client.open(request, timeout=SECONDS)
        return response

    def offered(self, page: str, address: str) -> str:
        """A project's page of the index, with every file's address replaced by the lab's."""

        def rewrite(match: re.Match[str]) -> str:
            file = urlsplit(urljoin(address, html.unescape(match[1])))
            self.file_hosts[file.netloc] = f"{file.scheme}://{file.netloc}"
            inside = file._replace(scheme="", netloc="", path=f"{FILES_PATH}{file.netloc}{file.path}").geturl()
            return f'href="{html.escape(inside)}"'

        return HREF.sub(rewrite, page)
