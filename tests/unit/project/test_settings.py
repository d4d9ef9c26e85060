"""Secrets come out of files that only their owner can read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.errors import InputError
from rigup.lock import Lock
from rigup.plan import Build, Plan
from rigup.project.settings import HUB, read_settings
from rigup.rig import Rig
from rigup.service import Service
from rigup.settings import OLLAMA, PackageSource
from tests.unit.planner.asking import NCCL, decided


def plan(**service: object) -> Plan:
    return Plan(host="h", group="g", verdict="ok", rig=Rig(gpus=()), service=Service(name="chat", model="m", **service))


def secret(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def test_the_public_hub_is_the_default_and_secrets_do_not_show(tmp_path: Path) -> None:
    secret(tmp_path / "chat.key", "sk-1234\n")
    settings = read_settings({}, (plan(api_key_file="chat.key"),), tmp_path)
    assert (settings.hub, settings.hub_token, settings.api_keys) == (HUB, None, {"chat": "sk-1234"})
    assert "sk-1234" not in repr(settings)


NO_URL = "is not a URL"
OWNER = "check the permissions of the file and its parent directories"


def test_a_secret_in_a_folder_that_may_not_be_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret(tmp_path / "chat.key", "sk-1234")

    def denied(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", denied)  # as for anybody but root, who may enter any
    with pytest.raises(InputError) as caught:
        read_settings({}, (plan(api_key_file="chat.key"),), tmp_path)
    assert (caught.value.message, caught.value.hint) == ("services.chat.api_key_file: chat.key cannot be read", OWNER)


def test_bad_settings(tmp_path: Path) -> None:
    secret(tmp_path / "open", "token", 0o644)
    secret(tmp_path / "empty", "\n")
    secret(tmp_path / "long", "x" * 8193)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "bytes").chmod(0o600)
    os.mkfifo(tmp_path / "pipe")
    for data, message, hint in (
        (
            {"hub_token_file": "pipe"},
            "hub_token_file: pipe is not a regular file",
            "write the secret as one line of text",
        ),
        (
            {"ollama_registry": "ollama.lan"},
            f'ollama_registry: "ollama.lan" {NO_URL}',
            f'write it like ollama_registry = "{OLLAMA}"',
        ),
        ({"hub": "hub.lan"}, f'hub: "hub.lan" {NO_URL}', f'write hub = "{HUB}"'),
        (
            {"hub_token_file": "gone"},
            "hub_token_file: gone does not exist",
            f"create it below {tmp_path}, or correct the path",
        ),
        ({"hub_token_file": "open"}, "hub_token_file: open is readable by other users", "chmod 600 open"),
        ({"hub_token_file": "bytes"}, "hub_token_file: bytes is not text", "write the secret as one line of text"),
        ({"hub_token_file": "x" * 300}, f"hub_token_file: {'x' * 300} cannot be read", OWNER),
        (
            {"hub_token_file": "long"},
            "hub_token_file: long is longer than 8,192 bytes",
            "write the secret as one line of text",
        ),
        (
            {"hub_token_file": "empty"},
            "hub_token_file: empty must hold one secret on one line",
            "remove other lines, or write the secret if the file is empty",
        ),
    ):
        with pytest.raises(InputError) as caught:
            read_settings(data, (plan(),), tmp_path)
        assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_mirror_of_nvidias_packages_and_its_key(tmp_path: Path) -> None:
    fingerprint = "eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc"
    data = {"nvidia_repository": "https://mirror.lan/cuda", "nvidia_key_fingerprint": fingerprint}
    settings = read_settings(data, (plan(),), tmp_path)
    assert settings.nvidia_repository == "https://mirror.lan/cuda"
    assert settings.nvidia_key_fingerprint == "EB693B3035CD5710E231E123A4B469963BF863CC"
    assert read_settings({}, (plan(),), tmp_path).nvidia_repository is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"nvidia_repository": "mirror.lan"}, f'nvidia_repository: "mirror.lan" {NO_URL}'),
        ({"nvidia_repository": "https://a b"}, f'nvidia_repository: "https://a b" {NO_URL}'),
        ({"nvidia_key_fingerprint": "3BF863CC"}, 'nvidia_key_fingerprint: "3BF863CC" is not a full fingerprint'),
    ],
)
def test_a_mirror_that_cannot_be_meant(data: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(data, (plan(),), tmp_path, dict.fromkeys(data, "group_data/boxes.py"))
    assert caught.value.message == f"group_data/boxes.py: {message}"


ENVIRONMENT = LockedEnvironment(
    engine="vllm",
    version="0.32.0",
    python="3.12.12",
    files={"torch-2.13.0-py3-none-any.whl": "0" * 64, "vllm-0.32.0-py3-none-any.whl": "1" * 64},
)
UV = LockedUv(version="0.13.9", files={"uv-0.13.9-py3-none-manylinux_2_28_aarch64.whl": "2" * 64,
                                       "uv-0.13.9-py3-none-manylinux_2_17_x86_64.whl": "3" * 64})  # fmt: skip


def installed() -> Plan:
    build = Build(engine="vllm", version="0.32.0", method="wheel", environment=ENVIRONMENT, uv=UV)
    return plan().model_copy(update={"build": build})


def test_where_python_packages_come_from(tmp_path: Path) -> None:
    assert read_settings({}, (installed(),), tmp_path).packages == PackageSource()
    data = {"package_index": "https://mirror.lan/simple", "python_mirror": "https://mirror.lan/python"}
    settings = read_settings(data, (installed(),), tmp_path)
    assert settings.packages == PackageSource("https://mirror.lan/simple", "https://mirror.lan/python")


def test_a_wheelhouse_has_every_file_for_the_hosts_architecture(tmp_path: Path) -> None:
    house = tmp_path / "house" / "wheels"
    house.mkdir(parents=True)
    wheels = [*ENVIRONMENT.files, "uv-0.13.9-py3-none-manylinux_2_17_x86_64.whl"]
    for wheel in wheels:
        (house / wheel).touch()
    found = read_settings({"wheelhouse": "house"}, (installed(),), tmp_path).packages
    assert found == PackageSource(wheelhouse=tmp_path / "house")

    (house / wheels[0]).unlink()
    (house / wheels[2]).unlink()
    with pytest.raises(InputError) as caught:
        read_settings({"wheelhouse": "house"}, (installed(),), tmp_path, {"wheelhouse": "group_data/boxes.py"})
    assert caught.value.message == (
        f"group_data/boxes.py: wheelhouse: {house} lacks {wheels[0]} and 1 more, which rigup.lock pins"
    )
    assert caught.value.hint == "add what is missing: rigup lock --vendor house"
    assert read_settings({"wheelhouse": "house"}, (plan(),), tmp_path).packages.wheelhouse == tmp_path / "house"


def test_a_wheelhouse_has_the_library_that_a_build_is_compiled_with(tmp_path: Path) -> None:
    house = tmp_path / "house/wheels"
    house.mkdir(parents=True)
    cut = {"model": "SmolLM2-135M-Instruct", "engine": "llama.cpp", "tensor_parallel": 2}
    planned = decided("2x RTX 3090", cut, 128, Lock(nccl=NCCL))
    wheel = NCCL.wheel("x86_64")
    with pytest.raises(InputError, match=f"house/wheels lacks {wheel}, which"):
        read_settings({"wheelhouse": "house"}, (planned,), tmp_path)
    (house / str(wheel)).touch()
    assert read_settings({"wheelhouse": "house"}, (planned,), tmp_path).packages.wheelhouse == tmp_path / "house"


def test_a_wheelhouse_may_hold_weights_alone(tmp_path: Path) -> None:
    (tmp_path / "house/weights").mkdir(parents=True)
    assert read_settings({"wheelhouse": "house"}, (plan(),), tmp_path).packages.wheelhouse == tmp_path / "house"
    with pytest.raises(InputError, match="house/wheels lacks "):
        read_settings({"wheelhouse": "house"}, (installed(),), tmp_path)


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (
            {"package_index": "mirror.lan/simple"},
            f'package_index: "mirror.lan/simple" {NO_URL}',
            "write it like https://mirror.lan/simple",
        ),
        (
            {"python_mirror": "https://me:secret@mirror.lan/python"},
            "python_mirror: the URL contains ",
            "use an index that serves your hosts without a password",
        ),
        (
            {"wheelhouse": "gone"},
            "wheelhouse: {root}/gone has no wheels folder",
            "create it: rigup lock --vendor gone",
        ),
    ],
)
def test_packages_from_nowhere(data: dict[str, str], message: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(data, (installed(),), tmp_path)
    assert caught.value.message.startswith(message.format(root=tmp_path)) and caught.value.hint == hint
