"""A fleet that serves a tiny MiniMax M2 with an engine's real wheels for GPUs, on a machine whose GPUs compute nothing.

Card, driver and CUDA are the lab's. Everything else is real: the packages, which come from the index that pip is set up
for here, the kernels' compilers, the unit. What the engine takes from CUDA, the lab's libcuda.so.1 gives to programs
that have it preloaded (src/rigup/lab/gpus/nvml/libcuda.c); a drop-in of the machine's sees to that.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rigup import layout
from rigup.catalogue.catalogue import load_catalogue
from rigup.lab.gpus.description import describe
from rigup.lab.packages.nvidia_repository import cuda_repository, settings
from rigup.lock import LockedDriver, load_lock
from rigup.lockfile.text import lock_text
from rigup.sources.python_environment import resolve_environment
from tests import tiny_minimax_m2_for_gpus as tiny
from tests.lab.fleet_fixtures import made_fleet
from tests.slow.vllm_fleet import VllmFleet, fill_wheelhouse
from tests.unit.sources.local_uv import local_uv

VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}
# What the lab's CUDA cannot do for an engine: CUTLASS has a copy of CUDA's runtime in itself, and nobody computes that
# scales are positive, which SGLang asserts.
VARIABLES = {"vllm": "", "sglang": " FLASHINFER_USE_CUDA_NORM=1 LAB_GPU_HOLDS=1"}
DRIVER = "580.95.05"
DRIVER_PACKAGES = "nvidia-open nvidia-driver-cuda nvidia-kernel-open-dkms nvidia-kernel-support firmware-nvidia-gsp"
DRIVER_PACKAGES += " libnvidia-ml1 libcuda1 nvidia-persistenced"
# wheels of 3 GB and an environment of 9 GB; both take memory of this machine
DISK = "20g"
JOURNAL = "/run/rigup-chat/kernels"
DROP_INS = "/usr/lib/systemd/system"
"""Where a distribution's drop-ins are, which are not drift."""
JUDGE = layout.job_unit("build", "judge-chat")


class SiliconFleet(VllmFleet):
    """One machine that serves with `engine`."""

    engine = "vllm"

    def fit_out(self) -> None:
        """Installs the driver as a person would, and has the service's processes take CUDA from the lab."""
        host = self.host
        url = cuda_repository(host.machine.record.suite).url
        words = " ".join(f"{name}={DRIVER}-1" for name in DRIVER_PACKAGES.split())
        install = "DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends"
        host.tell(f"curl -sSfO {url}cuda-keyring_1.1-1_all.deb && dpkg -i cuda-keyring_1.1-1_all.deb")
        host.tell(f"apt-get -q update && {install} linux-headers-{os.uname().release} python3-dev {words}")
        host.machine.reboot()
        lines = f"[Service]\nEnvironment=LD_PRELOAD=libcuda.so.1 LAB_GPU_JOURNAL={JOURNAL}{VARIABLES[self.engine]}\n"
        # the engine's compilers need what the wheels take: one file of SGLang's on 12.0 more than 6.4 GB
        lines += f"ExecStartPre=+/bin/rm -rf {layout.PACKAGES}\n"
        judge = "[Service]\nEnvironment=LD_PRELOAD=libcuda.so.1\n"
        for unit, text in (("rigup-chat", lines), (JUDGE, judge)):
            folder = f"{DROP_INS}/{unit}.service.d"
            host.machine.ssh(f"mkdir -p {folder}; cat > {folder}/lab.conf", input=text, check=True)

    def lock(self) -> None:
        """`rigup lock`, for the Python of the machine; then the wheelhouse has what it pins.

        The Python that it would pin is not in the index. Of the driver, what the machine has.
        """
        self.pin()
        path = self.root / "rigup.lock"
        locked = load_lock(path)
        (pinned,) = locked.environments
        release = load_catalogue().engines_by_name[self.engine].version(pinned.version)
        assert release is not None
        recipe = release.environment("cuda")
        assert recipe is not None
        here = release.model_copy(
            update={"environments": (recipe.model_copy(update={"python": "3.11", "python_from": "os"}),)}
        )
        found = resolve_environment(local_uv(), here, "cuda", "x86_64").environment
        driver = LockedDriver(version=DRIVER, branch=DRIVER.partition(".")[0])
        path.write_text(lock_text(locked.model_copy(update={"environments": (found,), "driver": driver})))
        fill_wheelhouse(path)

    def give_cards(self, rig: str, quant: str) -> None:
        """Puts other cards into the machine, says so in the fleet, with what they are to serve, and locks that."""
        text = describe(rig, self.host.name)
        self.host.machine.ssh("cat > /etc/lab-gpus/rig", input=text, check=True)
        self.serve(rig, quant)
        self.lock()

    def serve(self, rig: str, quant: str, **more: Any) -> None:
        """Says in the fleet what these cards are to serve. more: of the service."""
        self.describe(
            rig={"gpus": rig},
            model=tiny.MODEL,
            quant=quant,
            engine=self.engine,
            version=VERSIONS[self.engine],
            context=2048,
            start_timeout=7200,  # kernels are compiled in the first step, beside whatever else runs here
            reasoning=True,
            expected_answer=None,
            **more,
        )
        with (self.root / "group_data/boxes.py").open("a") as file:
            file.writelines(f"{key} = {value!r}\n" for key, value in settings(self.host.machine.record.suite).items())


@contextmanager
def made_silicon_fleet(engine: str, root: Path, rig: str) -> Iterator[SiliconFleet]:
    """The fleet on one machine with these cards and a driver; gone after it."""
    tiny.describe(root)
    for quant in tiny.REPOS:
        tiny.write(root / "served", quant)
    with made_fleet(SiliconFleet, engine, root, root / "served", hosts=1, disk=DISK, rig=rig) as fleet:
        fleet.engine = engine
        fleet.fit_out()
        yield fleet
