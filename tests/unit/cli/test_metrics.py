"""`rigup metrics`: what it writes, what it leaves out and says so, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rigup.cli.main import main

SERVICE = {"model": "SmolLM2-135M-Instruct"}
OPEN = {**SERVICE, "listen": "0.0.0.0", "api_key_file": "secrets/chat.key"}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a fleet of one group and makes its folder the current one."""
    monkeypatch.chdir(tmp_path)

    def write(hosts: list[Any], **data: Any) -> None:
        for folder in ("inventories", "group_data"):
            (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / "inventories/fleet.py").write_text(f"boxes = {hosts!r}\n")
        said = {"rig": {"gpus": []}, "services": {"chat": SERVICE}, **data}
        (tmp_path / "group_data/boxes.py").write_text("".join(f"{key} = {value!r}\n" for key, value in said.items()))

    return write


def test_what_others_reach_is_written_and_the_key_is_only_named(
    fleet: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet(["ada@gpu1.lan"], services={"chat": OPEN}, monitoring={"listen": "0.0.0.0"})
    assert main(["metrics"]) == 0
    said = capsys.readouterr()
    assert said.out == (
        "wrote monitoring/prometheus.yml\nwrote monitoring/alerts.yml\nwrote monitoring/dashboard.json\n"
        "2 targets on 1 host\n"
    )
    assert said.err == (
        "gpu1.lan: chat: reading its metrics requires the API key of the service; "
        "put it into monitoring/keys/gpu1.lan.chat.key, "
        "readable by Prometheus only\n"
    )
    text = (tmp_path / "monitoring/prometheus.yml").read_text()
    assert '"gpu1.lan:8000"' in text and '"gpu1.lan:9100"' in text and "ada@" not in text
    assert json.loads((tmp_path / "monitoring/dashboard.json").read_text())["title"] == "rigup fleet"


def test_what_is_on_loopback_is_left_out_and_said(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(["gpu1.lan"])
    assert main(["metrics", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {
        "schema": 1,
        "targets": [],
        "left_out": [
            {
                "host": "gpu1.lan",
                "what": "chat",
                "why": "listens on 127.0.0.1:8000, for that host only",
                "hint": 'set listen = "0.0.0.0" or an address; or run Prometheus on that host: --from gpu1.lan',
            },
            {
                "host": "gpu1.lan",
                "what": "the machine itself",
                "why": "no exporter runs there",
                "hint": "set monitoring = {} in group_data",
            },
        ],
        "written": [],
    }
    assert said.err.splitlines()[0] == "gpu1.lan: chat left out: listens on 127.0.0.1:8000, for that host only"
    assert main(["metrics", "--json", "--from", "root@gpu1.lan"]) == 0
    (target,) = json.loads(capsys.readouterr().out)["targets"]
    assert (target["job"], target["address"], target["key_file"]) == ("llamacpp", "127.0.0.1:8000", "")


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--from", "gpu9.lan"], '--from: "gpu9.lan" is not a host of this inventory', "choose from: gpu1.lan"),
        (["--out", "group_data/boxes.py"], "--out: group_data/boxes.py: File exists", "name another folder"),
    ],
)
def test_bad_input(fleet: Any, capsys: pytest.CaptureFixture[str], words: list[str], message: str, hint: str) -> None:
    fleet(["gpu1.lan"])
    assert main(["metrics", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-2:] == [f"rigup: {message}", f"hint: {hint}"]


@pytest.mark.parametrize("verb", ["plan", "metrics"])
def test_a_monitoring_that_cannot_be_is_said_before_any_host_is_asked(
    fleet: Any, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    fleet(["gpu1.lan"], monitoring={"port": 8000})
    assert main([verb]) == 2
    assert capsys.readouterr().err == (
        "rigup: group_data/boxes.py: monitoring.port: 8000 is taken by services.chat\nhint: choose another port\n"
    )
