"""NVIDIA's repository is trusted by one key, checked here, and by no other way."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from rigup.errors import HostFailed
from rigup.operations.apt.nvidia_repository import RepositorySources, Sources, driver_source
from rigup.operations.apt.openpgp import binary
from rigup.plan import DriverRepository
from rigup.systemd.driver_files import SOURCE, source
from tests.unit.operations.apt.test_openpgp import ARMOURED, FINGERPRINT

ADDRESS = "https://mirror.lan/compute/cuda/repos/debian12/x86_64/"
REPOSITORY = DriverRepository(
    address=ADDRESS, key_address=f"{ADDRESS}key.pub", fingerprint=FINGERPRINT, architecture="amd64"
)
DRIVER = driver_source(REPOSITORY)
KEY = binary(ARMOURED)
OWN = source(REPOSITORY).strip()
GOOD = Sources(KEY, {SOURCE: OWN})
LIST = "/etc/apt/sources.list.d/cuda.list"


def path_of(text: str) -> str:
    return LIST if "deb [" in text else LIST.replace(".list", ".sources")


class Machine:
    """Stands for a host that fetches a file and prints it in base64."""

    def __init__(self, content: bytes, said: str = "") -> None:
        self.name, self.data = "box", SimpleNamespace(_sudo=None)
        self.state = SimpleNamespace(config=SimpleNamespace(SUDO=False))
        self.content, self.said = content, said

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        return True, SimpleNamespace(stdout=base64.b64encode(self.content).decode(), stderr=self.said)


def test_one_source_with_the_pinned_key_is_right() -> None:
    assert DRIVER.is_right(GOOD)


@pytest.mark.parametrize(
    "there",
    [
        Sources(),
        Sources(b"", {SOURCE: OWN}),
        Sources(KEY + KEY, {SOURCE: OWN}),
        Sources(KEY, {SOURCE: f"{OWN}\nTrusted: yes"}),
        Sources(KEY, {SOURCE: OWN, LIST: f"deb {ADDRESS} /"}),
    ],
    ids=["nothing", "no key", "two keys", "changed", "another source"],
)
def test_anything_else_is_not(there: Sources) -> None:
    assert not DRIVER.is_right(there)


def test_a_source_that_is_commented_out_does_not_count() -> None:
    assert DRIVER.is_right(Sources(KEY, {SOURCE: OWN, LIST: f"# deb [trusted=yes] {ADDRESS} /"}))


@pytest.mark.parametrize(
    "text",
    [f"deb [trusted=yes] {ADDRESS} /", f"deb [arch=amd64 trusted=1] {ADDRESS} /", f"URIs: {ADDRESS}\nTrusted: yes"],
)
def test_a_source_that_is_trusted_blindly_is_refused(text: str) -> None:
    with pytest.raises(HostFailed) as caught:
        DRIVER.refuse_unclear("box", Sources(b"", {path_of(text): text}))
    said = f"box: {path_of(text)} trusts NVIDIA's packages without checking a signature (trusted=yes)"
    assert caught.value.message == said
    assert path_of(text) in (caught.value.hint or "")


@pytest.mark.parametrize(
    "text", [f"deb [trusted=no] {ADDRESS} /", f"# deb [trusted=yes] {ADDRESS} /", f"URIs: {ADDRESS}\nTrusted: no"]
)
def test_a_source_that_checks_is_not(text: str) -> None:
    DRIVER.refuse_unclear("box", Sources(b"", {path_of(text): text}))


def test_the_key_is_taken_when_it_is_the_pinned_one() -> None:
    assert DRIVER.fetched_key(Machine(ARMOURED)) == KEY


@pytest.mark.parametrize(
    "content", [ARMOURED + ARMOURED, KEY.replace(b"tests", b"tEsts")[:1] + KEY[1:30] + b"x" + KEY[31:]]
)
def test_another_key_is_refused_with_both_fingerprints(content: bytes) -> None:
    with pytest.raises(HostFailed) as caught:
        DRIVER.fetched_key(Machine(content))
    assert f"pinned {FINGERPRINT}" in caught.value.message
    assert "the key's fingerprint is " in caught.value.message


def test_a_page_instead_of_a_key_is_refused() -> None:
    with pytest.raises(HostFailed) as caught:
        DRIVER.fetched_key(Machine(b"<html>"))
    assert caught.value.message == f"box: {REPOSITORY.key_address}: is not an OpenPGP key file"


def test_a_repository_out_of_reach_is_named_with_the_reason() -> None:
    with pytest.raises(HostFailed) as caught:
        DRIVER.fetched_key(Machine(b"", "curl: (6) Could not resolve host: mirror.lan"))
    assert REPOSITORY.key_address in caught.value.message
    assert "Could not resolve host: mirror.lan" in caught.value.message


def test_what_a_host_has_is_read_back() -> None:
    lines = ["a login banner", "##rigup-file## keyring", base64.b64encode(KEY).decode(), ""]
    lines += [f"##rigup-file## {SOURCE}", *source(REPOSITORY).splitlines(), ""]
    lines += [f"##rigup-file## {LIST}", f"deb {ADDRESS} /", ""]
    assert RepositorySources().process(lines) == Sources(KEY, {SOURCE: OWN, LIST: f"deb {ADDRESS} /"})
