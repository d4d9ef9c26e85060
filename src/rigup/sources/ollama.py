"""Ollama's registry, as the controlling machine queries it: the GGUF file behind a name like "qwen3:8b", by its hash.

A name's manifest is Docker's, version 2, schema 2; its layer of MODEL is the file, and its config names the
quantisation. Source: the manifests that registry.ollama.ai serves, and ollama's server/images.go.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import requests

from rigup.errors import InputError, Unreachable
from rigup.lock import LARGEST_FILE
from rigup.service import blobs_address
from rigup.sources.bounded_http import read_json
from rigup.sources.http_retry import TIMEOUT_S, RetriesExhausted, Server, get_with_retry, is_part

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


class OllamaRegistry(Server):
    """One registry. `pause` waits between attempts, for a number of seconds.

    Names are those of `rigup.service.location_of`: "ollama:qwen3:8b", "ollama:somebody/name:tag". Every method raises
    InputError for what the registry does not have, and Unreachable.
    """

    kind = "registry"
    comes_from = "ollama_registry in group_data"

    def __init__(self, address: str, pause: Callable[[float], None] = time.sleep) -> None:
        super().__init__(address, pause)

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
        url = f"{self.blobs(location)}/sha256:{model.sha256}"
        answer = self.get_part(location, url, model.size, start, count)
        self._accept(location, answer)
        if not is_part(answer, model.size, start, count):
            raise self.unreachable(location, "sent a different part than requested")
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
            session = self._session(LARGEST)
            answer = get_with_retry(lambda: session.get(url, headers=headers, timeout=TIMEOUT_S), self.pause)
        except RetriesExhausted as problem:
            raise self.unreachable(location, problem) from None
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
            raise self.unreachable(location, f"answered HTTP {answer.status_code}")

    def _malformed(self, location: str) -> Unreachable:
        return Unreachable(
            f"{location}: {self.name} does not answer as Ollama's registry does", "check ollama_registry in group_data"
        )

    def _session(self, most_bytes: int) -> requests.Session:
        session = super()._session(most_bytes)
        # An auth function that does nothing keeps requests from sending the login in ~/.netrc.
        session.auth = lambda request: request
        return session


def _table(content: bytes) -> dict[str, Any]:
    try:
        found = read_json(content, MOST_VALUES)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {}
