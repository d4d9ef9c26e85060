"""The wheel in an environment of its own, from an empty folder to a service that answers; no checkout in sight."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from tests.lab.fleet import ANSWER, Host
from tests.lab.fleet_fixtures import made_site

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("the wheel", "the run", "new hosts")]

ROOT = Path(__file__).parents[2]


class Installed:
    """A virtual environment with the wheel, and an empty folder to run its programs in."""

    def __init__(self, folder: Path, fleet: Path, cache: Path) -> None:
        self.programs, self.fleet, self.cache = folder / "bin", fleet, cache

    def run(self, program: str, *words: str, expect: int = 0) -> str:
        """Runs a program of the environment to this exit code; returns what it printed."""
        kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [self.programs / program, *words],
            cwd=self.fleet,
            env={**kept, "XDG_CACHE_HOME": str(self.cache)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, StandInHub, Path, Path]]:
    """One booted machine, a hub with a small checkpoint, a lock that pins it and a stand-in engine, a cache."""
    with made_site(tmp_path_factory.mktemp("site"), f"wheel{os.getpid()}", packages=(), hosts=1) as made:
        yield made


@pytest.fixture(scope="module")
def installed(site: tuple[Lab, StandInHub, Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel of this checkout, with what it depends on from the index, as `pip install rigup` would have it."""
    wheels, environment, fleet = (tmp_path_factory.mktemp(name) for name in ("wheels", "environment", "empty"))
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    (wheel,) = wheels.glob("rigup-*.whl")
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [environment / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, str(wheel)], check=True)
    return Installed(environment, fleet, site[3])


def test_every_verb_runs_from_an_empty_folder(installed: Installed, site: tuple[Lab, StandInHub, Path, Path]) -> None:
    lab, hub, locked, _ = site
    host = Host(lab.machines[0])
    toolkit = installed.run("python", "-m", "rigup.toolkit").strip()
    assert toolkit.endswith("site-packages/rigup/shipped")
    verbs = re.findall(r"^    (\w+) ", installed.run("rigup", "--help"), re.MULTILINE)
    assert {"init", "plan", "lock", "diff", "apply", "status", "report"} <= set(verbs)
    for verb in verbs:
        assert "usage: rigup" in installed.run("rigup", verb, "--help")
    assert list(installed.fleet.iterdir()) == []

    words = ("--ssh-config", str(host.machine.lab.ssh_config), "--group", "boxes")
    assert "inventories/boxes.py: new" in installed.run("rigup", "init", host.name, *words)
    assert sorted(path.name for path in installed.fleet.iterdir()) == [".gitignore", "group_data", "inventories"]
    assert "rigup.lock does not exist" in installed.run("rigup", "lock", "--check", expect=1)

    service = {"model": "SmolLM2-135M-Instruct", "context": 8192}
    (installed.fleet / "group_data/boxes.py").write_text(
        f'rig = {{"gpus": []}}\nservices = {{"chat": {service!r}}}\nhub = {hub.url!r}\n'
    )
    assert "none refused" in installed.run("rigup", "plan")
    shutil.copy(locked / "rigup.lock", installed.fleet)
    assert "release of chat" in installed.run("rigup", "diff", expect=1)
    installed.run("rigup", "apply", "--yes")
    assert host.answers()
    assert "no changes" in installed.run("rigup", "apply", "--yes")
    assert "answers" in installed.run("rigup", "status", "--html", "status.html")
    assert "prefers-color-scheme: dark" in (installed.fleet / "status.html").read_text()
    assert ANSWER not in installed.run("rigup", "report", host.name)

    host.tell("echo >> /opt/rigup/programs/ask.py")
    installed.run("pyinfra", "-y", "inventories/boxes.py", f"{toolkit}/deploy/site.py")
    assert "no changes" in installed.run("rigup", "diff")
