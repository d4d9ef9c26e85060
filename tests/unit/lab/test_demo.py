"""bin/demo: what stops it is one message, what it tells its user to run works, and the checkout stays its user's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from rigup.errors import MissingTool
from rigup.lab import demo
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab

BIN = Path(__file__).parents[3] / "bin"
PROGRAMS = {
    "id": 'echo "$USER_ID"',
    "dpkg-query": "echo installed",
    "sudo": 'echo "sudo $*" >>"$LOG"',
    "python3": """
case "$*" in "-m venv"*)
    echo "python3 -m venv" >>"$LOG"
    mkdir -p "$4/bin" "$4/lib" && printf '#!/bin/sh\\necho "python $1 $2 $3 $4" >>"$LOG"\\n' >"$4/bin/python"
    chmod +x "$4/bin/python";;
esac""",
}


@pytest.mark.parametrize(
    ("stopped", "code", "said"),
    [
        (
            MissingTool("the lab needs ip", "apt-get install ip"),
            2,
            "bin/demo: the lab needs ip\nhint: apt-get install ip\n",
        ),
        (KeyboardInterrupt(), 130, "cancelled\n"),
    ],
)
def test_what_stops_it_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stopped: BaseException, code: int, said: str
) -> None:
    def up(*_: object, **__: object) -> Lab:
        raise stopped

    monkeypatch.setattr(Lab, "up", up)
    assert demo.main([]) == code
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("prefix", ["", demo.THROUGH_SUDO])
def test_what_it_tells_to_run_works_for_who_called(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    demo.look_around(prefix, demo.INVENTORY)
    commands = [line.partition(":  ")[2].strip() for line in capsys.readouterr().out.splitlines()[2:]]
    assert commands[0] == f"{prefix}ssh -F /c/rigup/lab/labs/demo/ssh_config demo1"
    assert commands[-1] == f"{prefix}.venv/bin/rigup diff inventories/demo.py"


def test_with_gpus_it_applies_the_fleet_of_the_lab(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[object] = []
    machine = SimpleNamespace(ssh=lambda command, check: SimpleNamespace(stdout=f"{command}\n0, 1206 MiB\n"))
    lab = SimpleNamespace(folder=SimpleNamespace(inventory=Path("/l/inventory.py")), machines=[machine], down=list)
    monkeypatch.setattr(Lab, "up", lambda name, hosts, rig, hub, log: said.append((rig, hub)) or lab)
    monkeypatch.setattr(StandInHub, "start", lambda served, lab: said.append((served, lab)))
    monkeypatch.setattr(demo.demo_model, "provide", lambda: "served")
    monkeypatch.setattr(demo, "rigup", lambda *words: said.append(words))
    assert demo.main(["--gpus", "4x RTX 3090"]) == 0
    applied = ("apply", "/l/inventory.py", "--yes")
    assert said == [
        ("4x RTX 3090", "http://hub:8090"),
        ("served", "demo"),
        ("plan", "/l/inventory.py"),
        (*applied, "--reboot"),
        applied,
        ("status", "/l/inventory.py"),
    ]
    assert "nvidia-smi" in (out := capsys.readouterr().out) and "0, 1206 MiB\n" in out


def run(folder: Path, user: int, *words: str, **environment: str) -> list[str]:
    """Runs bin/demo in an empty checkout, every program that it needs replaced by one that notes its call."""
    shutil.copytree(BIN, folder / "bin", dirs_exist_ok=True)
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, script in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    for name in ("pyproject.toml", "requirements.txt"):
        (folder / name).touch()
    log = folder / "log"
    log.write_text("")
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    told = {"PATH": path, "PYTHON": "python3", "LOG": str(log), "USER_ID": str(user)}
    told |= {"XDG_CACHE_HOME": str(folder / "cache"), **environment}
    subprocess.run([folder / "bin/demo", *words], env=told, check=True, capture_output=True, timeout=60)
    return log.read_text().splitlines()


def test_the_environment_is_made_by_who_called_and_used_by_root(tmp_path: Path) -> None:
    first = run(tmp_path, 1000, "--keep")
    assert first[0] == "python3 -m venv"
    assert first[-2:] == ["python -m compileall -q src", f"sudo {tmp_path}/bin/demo --keep"]
    assert run(tmp_path, 0, "--keep", SUDO_UID="1000") == ["python -m rigup.lab.demo --through-sudo --keep"]
    assert run(tmp_path, 0, "--keep") == ["python -m rigup.lab.demo --keep "]
