"""A container registry, as the controlling machine queries it: the digest of a tag for one architecture.

The protocol is the OCI distribution specification (Docker's registry API, version 2) with token authentication.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import requests

from rigup.artifacts import Architecture
from rigup.errors import InputError, RigupError, Unreachable
from rigup.sources.bounded_http import BoundedSession, read_json
from rigup.sources.http_retry import TIMEOUT_S, RetriesExhausted, get_with_retry, name_of

LARGEST = 4 * 2**20
LARGEST_LAYER = 2**44
MOST_LAYERS = 1000
MOST_NAMED = 20
MOST_VALUES = 100_000
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
# Go's names of architectures, which images use.
ARCHITECTURES: Mapping[Architecture, str] = {"x86_64": "amd64", "aarch64": "arm64"}
# Docker Hub's API runs on another host than the one in image names.
HOSTS = {"docker.io": "registry-1.docker.io"}
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
PLATFORM = re.compile(r"[\w.-]{1,64}", re.ASCII)
TOKEN = re.compile(r"[!-~]{1,65536}")
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """Queries registries. `mirrors`: registry name to replacement. `pause` waits for a number of seconds."""

    def __init__(self, mirrors: Mapping[str, str] | None = None, pause: Callable[[float], None] = time.sleep) -> None:
        self.mirrors = dict(mirrors or {})
        self.pause = pause
        self.session = BoundedSession(LARGEST)
        self._tokens: dict[str, str] = {}

    def digest(self, repository: str, tag: str, architecture: Architecture) -> tuple[str, int]:
        """The digest ("sha256:...") of a tag's manifest for Linux on an architecture, and the bytes of its layers.

        This is the digest of the manifest, not of the index over all architectures: it identifies exactly one set of
        files, and a host reports it after the pull.
        Raises InputError if the tag or the platform does not exist, and Unreachable if the registry does not respond.
        """
        name, wanted = f"{repository}:{tag}", ARCHITECTURES[architecture]
        digest, manifest = self._manifest(repository, tag, name)
        if "manifests" not in manifest:
            config = self._json(self._get(repository, f"blobs/{_digest_of(manifest.get('config'), name)}", name), name)
            there = {_platform_name(config, name): digest}
        else:
            entries = manifest["manifests"]
            if not isinstance(entries, list):
                raise _malformed_response(name)
            there = dict(reversed([_platform(entry, name) for entry in entries]))
        found = there.get(f"linux/{wanted}")
        if found is None:
            known = ", ".join(sorted(key for key in there if "unknown" not in key)[:MOST_NAMED]) or "none"
            raise InputError(f"{name}: there is no image for linux/{wanted}", f"platforms: {known}")
        if found != digest:
            found, manifest = self._manifest(repository, found, name)
        return found, _layers_size(manifest, name)

    def _manifest(self, repository: str, reference: str, name: str) -> tuple[str, dict[str, Any]]:
        """A manifest or index, and the digest of its bytes."""
        answer = self._get(repository, f"manifests/{reference}", name)
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        stated = reference if ":" in reference else answer.headers.get("Docker-Content-Digest", digest)
        if not DIGEST.fullmatch(stated):
            raise _malformed_response(name)
        if stated != digest:
            raise Unreachable(
                f"{name}: digest mismatch: received {digest}, the registry states {stated}",
                "bypass any proxy that may alter downloads",
            )
        return digest, self._json(answer, name)

    def _get(self, repository: str, path: str, name: str) -> requests.Response:
        """One response, with retries as the registry asks for them, and with a token if it requires one."""
        host, _, image = repository.partition("/")
        base = self.mirrors.get(host) or f"https://{HOSTS.get(host, host)}"
        url = f"{base.rstrip('/')}/v2/{image}/{path}"
        try:
            answer = get_with_retry(lambda: self._asked(url, repository), self.pause)
        except RetriesExhausted as problem:
            message = f"{name}: the registry at {name_of(base)} {problem}"
            raise Unreachable(message, _reach_hint(host)) from None
        return _accepted(answer, name, base)

    def _asked(self, url: str, repository: str) -> requests.Response:
        answer = self._send(url, self._tokens.get(repository))
        if answer.status_code == 401 and (token := self._token(answer.headers.get("WWW-Authenticate", ""))):
            self._tokens[repository] = token
            answer = self._send(url, token)
        return answer

    def _send(self, url: str, token: str | None) -> requests.Response:
        headers = {"Accept": ", ".join((*INDEXES, *MANIFESTS)), "Accept-Encoding": "identity"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        # An auth function that does nothing keeps requests from replacing the token with the login from ~/.netrc.
        return self.session.get(url, headers=headers, timeout=TIMEOUT_S, auth=lambda request: request)

    def _token(self, challenge: str) -> str | None:
        """An anonymous token from the server that the challenge names; None if the registry requires a login."""
        scheme, _, rest = challenge.partition(" ")
        words = dict(_CHALLENGE.findall(rest))
        realm = words.pop("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith(("https://", "http://")):
            return None
        answer = self.session.get(realm, params=words, timeout=TIMEOUT_S, auth=lambda request: request)
        if answer.status_code in (401, 403):
            return None
        answer.raise_for_status()
        try:
            found = read_json(answer.content, MOST_VALUES)
        except ValueError:
            raise requests.JSONDecodeError("not a token", "", 0) from None
        token = found.get("token") or found.get("access_token") if isinstance(found, dict) else None
        return token if isinstance(token, str) and TOKEN.fullmatch(token) else None

    def _json(self, answer: requests.Response, name: str) -> dict[str, Any]:
        try:
            found = read_json(answer.content, MOST_VALUES)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise _malformed_response(name)
        return found


def _accepted(answer: requests.Response, name: str, base: str) -> requests.Response:
    """The response if it succeeded; otherwise raises an error that explains the status."""
    if answer.ok:
        return answer
    if answer.status_code == 404:
        raise InputError(
            f"{name}: the registry at {name_of(base)} does not have this image or tag",
            "check that the release is published as an image",
        )
    if answer.status_code in (401, 403):
        raise InputError(
            f"{name}: the registry at {name_of(base)} requires a login for it",
            "set a mirror that has it in image_mirrors in group_data: rigup does not log in to registries",
        )
    raise Unreachable(f"{name}: the registry at {name_of(base)} answered HTTP {answer.status_code}", "try again later")


def _platform(entry: Any, name: str) -> tuple[str, str]:
    """One entry of an index: "linux/amd64" and its digest."""
    platform = entry.get("platform") if isinstance(entry, dict) else None
    return _platform_name(platform if isinstance(platform, dict) else {}, name), _digest_of(entry, name)


def _platform_name(platform: Mapping[str, Any], name: str) -> str:
    words = [platform.get(key, "unknown") for key in ("os", "architecture")]
    if not all(isinstance(word, str) and PLATFORM.fullmatch(word) for word in words):
        raise _malformed_response(name)
    return "/".join(words)


def _layers_size(manifest: dict[str, Any], name: str) -> int:
    """The total size of a manifest's layers, in bytes."""
    layers = manifest.get("layers")
    if not isinstance(layers, list) or len(layers) > MOST_LAYERS:
        raise _malformed_response(name)
    total = 0
    for layer in layers:
        size = layer.get("size") if isinstance(layer, dict) else None
        if type(size) is not int or not 0 <= size <= LARGEST_LAYER:
            raise _malformed_response(name)
        total += size
    return total


def _digest_of(entry: Any, name: str) -> str:
    digest = entry.get("digest") if isinstance(entry, dict) else None
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise _malformed_response(name)
    return digest


def _malformed_response(name: str) -> RigupError:
    return Unreachable(f"{name}: the server is not a container registry", "check image_mirrors in group_data")


def _reach_hint(host: str) -> str:
    return f'check that this machine is online; image_mirrors = {{"{host}": "https://..."}} in group_data sets a mirror'
