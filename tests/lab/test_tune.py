"""`rigup tune` on a booted machine, with a stand-in tuner in a stand-in build: the service comes back in any case.

The rig is a lie that the machine is not held to: it has no GPU. The service that is paused is a stand-in too, and real
to systemd. What a kernel is worth and whether the engines' tuners run in their builds cannot be seen here.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment, LockedUv
from rigup.catalogue.moe_configs import load_moe_configs
from rigup.lock import Lock, LockedCheckpoint, LockedFile, LockedSource
from rigup.lockfile.text import lock_text
from rigup.operations.builds.source import name_of
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.tuning.run import BASELINES
from tests.lab.fleet import Fleet, Run, wait_for
from tests.lab.readers import Readers, all_whole

pytestmark = [pytest.mark.lab, pytest.mark.rests_on("the run", "tuning")]

REPO, REVISION = "MiniMaxAI/MiniMax-M2.5", "1" * 40
RIG = {"gpus": "8x RTX PRO 6000 Blackwell Max-Q Workstation Edition", "host_memory_gib": 512}
DEVICE = "NVIDIA_RTX_PRO_6000_Blackwell_Max-Q_Workstation_Edition"
STAND_IN = Path(__file__).parents[1] / "stand_in_tuner" / "benchmark_moe.py"
BEHAVIOUR, HOLD = "/run/rigup-test/tuner", "/run/rigup-test/hold-tuner"
NOT_HELD_TO_ITS_RIG = (
    "from gevent import monkey\nmonkey.patch_all()\nimport rigup.run.runner\nrigup.run.runner.preflight = lambda *_: ()"
)
PYTHON = '#!/bin/sh\nPYTHONPATH=/opt/rigup/stand-in:$PYTHONPATH exec /usr/bin/python3 "$@"\n'


class TuningFleet:
    """A fleet whose host serves, and whose group is described as a rig with a kernel to tune."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet, self.host, self.root = fleet, fleet.host, fleet.root
        self.lock_before = (fleet.root / "rigup.lock").read_text()

    def describe(self) -> None:
        """As a rig and a service that the machine is far from."""
        service = {"checkpoint": REPO, "engine": "vllm", "version": "0.33.0", "flags": {"--moe-backend": "triton"}}
        said = {"rig": RIG, "services": {"chat": service}, "hub": self.fleet.hub.url}
        (self.root / "group_data/boxes.py").write_text("".join(f"{key} = {value!r}\n" for key, value in said.items()))
        (self.root / "rigup.lock").write_text(lock_text(self.lock()))

    def lock(self) -> Lock:
        weights = LockedFile(path="model.safetensors", size=230_134_260_592, sha256="0" * 64)
        environment = LockedEnvironment(
            engine="vllm", version="0.33.0", python="3.12.12", files={"triton-3.6.0-cp312-x.whl": "0" * 64}
        )
        return Lock(
            uv=LockedUv(version="1.0", files={"uv-1.0-py3-none-manylinux.whl": "0" * 64}),
            sources=(self.archive(),),
            environments=(environment,),
            checkpoints=(LockedCheckpoint(repo=REPO, quant="FP8", revision=REVISION, files=(weights,)),),
        )

    def archive(self) -> LockedSource:
        """The archive that holds the stand-in, in the cache as if it had been downloaded."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(STAND_IN, "vllm-0.33.0/benchmarks/kernels/benchmark_moe.py", filter=_same_everywhere)
        content = packed.getvalue()
        sha256 = hashlib.sha256(content).hexdigest()
        (self.fleet.cache / "rigup/sources" / sha256).write_bytes(content)
        address = "pypi:vllm==0.33.0"
        return LockedSource(engine="vllm", version="0.33.0", address=address, sha256=sha256, root="vllm-0.33.0")

    def furnish(self) -> None:
        """Puts the stand-in build and what the tuner reads of the weights onto the host."""
        (plan,) = plan_project(load_project(str(self.root / "inventories/rehearsal.py")))
        assert plan.build is not None
        build = f"/opt/rigup/builds/{name_of(plan.build, 'x86_64', 'debian-12')}"
        weights = f"/var/lib/rigup/weights/{REPO}/{REVISION}"
        config = {"num_local_experts": 256, "intermediate_size": 1536, "stand_in_device": DEVICE}
        self.write(f"{build}/bin/python", PYTHON)
        self.host.tell(f"chmod 755 {build}/bin/python")
        self.write(f"{build}/manifest.json", "{}")
        self.write("/opt/rigup/stand-in/triton.py", "__version__ = '3.6.0'\n")
        self.write(f"{weights}/config.json", json.dumps(config))
        self.write(f"{weights}/.rigup-receipt.json", "{}")

    def write(self, path: str, text: str) -> None:
        self.host.tell(f"mkdir -p {path.rpartition('/')[0]}; printf %s {shlex.quote(text)} > {path}")

    def behave(self, **how: Any) -> None:
        """What the stand-in does from now on."""
        self.host.tell(f"rm -f {HOLD}")
        self.write(BEHAVIOUR, json.dumps(how))

    def start(self, *words: str) -> Run:
        words = ("tune", "boxes", "--tokens", "1,64", "--runs", "5", *words)
        return self.fleet.start(*words, before=NOT_HELD_TO_ITS_RIG)

    def tune(self, *words: str, expect: int) -> Run:
        run = self.start("--yes", "--json", *words)
        assert run.wait() == expect, run.text
        return run

    def started(self) -> str:
        """Which start of the service this is."""
        return self.host.show("InvocationID")

    def is_back(self) -> bool:
        """Whether the service runs and answers, and no tuner does."""
        words = "systemctl list-units --plain --no-legend --state=active,activating,deactivating 'rigup-tune-*'"
        return self.host.answers() and self.host.tell(words) == ""


def _same_everywhere(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry


@pytest.fixture
def tuning(fleet: Fleet) -> Iterator[TuningFleet]:
    """A host that serves; after the test the fleet is what it was."""
    if not fleet.host.answers():
        fleet.apply()
    made = TuningFleet(fleet)
    made.describe()
    made.furnish()
    yield made
    (fleet.root / "rigup.lock").write_text(made.lock_before)
    for path in (fleet.root / "files/moe_configs").rglob("*.toml"):
        path.unlink()
    fleet.host.tell(f"rm -f {HOLD} {BEHAVIOUR}")


def test_a_faster_kernel_comes_home_with_its_provenance_and_the_service_is_back(tuning: TuningFleet) -> None:
    before, readers = tuning.started(), Readers(tuning.host, tuning.host)
    begun = readers.begin(100)
    tuning.behave(gain=1.25, noise=0.01)
    run = tuning.tune(expect=0)
    assert all_whole(begun, 100), "the tuner has cut answers that were being read"
    readers.close()

    (file,) = load_moe_configs(tuning.root / "files/moe_configs")
    assert run.json["kept"] == f"files/moe_configs/{file.path}"
    assert file.path == f"{DEVICE}/E32_N1536_fp8_w8a8_128x128_triton-3.6.0.toml"
    assert sorted(file.tuned.launches) == [1, 64]
    said = file.tuned.provenance
    assert said.engine == "vllm 0.33.0"
    assert said.baseline == BASELINES["missing"]
    assert said.measured_on.startswith(f"{tuning.host.name}: NVIDIA RTX PRO 6000")
    assert said.source.startswith("benchmark_moe.py of pypi:vllm==0.33.0, sha256 ")
    assert 15 < run.json["gain"]["percent"] < 25
    assert tuning.started() != before
    assert tuning.is_back()
    assert not tuning.host.says("ls /var/lib/rigup/tuning/*")
    (plan,) = plan_project(load_project(str(tuning.root / "inventories/rehearsal.py")))
    assert plan.moe_config is not None
    assert (plan.moe_config.status, plan.moe_config.unlocked) == ("files", (file.path,))


@pytest.mark.slow
def test_a_kernel_that_is_not_faster_is_not_kept(tuning: TuningFleet) -> None:
    tuning.behave(gain=0.9, noise=0.01)
    run = tuning.start("--yes")
    assert run.wait() == 1, run.text
    assert "discarded: " in run.text
    assert not list((tuning.root / "files/moe_configs").rglob("*.toml"))
    assert tuning.is_back()


@pytest.mark.slow
def test_a_tuner_that_fails_leaves_its_words_and_the_service_is_back(tuning: TuningFleet) -> None:
    tuning.behave(fail="CUDA out of memory")
    (error,) = tuning.tune(expect=1).json["hosts"][0]["errors"]
    assert error["message"].startswith(f"{tuning.host.name}: tune: ")
    assert error["message"].endswith(" 1: CUDA out of memory")
    assert tuning.is_back()


def test_ctrl_c_stops_the_tuner_and_the_service_is_back(tuning: TuningFleet) -> None:
    tuning.behave(hold=HOLD)
    tuning.host.tell(f"touch {HOLD}")
    run = tuning.start("--yes")
    wait_for(lambda: not tuning.host.says("systemctl is-active --quiet rigup-chat"), "the service to be stopped")
    run.wait_to_say("tuning")
    run.interrupt()
    assert run.wait() == 130, run.text
    wait_for(tuning.is_back, "the service to be back")


@pytest.mark.slow
def test_a_rigup_that_is_killed_is_not_needed_for_the_service_to_be_back(tuning: TuningFleet) -> None:
    tuning.behave(hold=HOLD, gain=2.0)
    tuning.host.tell(f"touch {HOLD}")
    run = tuning.start("--yes")
    run.wait_to_say("tuning")
    run.kill()
    assert not tuning.host.says("systemctl is-active --quiet rigup-chat")
    tuning.host.tell(f"rm {HOLD}")
    wait_for(tuning.is_back, "the service to be back")

    started = tuning.started()
    assert tuning.tune(expect=0).json["kept"] is not None
    assert tuning.started() == started, "what had been measured was not measured again"


@pytest.mark.slow
def test_a_service_that_was_started_often_is_started_once_more(tuning: TuningFleet) -> None:
    burst = int(tuning.host.show("StartLimitBurst").partition("=")[2])
    tuning.behave(fail="no")
    tuning.host.tell("systemctl reset-failed rigup-chat")
    for _ in range(burst):
        tuning.host.tell("systemctl restart rigup-chat")
    tuning.tune(expect=1)
    assert tuning.is_back()


@pytest.mark.slow
def test_nobody_is_cut_off_without_a_yes(tuning: TuningFleet) -> None:
    before = tuning.started()
    run = tuning.start()
    assert run.wait() == 2
    assert re.search(rf"^rigup: {tuning.host.name} .*\bchat\b.*\nhint: .*--yes.*--host", run.text, re.MULTILINE)
    assert tuning.started() == before
