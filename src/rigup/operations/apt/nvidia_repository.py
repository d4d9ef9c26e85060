"""NVIDIA's package repositories on a host, each trusted by one key whose fingerprint rigup checks first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt import commands, foreign_sources, openpgp
from rigup.operations.primitives import proxy, remote
from rigup.operations.primitives.command_parts import FILE_MARK, files_of
from rigup.operations.primitives.steps import step
from rigup.plan import DriverRepository
from rigup.systemd.driver_files import KEYRING, SOURCE, source

NVIDIA = "/compute/cuda/repos/"  # part of every address of such a repository, also of mirrors
MOST_KEY = 2**20
"""The maximum number of bytes that rigup reads."""


@dataclass(frozen=True)
class Sources:
    """apt's configuration for a repository: rigup's keyring, and the text, by path, of each file that names it."""

    keyring: bytes = b""
    files: Mapping[str, str] = field(default_factory=dict)


class RepositorySources(FactBase[Sources]):
    """Reads a `Sources` in one command. named: the part of an address that identifies the repository."""

    default = Sources

    def command(self, keyring: str, named: str) -> str:
        key = f"echo '{FILE_MARK} keyring'; base64 -w0 {keyring} 2>/dev/null; echo"
        return f"{key}; {foreign_sources.question(named)}"

    def process(self, output: list[str]) -> Sources:
        files = files_of(output)
        return Sources(_decoded(files.pop("keyring", "")), files)


class SignedRepository(NamedTuple):
    """A repository as rigup configures it for apt: a source of its own, signed by the pinned key only.

    named: the part of an address that identifies it. owner: of its packages, for messages. setting: the prefix of the
    group_data keys that set another repository or key. files: rigup's, text by path; the source is the first.
    """

    repository: DriverRepository
    named: str
    owner: str
    setting: str
    keyring: str
    files: Mapping[str, str]

    @property
    def source(self) -> str:
        """The path of rigup's source."""
        return next(iter(self.files))

    def read(self, host: Host) -> Sources:
        """What the host has of it."""
        there: Sources = host.get_fact(RepositorySources, keyring=self.keyring, named=self.named)
        return there

    def is_right(self, there: Sources) -> bool:
        """Whether the host has this repository with this key, and no other source of its packages."""
        own = there.files.get(self.source, "") == self.files[self.source].strip()
        trusted = openpgp.holds_only(there.keyring, self.repository.fingerprint)
        return own and trusted and not foreign_sources.naming(self._others(there), self.named)

    def refuse_unclear(self, name: str, there: Sources) -> None:
        """Raises HostFailed if a source accepts these packages unsigned, or shares its file with other sources."""
        foreign_sources.refuse_unclear(name, self._others(there), self.named, self.owner)

    def provide(self, host: Host) -> None:
        """Adds the repository as a separate source with its checked key, and disables other sources of it."""
        key = self.fetched_key(host)
        foreign_sources.put_aside(host, self.read(host).files, self.named, self.source)
        remote.make_folders(host, self.keyring.rpartition("/")[0])
        remote.write_file(host, self.keyring, key)
        for path, text in self.files.items():
            remote.write_file(host, path, text)

    def fetched_key(self, host: Host) -> bytes:
        """The key, fetched by the host and checked here. Raises HostFailed if the fingerprint differs."""
        address, pinned = self.repository.key_address, self.repository.fingerprint
        curl = "curl --fail --silent --show-error --location --max-time 60 --output -"
        fetch = f'{proxy.EXPORT}{curl} "$1" | head -c {MOST_KEY} | base64 -w0'
        fetched = remote.run(host, "sh", "-c", fetch, "rigup", address, timeout=90)
        data = _decoded(fetched.stdout.strip())
        if not data:
            raise HostFailed(f"{host.name}: cannot fetch {address}: {fetched.last_line}", self._unreachable)
        try:
            found = openpgp.fingerprints(data)
        except ValueError as error:
            raise HostFailed(
                f"{host.name}: {address}: {error}", "check that the address is NVIDIA's repository"
            ) from None
        if found != (pinned,):
            raise HostFailed(
                f"{host.name}: {address}: the key's fingerprint is {' and '.join(found)}, not the pinned {pinned}",
                f"nothing was changed; verify the key before you pin it: {self.setting}_key_fingerprint in group_data",
            )
        return openpgp.binary(data)

    def refresh(self, host: Host, step: str) -> None:
        """Fetches the repository's package list. Raises HostFailed if that fails or its signature is wrong."""
        commands.update(host, step, self.source, about=self.repository.address, hint=self._unreachable)

    @property
    def _unreachable(self) -> str:
        return f"check the host's network, or set a mirror: {self.setting}_repository in group_data"

    def _others(self, there: Sources) -> dict[str, str]:
        return {path: text for path, text in there.files.items() if path != self.source}


def driver_source(repository: DriverRepository) -> SignedRepository:
    """NVIDIA's repository of drivers and CUDA. repository: from `driver_repository`."""
    return SignedRepository(repository, NVIDIA, "NVIDIA's packages", "nvidia", KEYRING, {SOURCE: source(repository)})


@operation()
def nvidia_repository(repository: DriverRepository) -> Generator[FunctionCommand, None, None]:
    """Ensures that NVIDIA's repository is a source of its own, signed by the pinned key only.

    + repository: from `driver_repository`
    """
    wanted = driver_source(repository)
    there = wanted.read(host)
    wanted.refuse_unclear(host.name, there)
    if wanted.is_right(there):
        host.noop(f"{repository.address} is configured")
        return
    yield step(wanted.provide)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""
