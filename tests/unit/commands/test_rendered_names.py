"""No option and no variable is sent that the pinned engine version does not know: every version, every kind of plan."""

from __future__ import annotations

import itertools

import pytest

from rigup.catalogue.option_names import is_own_variable, known_options, known_values, known_variables
from rigup.commands.command import command
from rigup.plan import Checkpoint
from rigup.planner.candidate import Candidate
from tests.unit.planner.rules.builder import CATALOGUE, MAX_Q, candidate

FP8, NVFP4, INT4 = "MiniMaxAI/MiniMax-M2.5", "lukealonso/MiniMax-M2.5-NVFP4", "mratsim/MiniMax-M2.5-BF16-INT4-AWQ"
EVERYTHING = {
    "tools": True,
    "reasoning": True,
    "trust_remote_code": True,
    "listen": "0.0.0.0",
    "sampling": {"temperature": 0.7, "min_p": 0.01, "repetition_penalty": 1.1},
}
SHAPES = [
    (f"4x {MAX_Q}", FP8, {"tensor": 4}, {}),
    (f"8x {MAX_Q}", FP8, {"tensor": 8, "expert": 8}, {"eager": True}),
    ("4x B200", FP8, {"tensor": 2, "data": 2}, {"kv_cache_type": "fp8"}),
    (f"2x {MAX_Q}", NVFP4, {"tensor": 2}, {"kv_cache_type": "fp8"}),
    (f"3x {MAX_Q}", NVFP4, {"pipeline": 3}, {"pipeline_partition": (22, 20, 20), "cpu_offload_gib": 4}),
    ("8x RTX 3090", INT4, {"tensor": 8}, {}),
]
VERSIONS = [(e.name, v.version) for e in CATALOGUE.engines if e.name != "llama.cpp" for v in e.versions]


def rendered(asked: Candidate) -> tuple[tuple[str, ...], dict[str, str]]:
    entry = asked.checkpoint
    checkpoint = Checkpoint(repo=entry.repo, quant=entry.quant, bytes=entry.bytes, entry=entry.entry)
    found = command(asked, checkpoint)
    return found.words, found.environment


def assert_known(asked: Candidate) -> None:
    engine, version = asked.engine.name, asked.version
    words, environment = rendered(asked)
    options = {word for word in words if word.startswith("-") and word != "-m"}
    assert options - known_options(engine, version) == set()
    own = {name for name in environment if is_own_variable(engine, name)}
    assert own - known_variables(engine, version) == set()
    for option, value in itertools.pairwise(words):
        choices = known_values(engine, version, option)
        assert not choices or value in choices, (option, value)


@pytest.mark.parametrize(("engine", "version"), VERSIONS)
def test_every_version_knows_what_it_is_sent(engine: str, version: str) -> None:
    for gpus, repo, sizes, changes in SHAPES:
        if engine == "sglang" and "cpu_offload_gib" in changes:
            changes = {"pipeline_partition": (22, 20, 20)}
        asked = candidate(gpus, repo, engine, version, parallel=sizes, service=EVERYTHING, **changes)
        assert_known(asked)


def test_llama_cpp_knows_what_it_is_sent() -> None:
    asked = candidate(
        "4x RTX 3090",
        "unsloth/MiniMax-M2.5-GGUF",
        "llama.cpp",
        quant="UD-IQ2_M",
        service=EVERYTHING,
        kv_cache_type="q8_0",
        tensor_split=(16, 16, 16, 15),
        cpu_moe_layers=3,
        batched_tokens=1024,
    )
    assert_known(asked)


def test_the_lists_name_their_packages() -> None:
    from rigup.catalogue.option_names import package

    for engine in CATALOGUE.engines:
        for release in engine.versions:
            found = package(engine.name, release.version)
            assert len(found["sha256"]) == 64, (engine.name, release.version)
            assert not release.wheels or release.wheels[found["file"]] == found["sha256"]
