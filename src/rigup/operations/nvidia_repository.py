"""NVIDIA's package repository on a host, trusted by one key whose fingerprint was checked before it got there."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from pyinfra import host
from pyinfra.api import FactBase, FunctionCommand, operation

from rigup.errors import HostFailed
from rigup.operations import apt_commands, openpgp, remote
from rigup.operations.steps import step
from rigup.planner.driver_packages import DriverRepository
from rigup.render.driver_files import KEYRING, SOURCE, source

_MARK = "##rigup-file##"
# Everything but a plain "no": apt takes many words for yes.
_TRUSTED = re.compile(r"trusted\s*[=:]\s*(?!no\b|false\b|0\b)\S", re.IGNORECASE)
_NVIDIA = re.compile(r"/compute/cuda/repos/")


@dataclass(frozen=True)
class Sources:
    """What apt on a host knows of NVIDIA: rigup's source, the key that it trusts, other files that name NVIDIA's."""

    own: str = ""
    keyring: bytes = b""
    others: tuple[tuple[str, str], ...] = ()


class NvidiaSources(FactBase[Sources]):
    """Reads a `Sources` in one command."""

    @staticmethod
    def default() -> Sources:
        return Sources()

    def command(self) -> str:
        files = "/etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources"
        return (
            f"echo '{_MARK} keyring'; base64 -w0 {KEYRING} 2>/dev/null; echo; "
            f'for file in {files}; do grep -qs /compute/cuda/repos/ "$file" && '
            f'{{ echo \'{_MARK}\' "$file"; cat "$file"; echo; }}; done; true'
        )

    def process(self, output: list[str]) -> Sources:
        parts: dict[str, list[str]] = {}
        for line in output:
            if line.startswith(_MARK):
                parts[line.removeprefix(_MARK).strip()] = []
            elif parts:
                parts[next(reversed(parts))].append(line)
        texts = {name: "\n".join(lines).strip() for name, lines in parts.items()}
        keyring = texts.pop("keyring", "")
        own = texts.pop(SOURCE, "")
        return Sources(own, _decoded(keyring), tuple(texts.items()))


@operation()
def nvidia_repository(repository: DriverRepository) -> Generator[FunctionCommand, None, None]:
    """Have NVIDIA's repository as a source of its own, signed by the pinned key and by no other.

    + repository: from `driver_repository`
    """
    there = host.get_fact(NvidiaSources)
    refuse_trusted(host.name, there)
    if is_right(there, repository):
        host.noop(f"{repository.address} is a source")
        return
    yield step(provide, repository)


def is_right(there: Sources, repository: DriverRepository) -> bool:
    """Whether the host has this repository, with this key, and no other way to NVIDIA's packages."""
    try:
        keys = openpgp.fingerprints(there.keyring)
    except ValueError:
        return False
    return there.own == source(repository).strip() and keys == (repository.fingerprint,) and not _active(there)


def _active(there: Sources) -> list[str]:
    """The other files that still name NVIDIA's packages in a line that counts."""
    return [
        path
        for path, text in there.others
        if any(_NVIDIA.search(line) for line in text.splitlines() if not line.lstrip().startswith("#"))
    ]


def refuse_trusted(name: str, there: Sources) -> None:
    """Raises HostFailed where a source takes NVIDIA's packages without a signature."""
    for path, text in there.others:
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        if any(_TRUSTED.search(line) for line in lines) and path in _active(there):
            raise HostFailed(
                f"{name}: {path} trusts NVIDIA's packages without checking a signature (trusted=yes)",
                f"remove {path}: rigup adds the repository with its key's fingerprint pinned",
            )


def provide(host: Any, repository: DriverRepository) -> None:
    """Makes it a source of its own, with its checked key; other files that name NVIDIA's packages are put aside."""
    key = fetched_key(host, repository)
    for path in _active(host.get_fact(NvidiaSources)):
        # apt stops at two sources for one address with different keys; files that end in .disabled are passed over
        remote.tell(host, "mv", path, f"{path}.disabled")
    keep = 'install -d -m 755 "$(dirname "$1")"; base64 -d > "$1.new"; chmod 644 "$1.new"; mv "$1.new" "$1"'
    remote.tell(host, "sh", "-c", f"set -eu\n{keep}", "rigup", KEYRING, stdin=base64.b64encode(key).decode())
    remote.write_file(host, SOURCE, source(repository))


def fetched_key(host: Any, repository: DriverRepository, setting: str = "nvidia") -> bytes:
    """The key that the repository offers, fetched by the host, checked here. Raises HostFailed where it is another.

    setting: how the keys of group_data begin that name another repository, or another key to it.
    """
    fetch = 'curl --fail --silent --show-error --location --max-time 60 --output - "$1" | base64 -w0'
    said = remote.ask(host, "sh", "-c", fetch, "rigup", repository.key_address, timeout=90)
    data = _decoded(said.stdout.strip())
    if not data:
        raise HostFailed(
            f"{host.name}: {repository.key_address}: cannot be fetched from there: {said.last_line}",
            f"can the host reach it? {setting}_repository in group_data names a mirror",
        )
    try:
        found = openpgp.fingerprints(data)
    except (ValueError, binascii.Error) as error:
        raise HostFailed(f"{host.name}: {repository.key_address}: {error}", "is that NVIDIA's repository?") from None
    if found != (repository.fingerprint,):
        raise HostFailed(
            f"{host.name}: {repository.key_address}: the key's fingerprint is {' and '.join(found)}, "
            f"pinned is {repository.fingerprint}",
            f"nothing was changed: find out why before you trust it ({setting}_key_fingerprint pins another key)",
        )
    return openpgp.binary(data)


def refresh(host: Any, step: str, repository: DriverRepository) -> None:
    """Fetches the repository's package list. Raises HostFailed where it cannot be had or its signature is not right."""
    try:
        apt_commands.update(host, step, SOURCE)
    except HostFailed as error:
        raise HostFailed(
            error.message.replace(f"{host.name}: {step}:", f"{host.name}: {repository.address}:", 1),
            "can the host reach it? nvidia_repository in group_data names a mirror",
        ) from None


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""
