"""NVIDIA's package repository on a host, trusted by one key whose fingerprint rigup checks first."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Mapping
from dataclasses import dataclass

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.apt import commands, foreign_sources, openpgp
from rigup.operations.primitives import remote
from rigup.operations.primitives.command_parts import FILE_MARK, files_of
from rigup.operations.primitives.steps import step
from rigup.plan import DriverRepository
from rigup.systemd.driver_files import KEYRING, SOURCE, source

NVIDIA = "/compute/cuda/repos/"  # part of every address of such a repository, also of mirrors
MOST_KEY = 2**20
"""The maximum number of bytes that rigup reads."""


@dataclass(frozen=True)
class Sources:
    """apt's configuration for NVIDIA: rigup's source, its keyring, and other files that name NVIDIA's repository."""

    own: str = ""
    keyring: bytes = b""
    others: tuple[tuple[str, str], ...] = ()


class NvidiaSources(FactBase[Sources]):
    """Reads a `Sources` in one command."""

    default = Sources

    def command(self) -> str:
        keyring = f"echo '{FILE_MARK} keyring'; base64 -w0 {KEYRING} 2>/dev/null; echo"
        return f"{keyring}; {foreign_sources.question(NVIDIA)}"

    def process(self, output: list[str]) -> Sources:
        files = files_of(output)
        keyring, own = files.pop("keyring", ""), files.pop(SOURCE, "")
        return Sources(own, _decoded(keyring), tuple(files.items()))


@operation()
def nvidia_repository(repository: DriverRepository) -> Generator[FunctionCommand, None, None]:
    """Ensures that NVIDIA's repository is a source of its own, signed by the pinned key only.

    + repository: from `driver_repository`
    """
    there = host.get_fact(NvidiaSources)
    refuse_unclear(host.name, there)
    if is_right(there, repository):
        host.noop(f"{repository.address} is configured")
        return
    yield step(provide, repository)


def is_right(there: Sources, repository: DriverRepository) -> bool:
    """Whether the host has this repository with this key, and no other source of NVIDIA's packages."""
    others = foreign_sources.naming(dict(there.others), NVIDIA)
    trusted = openpgp.holds_only(there.keyring, repository.fingerprint)
    return there.own == source(repository).strip() and trusted and not others


def refuse_unclear(name: str, there: Sources) -> None:
    """Raises HostFailed if a source accepts NVIDIA's packages unsigned, or shares its file with other sources."""
    foreign_sources.refuse_unclear(name, dict(there.others), NVIDIA, "NVIDIA's packages")


def provide(host: Host, repository: DriverRepository) -> None:
    """Adds the repository as a separate source with its checked key, and disables other sources of it."""
    others = dict(host.get_fact(NvidiaSources).others)
    replace_sources(host, fetched_key(host, repository), KEYRING, others, NVIDIA, {SOURCE: source(repository)})


def replace_sources(
    host: Host, key: bytes, keyring: str, others: Mapping[str, str], named: str, files: Mapping[str, str]
) -> None:
    """Disables sources of a repository, and writes rigup's with its key.

    others: texts of apt's files by path. named: the part of an address that identifies the repository. files: of
    rigup's, by path; the source is the first.
    """
    foreign_sources.put_aside(host, others, named, next(iter(files)))
    remote.make_folders(host, keyring.rpartition("/")[0])
    remote.write_file(host, keyring, key)
    for path, text in files.items():
        remote.write_file(host, path, text)


def fetched_key(host: Host, repository: DriverRepository, setting: str = "nvidia") -> bytes:
    """The repository's key, fetched by the host and checked here. Raises HostFailed if the fingerprint differs.

    setting: the prefix of the group_data keys that set another repository or key.
    """
    curl = "curl --fail --silent --show-error --location --max-time 60 --output -"
    fetch = f'{curl} "$1" | head -c {MOST_KEY} | base64 -w0'
    fetched = remote.run(host, "sh", "-c", fetch, "rigup", repository.key_address, timeout=90)
    data = _decoded(fetched.stdout.strip())
    if not data:
        raise HostFailed(
            f"{host.name}: cannot fetch {repository.key_address}: {fetched.last_line}",
            f"check the host's network, or set a mirror: {setting}_repository in group_data",
        )
    try:
        found = openpgp.fingerprints(data)
    except ValueError as error:
        raise HostFailed(
            f"{host.name}: {repository.key_address}: {error}", "check that the address is NVIDIA's repository"
        ) from None
    if found != (repository.fingerprint,):
        raise HostFailed(
            f"{host.name}: {repository.key_address}: the key's fingerprint is {' and '.join(found)}, not the "
            f"pinned {repository.fingerprint}",
            f"nothing was changed; verify the key before you pin it: {setting}_key_fingerprint in group_data",
        )
    return openpgp.binary(data)


def refresh(host: Host, step: str, repository: DriverRepository, source: str = SOURCE, setting: str = "nvidia") -> None:
    """Fetches the repository's package list. Raises HostFailed if that fails or its signature is wrong.

    source: its file. setting: as for `fetched_key`.
    """
    try:
        commands.update(host, step, source)
    except HostFailed as error:
        raise HostFailed(
            error.message.replace(f"{host.name}: {step}:", f"{host.name}: {repository.address}:", 1),
            f"check the host's network, or set a mirror: {setting}_repository in group_data",
        ) from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""
