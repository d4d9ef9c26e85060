"""What an engine that counts its GPUs is started behind: UUIDs become the indices of this boot, in their order."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from rigup.systemd.service import FIND_INDICES

# Stands for nvidia-smi on a host with three cards.
NVIDIA_SMI = """#!/bin/sh
case "$1" in --id=GPU-a) echo 2;; --id=GPU-b) echo 0;; --id=GPU-c) echo 1;; *) exit 6;; esac
"""


def started(folder: Path, visible: str) -> subprocess.CompletedProcess[str]:
    program = folder / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "CUDA_VISIBLE_DEVICES": visible}
    words = ["/bin/sh", "-c", FIND_INDICES, "/bin/sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $1"', "engine", "--flag"]
    return subprocess.run(words, env=environment, capture_output=True, text=True)


def test_indices_of_this_boot_in_the_order_of_the_cards(tmp_path: Path) -> None:
    assert started(tmp_path, "GPU-a,GPU-b").stdout == "2,0 --flag\n"


def test_a_card_that_is_gone_keeps_the_engine_from_starting(tmp_path: Path) -> None:
    done = started(tmp_path, "GPU-a,GPU-x")
    assert (done.returncode, done.stdout) == (6, "")
