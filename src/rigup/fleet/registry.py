"""A container registry, asked from the controlling machine: which digest a tag is for one architecture, today.

The protocol is the OCI distribution specification's (Docker's registry API, version 2) with its token authentication.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import requests

from rigup.environment import Architecture
from rigup.errors import InputError, RigupError, Unreachable
from rigup.fleet.patient_requests import TIMEOUT_S, NoAnswer, name_of, patiently

LARGEST = 4 * 2**20
INDEXES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFESTS = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
# The names of architectures in Go, which images use.
ARCHITECTURES: Mapping[Architecture, str] = {"x86_64": "amd64", "aarch64": "arm64"}
# Docker Hub is not at the host that its images are named by.
HOSTS = {"docker.io": "registry-1.docker.io"}
_CHALLENGE = re.compile(r'(\w+)="([^"]*)"')


class Registry:
    """Asks registries. `mirrors` are asked instead of the one of that name; `pause` is how it waits, in seconds."""

    def __init__(self, mirrors: Mapping[str, str] | None = None, pause: Callable[[float], None] = time.sleep) -> None:
        self.mirrors = dict(mirrors or {})
        self.pause = pause
        self.session = requests.Session()
        self._tokens: dict[str, str] = {}

    def digest(self, repository: str, tag: str, architecture: Architecture) -> tuple[str, int]:
        """The digest ("sha256:...") of the manifest that a tag has for Linux on an architecture, and its layers' bytes.

        That of the architecture, not that of the index over all of them: it names exactly one set of files, and it is
        what a host is asked for after the pull.
        Raises InputError for a tag or a platform that is not there, and Unreachable where the registry cannot be asked.
        """
        name, wanted = f"{repository}:{tag}", ARCHITECTURES[architecture]
        digest, manifest = self._manifest(repository, tag, name)
        if "manifests" not in manifest:
            config = self._json(self._get(repository, f"blobs/{_digest_of(manifest.get('config'), name)}", name), name)
            there = {f"{config.get('os')}/{config.get('architecture')}": digest}
        else:
            entries = manifest["manifests"]
            if not isinstance(entries, list):
                raise _nonsense(name)
            there = dict(reversed([_platform(entry, name) for entry in entries]))
        found = there.get(f"linux/{wanted}")
        if found is None:
            known = ", ".join(sorted(key for key in there if "unknown" not in key)) or "none"
            raise InputError(f"{name}: there is no image for linux/{wanted}", f"platforms: {known}")
        if found != digest:
            found, manifest = self._manifest(repository, found, name)
        try:
            return found, sum(int(layer["size"]) for layer in manifest["layers"])
        except (KeyError, TypeError, ValueError):
            raise _nonsense(name) from None

    def _manifest(self, repository: str, reference: str, name: str) -> tuple[str, dict[str, Any]]:
        """A manifest or index, with the digest of its bytes."""
        answer = self._get(repository, f"manifests/{reference}", name)
        digest = f"sha256:{hashlib.sha256(answer.content).hexdigest()}"
        stated = answer.headers.get("Docker-Content-Digest", reference if ":" in reference else digest)
        if stated != digest:
            raise Unreachable(
                f"{name}: arrives damaged: its digest is {digest}, the registry says {stated}", "is a proxy between?"
            )
        return digest, self._json(answer, name)

    def _get(self, repository: str, path: str, name: str) -> requests.Response:
        """One answer, after as many tries as the registry asks for within reason, with a token where it wants one."""
        host, _, image = repository.partition("/")
        base = self.mirrors.get(host) or f"https://{HOSTS.get(host, host)}"
        url = f"{base.rstrip('/')}/v2/{image}/{path}"
        try:
            answer = patiently(lambda: self._asked(url, repository), self.pause)
        except NoAnswer as problem:
            message = f"{name}: the registry at {name_of(base)} {problem}"
            raise Unreachable(message, _reach_hint(base, host)) from None
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
        # An auth function that does nothing keeps requests from putting what ~/.netrc says in place of the token.
        return self.session.get(url, headers=headers, timeout=TIMEOUT_S, auth=lambda request: request)

    def _token(self, challenge: str) -> str | None:
        """The token that a registry gives to anybody, from where its challenge says; None where it wants a login."""
        scheme, _, rest = challenge.partition(" ")
        words = dict(_CHALLENGE.findall(rest))
        realm = words.pop("realm", "")
        if scheme.lower() != "bearer" or not realm.startswith(("https://", "http://")):
            return None
        answer = self.session.get(realm, params=words, timeout=TIMEOUT_S, auth=lambda request: request)
        if answer.status_code in (401, 403):
            return None
        answer.raise_for_status()
        found = answer.json()
        token = found.get("token") or found.get("access_token") if isinstance(found, dict) else None
        return token if isinstance(token, str) else None

    def _json(self, answer: requests.Response, name: str) -> dict[str, Any]:
        try:
            found = json.loads(answer.content) if len(answer.content) <= LARGEST else None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise _nonsense(name)
        return found


def _accepted(answer: requests.Response, name: str, base: str) -> requests.Response:
    """The answer, or what its status means to a person."""
    if answer.ok:
        return answer
    if answer.status_code == 404:
        raise InputError(
            f"{name}: the registry at {name_of(base)} has no such image or tag",
            "is that release published as an image?",
        )
    if answer.status_code in (401, 403):
        raise InputError(
            f"{name}: the registry at {name_of(base)} does not give it to everybody",
            "rigup has no account there: name a mirror that has it as image_mirrors in group_data",
        )
    raise Unreachable(f"{name}: the registry at {name_of(base)} answers HTTP {answer.status_code}", "try again later")


def _platform(entry: Any, name: str) -> tuple[str, str]:
    """One line of an index: "linux/amd64" and its digest."""
    platform = entry.get("platform") if isinstance(entry, dict) else None
    if not isinstance(platform, dict):
        platform = {}
    return f"{platform.get('os', 'unknown')}/{platform.get('architecture', 'unknown')}", _digest_of(entry, name)


def _digest_of(entry: Any, name: str) -> str:
    digest = entry.get("digest") if isinstance(entry, dict) else None
    if not isinstance(digest, str) or not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise _nonsense(name)
    return digest


def _nonsense(name: str) -> RigupError:
    return Unreachable(f"{name}: what answers is not a container registry", "is image_mirrors in group_data right?")


def _reach_hint(base: str, host: str) -> str:
    return f'is this machine online? image_mirrors = {{"{host}": "https://..."}} in group_data names a mirror'
