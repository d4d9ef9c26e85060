"""In which order a certificate comes to a host, and what stays as it was where none comes."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from rigup.errors import HostFailed
from rigup.gateway.acme import certificate_units
from rigup.gateway.paths import ACME_PORT, ACME_TIMER, ACME_TIMER_FILE, ACME_UNIT, ACME_UNIT_FILE
from rigup.gateway_settings import Acme, Certificate, Gateway
from rigup.operations.gateway import certificate
from rigup.operations.primitives import remote

UNITS = {ACME_UNIT_FILE: "[Service]\nnew\n", ACME_TIMER_FILE: "[Timer]\n"}
DIRECTORY = "https://acme.example.org/directory"
CERTBOT = """\
Saving debug log to /var/lib/rigup/acme/logs/letsencrypt.log
  Domain: llm.example.org
  Detail: 192.0.2.1: Fetching http://llm.example.org/: Timeout
Some challenges have failed.
Ask for help or search for solutions at https://community.letsencrypt.org.
"""


class Machine:
    """Stands for a host. fails: what ends with an error there. earlier: the unit that it has."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: str = "", earlier: str = "") -> None:
        self.name, self.fails, self.earlier = "gw1.lan", fails, earlier
        self.done: list[str] = []
        monkeypatch.setattr(remote, "run", self.run)
        monkeypatch.setattr(remote, "check_output", self.run)
        monkeypatch.setattr(remote, "script", lambda host, text, *words, **_: self.run(host, text, *words))
        monkeypatch.setattr(remote, "write_file", lambda host, path, text: self.run(host, "write", path, text))

    def run(self, host: Any, *words: str, **_: Any) -> Mock:
        if words[0] not in ("cat", "curl", "journalctl"):
            self.done.append(" ".join(words))
        stdout = {"cat": self.earlier, "journalctl": CERTBOT}.get(words[0], "")
        return Mock(ok=not self.fails or self.fails not in words, stdout=stdout)


def test_the_timer_begins_once_there_is_a_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = Machine(monkeypatch)
    certificate._obtain(host, UNITS, DIRECTORY)
    start = host.done.index(f"systemctl start {ACME_UNIT}")
    assert [line.split()[1] for line in host.done[:start] if line.startswith("write")] == [ACME_UNIT_FILE]
    written = [line.split()[1] for line in host.done[start:] if line.startswith("write")]
    assert written == [ACME_UNIT_FILE, ACME_TIMER_FILE]
    assert host.done[-1].endswith(ACME_TIMER)


def test_certbot_answers_where_haproxy_still_asks_until_that_has_its_new_configuration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acme = Acme(domains=("llm.example.org",), directory=DIRECTORY)
    units = certificate_units(Gateway(tls=Certificate(acme=acme)), acme)
    earlier = units[ACME_UNIT_FILE].replace(f" {ACME_PORT} certonly ", " 8404 certonly ")
    assert earlier != units[ACME_UNIT_FILE]
    host: Any = Machine(monkeypatch, earlier=earlier)
    certificate._obtain(host, units, DIRECTORY)
    start = host.done.index(f"systemctl start {ACME_UNIT}")
    assert host.done[:start] == [f"write {ACME_UNIT_FILE} {earlier}", "systemctl daemon-reload"]
    assert f"write {ACME_UNIT_FILE} {units[ACME_UNIT_FILE]}" in host.done[start:]


def test_a_directory_that_does_not_answer_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = Machine(monkeypatch, fails="curl")
    with pytest.raises(HostFailed) as caught:
        certificate._obtain(host, UNITS, DIRECTORY)
    assert caught.value.message == f"gw1.lan: the ACME directory {DIRECTORY} does not answer"
    assert host.done == []


@pytest.mark.parametrize("earlier", ["", "[Service]\nold"])
def test_a_name_that_is_not_validated_leaves_the_earlier_unit(monkeypatch: pytest.MonkeyPatch, earlier: str) -> None:
    host: Any = Machine(monkeypatch, fails="start", earlier=earlier)
    with pytest.raises(HostFailed) as caught:
        certificate._obtain(host, UNITS, DIRECTORY)
    assert caught.value.message == (
        f"gw1.lan: no certificate from {DIRECTORY}: 192.0.2.1: Fetching http://llm.example.org/: Timeout; "
        "the gateway stays as it was"
    )
    assert f"write {ACME_UNIT_FILE} {earlier}" in host.done if earlier else f"rm -f {ACME_UNIT_FILE}" in host.done
    assert not any(ACME_TIMER in line for line in host.done)
