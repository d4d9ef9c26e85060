"""Secrets come out of files that only their owner can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.errors import InputError
from rigup.fleet.settings import HUB, read_settings
from rigup.plan import Plan
from rigup.rig import Rig
from rigup.service import Service


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


def test_bad_settings(tmp_path: Path) -> None:
    secret(tmp_path / "open", "token", 0o644)
    secret(tmp_path / "empty", "\n")
    for data, message, hint in (
        ({"hub": "hub.lan"}, 'hub: "hub.lan" is not an address', f'write hub = "{HUB}"'),
        ({"hub_token_file": "gone"}, "hub_token_file: gone does not exist", f"looked in {tmp_path}"),
        ({"hub_token_file": "open"}, "hub_token_file: open can be read by others", "chmod 600 open"),
        (
            {"hub_token_file": "empty"},
            "hub_token_file: empty must hold one secret on one line",
            "it is empty, or has more",
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
        ({"nvidia_repository": "mirror.lan"}, 'nvidia_repository: "mirror.lan" is not an address'),
        ({"nvidia_repository": "https://a b"}, 'nvidia_repository: "https://a b" is not an address'),
        ({"nvidia_key_fingerprint": "3BF863CC"}, 'nvidia_key_fingerprint: "3BF863CC" is not a whole fingerprint'),
    ],
)
def test_a_mirror_that_cannot_be_meant(data: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_settings(data, (plan(),), tmp_path, dict.fromkeys(data, "group_data/boxes.py"))
    assert caught.value.message == f"group_data/boxes.py: {message}"
