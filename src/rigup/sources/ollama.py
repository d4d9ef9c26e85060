"""Ollama's registry, as the controlling machine queries it: the GGUF file behind a name like "qwen3:8b", by its hash.

A name's manifest is Docker's, version 2, schema 2; its layer of MODEL is the file, and its config names the
quantisation. Source: the manifests that registry.ollama.ai serves, and ollama's server/images.go.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from rigup import __version__
from rigup.errors import InputError, Unreachable
from rigup.lock import LARGEST_FILE
from rigup.service import blobs_address
from rigup.sources.bounded_http import BoundedSession, read_json
from rigup.sources.http_retry import (
    LARGEST_PART,
    TIMEOUT_S,
    RetriesExhausted,
    get_part,
    get_with_retry,
    is_part,
    name_of,
)

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
MODEL = "application/vnd.ollama.image.model"
ADAPTER = "application/vnd.ollama.image.adapter"
LARGEST = 2**20
MOST_LAYERS = 1000
MOST_VALUES = 20_000
DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
QUANT = re.compile(r"[A-Za-z0-9_]{1,20}")


@dataclass(frozen=True)
class OllamaModel:
    """What a name stands for now. manifest, sha256: of the manifest and of the GGUF file. quant: "" if nobody says."""

    manifest: str
    sha256: str
    size: int
    quant: str


class OllamaRegistry:
    """One registry. `pause` waits between attempts, for a number of seconds.

    Names are those of `rigup.service.location_of`: "ollama:qwen3:8b", "ollama:somebody/name:tag". Every method raises
    InputError for what the registry does not have, and Unreachable.
    """

    def __init__(self, address: str, pause: Callable[[float], None] = time.sleep) -> None:
        self.address = address.rstrip("/")
        self.pause = pause
        self._kept = threading.local()

    @property
    def name(self) -> str:
        """The name of the registry in messages."""
        return name_of(self.address)

    def blobs(self, location: str) -> str:
        """The address below which the files of a name lie, each under sha256:HASH."""
        return blobs_address(self.address, location)

    def model(self, location: str) -> OllamaModel:
        """The file that a name stands for."""
        tag = location.rpartition(":")[2]
        content = self._content(location, f"{self.blobs(location).removesuffix('blobs')}manifests/{tag}")
        manifest = _table(content)
        layers = manifest.get("layers")
        if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
            raise self._malformed(location)
        kinds = [layer.get("mediaType") if isinstance(layer, dict) else None for layer in layers]
        if kinds.count(MODEL) != 1 or ADAPTER in kinds:
            what = "is an adapter for another model" if ADAPTER in kinds else "is not one GGUF file"
            raise InputError(f"{location}: {what}", "choose another tag of the model")
        sha256, size = self._blob(location, layers[kinds.index(MODEL)])
        return OllamaModel(hashlib.sha256(content).hexdigest(), sha256, size, self._quant(location, manifest))

    def part(self, location: str, model: OllamaModel, start: int, count: int) -> bytes:
        """`count` bytes of the file from `start`, `LARGEST_PART` at most. Each thread keeps its connection."""
        if not hasattr(self._kept, "session"):
            self._kept.session = _session(LARGEST_PART)
        url = f"{self.blobs(location)}/sha256:{model.sha256}"
        try:
            answer = get_part(self._kept.session, url, model.size, start, count, self.pause)
        except RetriesExhausted as problem:
            raise Unreachable(f"{location}: the registry at {self.name} {problem}", self._reach_hint()) from None
        self._accept(location, answer)
        if not is_part(answer, model.size, start, count):
            raise Unreachable(
                f"{location}: the registry at {self.name} sent a different part than requested", self._reach_hint()
            )
        return answer.content

    def _quant(self, location: str, manifest: dict[str, Any]) -> str:
        """The quantisation in the name's configuration."""
        sha256, size = self._blob(location, manifest.get("config"))
        if size > LARGEST:
            raise self._malformed(location)
        content = self._content(location, f"{self.blobs(location)}/sha256:{sha256}")
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Unreachable(
                f"{location}: its configuration at {self.name} does not match its checksum",
                "bypass any proxy that may alter downloads",
            )
        said = _table(content).get("file_type")
        return said if isinstance(said, str) and QUANT.fullmatch(said) else ""

    def _blob(self, location: str, entry: Any) -> tuple[str, int]:
        """The hash and the size in an entry of a manifest."""
        digest, size = (entry.get("digest"), entry.get("size")) if isinstance(entry, dict) else (None, None)
        found = DIGEST.fullmatch(digest) if isinstance(digest, str) else None
        if found is None or type(size) is not int or not 0 < size <= LARGEST_FILE:
            raise self._malformed(location)
        return found[1], size

    def _content(self, location: str, url: str) -> bytes:
        headers = {"Accept": MANIFEST}
        try:
            answer = get_with_retry(lambda: _session(LARGEST).get(url, headers=headers, timeout=TIMEOUT_S), self.pause)
        except RetriesExhausted as problem:
            raise Unreachable(f"{location}: the registry at {self.name} {problem}", self._reach_hint()) from None
        self._accept(location, answer)
        return answer.content

    def _accept(self, location: str, answer: requests.Response) -> None:
        """Raises an error that explains the status, unless the answer is good."""
        if answer.status_code == 404:
            raise InputError(
                f"{location}: the registry at {self.name} has no such model or tag", "check the name and its tag"
            )
        if answer.status_code in (401, 403):
            raise InputError(
                f"{location}: the registry at {self.name} requires a login for it",
                "choose a public model: rigup does not log in to Ollama's registry",
            )
        if not answer.ok:
            raise Unreachable(
                f"{location}: the registry at {self.name} answered HTTP {answer.status_code}", self._reach_hint()
            )

    def _malformed(self, location: str) -> Unreachable:
        return Unreachable(
            f"{location}: {self.name} does not answer as Ollama's registry does", "check ollama_registry in group_data"
        )

    def _reach_hint(self) -> str:
        return (
            f"check that this machine is online; {self.name} comes from ollama_registry in group_data, or the default"
        )


def _session(most_bytes: int) -> requests.Session:
    session = BoundedSession(most_bytes)
    # An auth function that does nothing keeps requests from sending the login in ~/.netrc.
    session.auth = lambda request: request
    session.headers.update({"Accept-Encoding": "identity", "User-Agent": f"rigup/{__version__}"})
    return session


def _table(content: bytes) -> dict[str, Any]:
    try:
        found = read_json(content, MOST_VALUES)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
