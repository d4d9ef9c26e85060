"""Images as builds by name, and what is said of a host's container toolkit; the pull itself is rehearsed in the lab."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigup.artifacts import LockedImage
from rigup.errors import HostFailed
from rigup.operations.apt.nvidia_repository import RepositorySources, SignedRepository, Sources
from rigup.operations.apt.openpgp import binary
from rigup.operations.builds.source import name_of
from rigup.operations.container import nvidia_container_toolkit as toolkit
from rigup.operations.container.nvidia_container_toolkit import DescribedDrivers, toolkit_source
from rigup.operations.primitives.command_parts import FILE_MARK
from rigup.plan import Build
from rigup.programs import program_file
from rigup.systemd.container_files import SOURCE, mirrors, toolkit_files, toolkit_repository
from tests.unit.operations.apt.test_openpgp import ARMOURED, FINGERPRINT

DIGEST = "sha256:" + "0" * 64
IMAGE = LockedImage(engine="vllm", version="0.20.2", repository="docker.io/vllm/vllm-openai", digest=DIGEST)
BUILD = Build(engine="vllm", version="0.20.2", method="image", image=IMAGE)
PULL = program_file("pull_image.py")


def test_another_digest_is_another_build() -> None:
    other = BUILD.model_copy(update={"image": IMAGE.model_copy(update={"digest": "sha256:" + "1" * 64})})
    names = {name_of(build, "x86_64", "debian-13") for build in (BUILD, other)}
    assert len(names) == 2
    assert all(name.startswith("vllm-0.20.2-") for name in names)


def test_mirrors_as_podman_reads_them() -> None:
    text = mirrors({"docker.io": "http://mirror.lan:5000", "ghcr.io": "https://mirror.lan"})
    assert text == (
        "# Written by rigup\n\n"
        '[[registry]]\nprefix = "docker.io"\nlocation = "docker.io"\n\n'
        '[[registry.mirror]]\nlocation = "mirror.lan:5000"\ninsecure = true\n\n'
        '[[registry]]\nprefix = "ghcr.io"\nlocation = "ghcr.io"\n\n'
        '[[registry.mirror]]\nlocation = "mirror.lan"\ninsecure = false\n'
    )
    assert mirrors({}) == ""


def test_the_toolkits_repository_and_a_mirror_of_it() -> None:
    own = toolkit_repository("x86_64")
    assert own.address == "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/"
    assert own.key_address == "https://nvidia.github.io/libnvidia-container/gpgkey"
    assert own.fingerprint == "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
    mirror = toolkit_repository("aarch64", "http://mirror.lan/libnvidia-container/stable/deb", "A" * 40)
    assert mirror.address == "http://mirror.lan/libnvidia-container/stable/deb/arm64/"
    assert mirror.key_address == "http://mirror.lan/libnvidia-container/gpgkey"
    assert mirror.fingerprint == "A" * 40


def test_apt_keeps_the_toolkit_at_the_pinned_version() -> None:
    source, held = toolkit_files(toolkit_repository("x86_64")).values()
    assert "Signed-By: /etc/apt/keyrings/rigup-nvidia-container-toolkit.gpg\n" in source
    assert "Package: nvidia-container-toolkit-base nvidia-container-toolkit libnvidia-container*\n" in held
    assert "Pin: version 1.20.1-*\n" in held or "Pin: version 1.20.1" in held


def test_what_a_host_says_of_its_gpus_for_containers() -> None:
    lines = ["libcuda.so.580.178.04", "libcuda.so.1", "libcuda.so.580.178.04", ""]
    assert DescribedDrivers().process(lines) == ("580.178.04",)
    assert DescribedDrivers().process([]) == DescribedDrivers.default()


def test_another_mirror_of_the_toolkit_is_another_source() -> None:
    first, second = (
        toolkit_repository("x86_64", f"http://{mirror}/stable/deb", FINGERPRINT) for mirror in ("a.lan", "b.lan")
    )
    there = Sources(binary(ARMOURED), {SOURCE: toolkit_files(first)[SOURCE].strip()})
    assert toolkit_source(first).is_right(there)
    assert not toolkit_source(second).is_right(there)


def test_a_source_of_the_toolkit_as_nvidias_guide_writes_it_is_put_aside_before_rigups_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = toolkit_repository("x86_64")
    source = toolkit_source(repository)
    assert source.named == "https://nvidia.github.io/libnvidia-container/stable/deb/"
    path = "/etc/apt/sources.list.d/nvidia-container-toolkit.list"
    line = f"deb [signed-by=/usr/share/keyrings/nvidia.gpg] {source.named}$(ARCH) /"
    lines = [f"{FILE_MARK} {path}", line, "", f"{FILE_MARK} {SOURCE}", *"Types: deb\n\nURIs: x".splitlines()]
    standing = RepositorySources().process(lines)
    assert standing.files == {path: line, SOURCE: "Types: deb\n\nURIs: x"}

    sent: list[tuple[str, ...]] = []
    host = SimpleNamespace(name="box", get_fact=lambda *_, **__: standing)
    monkeypatch.setattr(SignedRepository, "fetched_key", lambda *_: b"key")
    monkeypatch.setattr(toolkit.remote, "check_output", lambda _, *words, **__: sent.append(words))
    monkeypatch.setattr(toolkit.remote, "script", lambda *_, **__: "")
    monkeypatch.setattr(toolkit.remote, "write_file", lambda _, path, text: sent.append(("write", path)))
    monkeypatch.setattr(toolkit.commands, "update", lambda *_, **__: (_ for _ in ()).throw(HostFailed("end")))
    with pytest.raises(HostFailed):
        toolkit._have(host, source, "580.178.04", installed=False)
    assert sent[0] == ("mv", path, f"{path}.disabled")
    assert ("write", SOURCE) in sent


def test_a_pull_says_how_far_it_is_and_ends_with_podmans_words(tmp_path: Path) -> None:
    podman = tmp_path / "podman"
    podman.write_text('#!/bin/sh\n[ -z "$NOTIFY_SOCKET" ] || exit 9\necho "Copying blob sha256:1" >&2\n'
                      'read -r _ <"$(dirname "$0")/go"\necho "Error: no such image" >&2\nexit 125\n')  # fmt: skip
    podman.chmod(0o755)
    os.mkfifo(tmp_path / "go")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        pulling = subprocess.Popen(
            [sys.executable, str(PULL), "docker.io/x@sha256:0", str(tmp_path)],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.PIPE,
            text=True,
        )
        said = ""
        while "1 layers begun" not in said:
            said = sock.recv(1000).decode()
        assert said.startswith("STATUS=1 layers begun, ") and said.endswith(" GB written")
        (tmp_path / "go").write_text("\n")
        _, error = pulling.communicate(timeout=60)
    assert pulling.returncode == 125
    assert error.splitlines()[-1] == "Error: no such image"
