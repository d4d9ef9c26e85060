"""Tuned kernels in each engine's form, with their folder on the host and its variable; and in rigup's own form."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from rigup.catalogue.moe_configs import Launch, MoeConfigFile, TunedKernel
from rigup.layout import MOE_CONFIGS
from rigup.plan import Build, MoeFolder
from rigup.planner.candidate import Candidate
from rigup.planner.moe_config import config_filename_for, triton_version, used_files
from rigup.regular_files import toml_value

# vLLM reads this folder before its own one, SGLang instead of it. Source: fused_moe.py, fused_moe_triton_config.py.
VARIABLES = {"vllm": "VLLM_TUNED_CONFIG_FOLDER", "sglang": "SGLANG_MOE_CONFIG_DIR"}
# SGLang's own folders: the first since 0.5.11, the second before. Source: the wheels 0.5.9 to 0.5.23.
SGLANG_PACKAGED = (
    "sglang/srt/layers/moe/moe_runner/triton_utils/configs",
    "sglang/srt/layers/moe/fused_moe_triton/configs",
)


def moe_folder(candidate: Candidate, build: Build) -> MoeFolder | None:
    """The folder of configs for a service, or None if it has no file that the engine would read."""
    used = used_files(candidate)
    if not used:
        return None
    files = folder_files(build.engine, used, triton_version(build.environment))
    copies = build.engine == "sglang"
    wheels = dict(sorted(build.environment.files.items())) if copies and build.environment else {}
    content = json.dumps([build.engine, build.version, files, wheels], sort_keys=True)
    return MoeFolder(
        path=f"{MOE_CONFIGS}/{build.engine}-{hashlib.sha256(content.encode()).hexdigest()[:12]}",
        files=files,
        packaged=SGLANG_PACKAGED if copies else (),
        copied_to="configs" if copies else "",
    )


def folder_files(engine: str, used: tuple[MoeConfigFile, ...], triton: str | None) -> dict[str, str]:
    """Maps path below the folder to text. SGLang reads the folder of its build's Triton version."""
    files = {}
    for file in used:
        name = config_filename_for(engine, file.tuned)
        version = (triton or file.tuned.triton).replace(".", "_")
        path = f"configs/triton_{version}/{name}" if engine == "sglang" else name
        files[path] = config_text(engine, file.tuned)
    return files


def config_text(engine: str, tuned: TunedKernel) -> str:
    """A table as JSON. vLLM's may name the Triton version; SGLang takes every key for a number of tokens."""
    head = {"triton_version": tuned.triton} if engine == "vllm" else {}
    table = {str(tokens): _launch(tuned.launches[tokens]) for tokens in sorted(tuned.launches)}
    return json.dumps({**head, **table}, indent=4) + "\n"


def canonical_text(tuned: TunedKernel) -> str:
    """A tuned kernel in rigup's own form: TOML, one block for each launch; equal kernels give equal bytes."""
    head = tuned.model_dump(exclude={"provenance", "launches", "measurements"}, exclude_none=True)
    blocks = [_lines(head), "[provenance]\n" + _lines(tuned.provenance.model_dump())]
    blocks += [f"[launches.{n}]\n" + _lines(_launch(tuned.launches[n])) for n in sorted(tuned.launches)]
    rows = sorted(tuned.measurements, key=lambda entry: entry.tokens)
    blocks += ["[[measurements]]\n" + _lines(row.model_dump()) for row in rows]
    return "\n\n".join(blocks) + "\n"


def _launch(launch: Launch) -> dict[str, int]:
    return launch.model_dump(exclude_none=True)


def _lines(values: Mapping[str, object]) -> str:
    """One line for each key."""
    return "\n".join(f"{key} = {toml_value(value)}" for key, value in values.items())
