"""The folder of tuned kernels on a booted machine: written once, mended, the build's own beneath, cleared away, told.

By plain pyinfra, with a stand-in for what a build of SGLang has in its package: no plan for a machine without GPUs has
such a folder.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from rigup.commands.moe_configs import SGLANG_PACKAGED, folder_files
from rigup.plan import MoeFolder
from rigup.toolkit import toolkit_root
from tests.lab.fleet import Fleet, wait_for
from tests.tuned_kernels import file_of, kernel

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "tuning", "running services")]

BUILD = "/opt/rigup/builds/sglang-stand-in"
PACKAGED = f"{BUILD}/lib/python3.12/site-packages/{SGLANG_PACKAGED[0]}/triton_3_6_0"
FOLDERS = "/etc/rigup/moe_configs"
DEPLOY = """
import json, pathlib, sys
from pyinfra import host
from pyinfra.api import operation
from rigup.operations.primitives import progress
from rigup.operations.service.moe_configs import after_start
from rigup.operations.primitives.steps import step
from rigup.plan import MoeFolder, Plan
from rigup.service import Service
from roles.service import moe_configs

said = json.loads(pathlib.Path("asked.json").read_text())
for folder in [MoeFolder(**fields) for fields in said["folders"]]:
    moe_configs(folder, said["build"])
if said["after_start"]:
    plan = Plan.model_construct(service=Service(name="kernels"), moe_folder=folder)
    progress.listen(lambda report: print(f"REPORT {report.text}", file=sys.stderr))

    @operation()
    def look():
        yield step(after_start, plan, tuple(said["keep"]))

    look()
"""


class Kernels:
    """A host, and the role run on it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.host = fleet, fleet.host
        if not (fleet.root / "roles").exists():
            (fleet.root / "roles").symlink_to(toolkit_root() / "roles")
        (fleet.root / "kernels.py").write_text(DEPLOY)

    def run(self, *folders: MoeFolder, keep: tuple[str, ...] | None = None, expect: int = 0) -> str:
        """Runs the role for each folder, and what follows a start with the last one where `keep` is given."""
        dumped = [folder.model_dump() for folder in folders]
        asked = {"folders": dumped, "build": BUILD, "after_start": keep is not None, "keep": keep}
        (self.fleet.root / "asked.json").write_text(json.dumps(asked))
        words = [sys.executable, "-m", "pyinfra", "inventories/rehearsal.py", "kernels.py", "-y"]
        done = subprocess.run(words, cwd=self.fleet.root, capture_output=True, text=True, timeout=120)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout + done.stderr

    def files(self) -> dict[str, str]:
        """Every file below the folders, by path: inode and time."""
        lines = self.host.tell(f"find {FOLDERS} -type f -printf '%p\\t%i %T@ %m %U\\n'").splitlines()
        return dict(line.split("\t", 1) for line in lines)


@pytest.fixture
def kernels(fleet: Fleet) -> Kernels:
    fleet.host.tell(f"rm -rf {FOLDERS} {BUILD}; mkdir -p {PACKAGED}; echo {{}} > '{PACKAGED}/own [128, 128].json'")
    return Kernels(fleet)


def sglang(path: str = f"{FOLDERS}/sglang-1", version: str = "3.6.0") -> MoeFolder:
    files = folder_files("sglang", (file_of(kernel()),), version)
    return MoeFolder(path=path, files=files, packaged=SGLANG_PACKAGED[::-1], copied_to="configs")


def vllm(path: str) -> MoeFolder:
    return MoeFolder(path=path, files=folder_files("vllm", (file_of(kernel()),), None))


def test_a_folder_is_whole_once_mended_where_it_was_changed_and_cleared_away_in_the_end(kernels: Kernels) -> None:
    host, folder = kernels.host, sglang()
    kernels.run(folder)
    (own,) = folder.files
    there = kernels.files()
    assert set(there) == {
        f"{folder.path}/{own}", f"{folder.path}/configs/triton_3_6_0/own [128, 128].json", f"{folder.path}/.sha256"
    }  # fmt: skip
    assert {entry.split()[2] + entry.split()[3] for entry in there.values()} == {"6440"}
    assert host.tell(f"cat '{folder.path}/{own}'") + "\n" == folder.files[own]
    assert host.tell(f"ls -A {BUILD}/lib/python3.12/site-packages/sglang/srt/layers/moe") == "moe_runner"

    kernels.run(folder)
    assert kernels.files() == there

    for damage in (f"echo >> '{folder.path}/{own}'; touch {folder.path}/configs/more", f"rm '{folder.path}/{own}'"):
        host.tell(damage)
        kernels.run(folder)
        assert set(kernels.files()) == set(there), damage
        assert host.tell(f"cat '{folder.path}/{own}'") + "\n" == folder.files[own]

    kept, named, old = (vllm(f"{FOLDERS}/vllm-{name}") for name in ("kept", "named", "old"))
    release = "/etc/rigup/services/kernels/releases/1"
    host.tell(f'mkdir -p {release}; echo \'{{"environment": {{"X": "{named.path}"}}}}\' > {release}/release.json')
    line = f"Using configuration from {folder.path}/{own} for MoE layer."
    host.tell(f"systemd-run --quiet --unit=rigup-kernels sh -c 'echo \"{line}\"; exec sleep 600'")
    wait_for(lambda: line in host.tell("journalctl -o cat -u rigup-kernels"), "the line in the journal")
    try:
        said = kernels.run(kept, named, old, folder, keep=(folder.path, kept.path))
        assert "REPORT kernels: moe config: ours" in said
        assert host.tell(f"ls {FOLDERS}").split() == ["sglang-1", "vllm-kept", "vllm-named"]
    finally:
        host.tell("systemctl stop rigup-kernels; rm -rf /etc/rigup/services/kernels")

    removed = kernels.fleet.rigup("prune", "--yes", "--json").json["hosts"][0]["removed"]
    assert {entry["path"] for entry in removed if entry["path"].startswith(FOLDERS)} == {
        folder.path, kept.path, named.path
    }  # fmt: skip
    assert host.tell(f"ls {FOLDERS}") == ""


def test_a_build_without_configs_of_its_own_is_named(kernels: Kernels) -> None:
    kernels.host.tell(f"rm -rf {BUILD}")
    said = kernels.run(sglang(), expect=1)
    assert "tuned kernels sglang-1" in said
    assert kernels.host.tell(f"ls {FOLDERS}") == ""
