"""SGLang's sampling defaults: a file of the service's own over the checkpoint's."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rigup.lock import LockedFile
from rigup.plan import BoundPlan
from rigup.systemd.sampling import sampling_lines
from tests.unit.planner.rules.builder import PRO_6000
from tests.unit.systemd.test_service import FOLDER, VLLM, planned

FILES = tuple(LockedFile(path=path, size=1, sha256="0" * 64) for path in ("config.json", "generation_config.json"))
SGLANG: dict[str, Any] = {**VLLM, "engine": "sglang", "sampling": {"temperature": 0.2, "top_k": 7}}
OWN = "/var/lib/rigup/weights/MiniMaxAI/MiniMax-M2.5/" + "a" * 40 + "/generation_config.json"


def pinned(service: dict[str, Any], files: tuple[LockedFile, ...] = FILES) -> BoundPlan:
    """The plan with a checkpoint of these files."""
    plan = planned(f"4x {PRO_6000}", service)
    assert plan.checkpoint is not None
    checkpoint = plan.checkpoint.model_copy(update={"revision": "a" * 40, "files": files})
    return plan.model_copy(update={"checkpoint": checkpoint})


def test_the_file_is_made_at_each_start_and_shown_in_the_place_of_the_checkpoints(tmp_path: Path) -> None:
    makes, shows = sampling_lines(pinned(SGLANG), FOLDER)
    assert shows == f"BindReadOnlyPaths=-/run/rigup-chat/generation_config.json:{OWN}"
    command = makes.removeprefix("ExecStartPre=").replace("${RUNTIME_DIRECTORY}", str(tmp_path)).replace("%%", "%")
    words = shlex.split(command)
    assert words[:2] == [f"{FOLDER}/bin/python", "-I"] and words[4] == OWN
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"eos_token_id": [1, 2], "temperature": 1.0, "top_p": 0.95}))
    subprocess.run([sys.executable, *words[1:4], str(own), *words[5:]], check=True)
    made = json.loads((tmp_path / "generation_config.json").read_text())
    assert made["eos_token_id"] == [1, 2]
    assert (made["temperature"], made["top_k"]) == (0.2, 7)


def test_others_have_no_such_file() -> None:
    assert sampling_lines(pinned({**SGLANG, "engine": "vllm"}), FOLDER) == ()
    assert sampling_lines(pinned(SGLANG, FILES[:1]), FOLDER) == (), "the checkpoint has no such file"
    assert sampling_lines(planned(f"4x {PRO_6000}", SGLANG), FOLDER) == (), "its files are not known yet"
