"""The program that has certbot answer where the ACME server asks, and HAProxy take its certificate over."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from rigup.gateway.paths import ACME_FILE, ACME_STATE, ACME_USER, CONFIGURATION_FILE, UNIT, USER
from rigup.programs.gateway import gateway_certificate as program
from tests.certificates import certificate_with_key
from tests.hostile import bounded

NONE = "certbot has kept no certificate"
PEM, OTHER = certificate_with_key("one.example.org"), certificate_with_key("two.example.org")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """kept: what certbot has. told: what systemctl was told, of which it refuses `refused`."""
    found: dict[str, Any] = {"kept": PEM, "told": [], "refused": (), "target": tmp_path / "acme/certificate.pem"}
    configuration = tmp_path / "haproxy.cfg"
    configuration.write_text(f"bind :443 ssl crt {found['target']}\n")
    monkeypatch.setattr(program, "TARGET", found["target"])
    monkeypatch.setattr(program, "CONFIGURATION", configuration)
    monkeypatch.setattr(program, "READER", "root")
    monkeypatch.setattr(program, "kept", lambda lineage: found["kept"])

    def succeeds(verb: str) -> bool:
        found["told"].append(verb)
        return verb not in found["refused"]

    monkeypatch.setattr(program, "succeeds", succeeds)
    return found


def test_it_means_what_rigup_means() -> None:
    assert (str(program.TARGET), str(program.CONFIGURATION)) == (ACME_FILE, CONFIGURATION_FILE)
    assert (program.UNIT, program.OWNER, program.READER) == (UNIT, ACME_USER, USER)
    assert f"{ACME_STATE}/config/live" == program.KEPT


def test_haproxy_can_read_it_whatever_the_units_umask(site: dict[str, Any]) -> None:
    before = os.umask(0o077)
    try:
        assert program.deploy("gateway-x") == ""
    finally:
        os.umask(before)
    assert site["target"].parent.stat().st_mode & 0o777 == 0o755
    assert site["target"].stat().st_mode & 0o777 == 0o640


def test_a_new_certificate_is_a_reload_and_the_same_one_is_nothing(site: dict[str, Any]) -> None:
    assert program.deploy("gateway-x") == program.deploy("gateway-x") == ""
    assert site["told"] == ["is-active", "reload"]
    assert site["target"].read_text() == PEM
    assert site["target"].stat().st_mode & 0o777 == 0o640


def test_one_that_haproxy_refuses_is_taken_back(site: dict[str, Any]) -> None:
    program.deploy("gateway-x")
    site |= {"kept": OTHER, "refused": ("reload",)}
    assert program.deploy("gateway-x") == "HAProxy refuses the certificate; the earlier one stays"
    assert site["target"].read_text() == PEM


def test_before_haproxy_has_a_part_in_it_nothing_is_reloaded(site: dict[str, Any]) -> None:
    program.CONFIGURATION.write_text("bind :8080\n")
    assert program.deploy("gateway-x") == ""
    assert site["told"] == [] and site["target"].read_text() == PEM


@pytest.mark.parametrize("text", ["", "root:x:0:0:root:/root:/bin/bash\n", PEM.partition("-----BEGIN PRIVATE")[0]])
def test_what_is_not_a_certificate_with_its_key_is_not_taken_over(site: dict[str, Any], text: str) -> None:
    site["kept"] = text
    assert program.deploy("gateway-x") == NONE
    assert not site["target"].exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="reads as another user")
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "what certbot has kept is larger than 1 MiB"),
        (os.mkfifo, NONE),
        (lambda path: path.write_bytes(b"\xff" * 100), NONE),
    ],
    ids=["without end", "pipe", "not text"],
)
def test_root_reads_what_certbots_user_has_made_within_limits(
    make: Any, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TemporaryDirectory() as kept:  # pytest's own is closed to others
        Path(kept).chmod(0o755)
        (Path(kept) / "x").mkdir(mode=0o755)
        make(Path(kept) / "x/fullchain.pem")
        (Path(kept) / "x/privkey.pem").write_text(f"-----BEGIN PRIVATE{PEM.partition('-----BEGIN PRIVATE')[2]}")
        for name, value in {"KEPT": kept, "OWNER": "daemon", "SECONDS": 1, "TARGET": tmp_path / "new"}.items():
            monkeypatch.setattr(program, name, value)
        with bounded():
            assert program.deploy("x") == expected
    assert not program.TARGET.exists()


def test_certbot_answers_behind_haproxy_or_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(program.os, "execv", lambda path, words: started.append(words))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(program, "HTTP", listener.getsockname()[1])
        program.obtain("0.0.0.0", "300", ["certonly"])
    program.obtain("0.0.0.0", "300", ["certonly"])
    assert [words[1:] for words in started] == [
        ["certonly", "--http-01-address", "127.0.0.1", "--http-01-port", "300"],
        ["certonly", "--http-01-address", "0.0.0.0", "--http-01-port", str(program.HTTP)],
    ]
