"""The question that a host's engine gets about a plan, and what is said of its answer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rigup.errors import HostFailed
from rigup.facts.gpus import ProbedGpu
from rigup.facts.judgement import CardUse, Judgement
from rigup.facts.probe import Probe
from rigup.operations import judgement
from rigup.operations.judgement import can_judge, refusal, text_of
from rigup.operations.judges.environment import case_of
from rigup.operations.judges.llama_cpp import arguments
from rigup.operations.weights.checkpoint import FileSource
from rigup.plan import Plan
from rigup.programs import judge
from rigup.programs.judge.llama_cpp import cards_text, sources
from tests.unit.planner.asking import decided

CARDS = [
    ProbedGpu("NVIDIA H100 80GB HBM3", 0, 81559, index=i, memory_reserved_mib=500, compute_capability="9.0")
    for i in range(4)
]


@pytest.fixture
def plan() -> Plan:
    found = decided("4x H100 SXM", {"model": "MiniMax-M2.5", "engine": "vllm", "version": "0.33.0"})
    assert found.verdict == "ok"
    return found


def test_the_case_has_the_command_and_the_cards_as_they_are(plan: Plan) -> None:
    case = case_of(plan, CARDS, 80_000)
    assert case["gpu"] == {
        "index": 0,
        "name": "NVIDIA H100 80GB HBM3",
        "capability": [9, 0],
        "memory_mib": 81059,
        "free_mib": 80_000,
        "nvlink": False,
        "unified": False,
    }
    assert case["gpus"] == 4
    assert case["arguments"] == list(plan.command[3:])
    assert case["beside_mib"] == plan.memory[0].overhead_mib - 500


def test_a_judge_that_does_not_weigh_is_told_the_cache() -> None:
    plan = decided("4x H100 SXM", {"model": "MiniMax-M2.5", "engine": "sglang"})
    case = case_of(plan, CARDS, None)
    assert "beside_mib" not in case
    assert case["cache_mib"] == plan.memory[0].kv_cache_mib


def test_what_is_free_is_at_most_what_a_card_has(plan: Plan) -> None:
    assert case_of(plan, CARDS, None)["gpu"]["free_mib"] == 81059
    assert case_of(plan, CARDS, 99_999)["gpu"]["free_mib"] == 81059


def test_builds_for_gpus_have_a_judge(plan: Plan) -> None:
    assert plan.build and plan.checkpoint
    pinned = plan.model_copy(update={"checkpoint": plan.checkpoint.model_copy(update={"revision": "1" * 40})})
    assert can_judge(pinned)
    assert not can_judge(plan), "nothing is pinned"
    for other in ({"method": "image"}, {"variant": "cpu"}):
        assert not can_judge(pinned.model_copy(update={"build": plan.build.model_copy(update=other)}))
    assert can_judge(pinned.model_copy(update={"build": plan.build.model_copy(update={"method": "source"})}))
    unpinned = pinned.model_copy(update={"draft": plan.checkpoint})
    assert not can_judge(unpinned), "of what drafts, no files are pinned"


def test_the_judge_of_llama_cpp_gets_the_servers_words_but_for_what_systemd_has() -> None:
    words = ("--model", "/w/org/name/1/a.gguf", "--api-key-file", "/run/key", "-md", "/w/org/other/2/b.gguf", "/w/x")
    given = arguments(words, {"/w/org/name/1": "/judged/0", "/w/org/other/2": "/w/org/other/2"})
    assert given == ["--model", "/judged/0/a.gguf", "-md", "/w/org/other/2/b.gguf", "/w/x"]


def test_cards_are_a_line_each() -> None:
    assert cards_text([(24576, 20000, "8.6", False, "RTX 3090"), (100, 50, "12.1", True, "GB10")]) == (
        "24576 20000 8 6 0 RTX 3090\n100 50 12 1 1 GB10\n"
    )
    assert set(sources()) == {"cards.cpp", "cuda_rules.py", "ggml_cuda.cpp", "sizes.cpp"}


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("... the estimated maximum model length is 44416. Try", "set context = 44416 for the service; "),
        (
            "max_num_seqs (1024) exceeds available Mamba cache blocks (157)",
            'add "--max-num-seqs": "157" to its flags; ',
        ),
        (
            "GPU 1 needs 24.1 GiB (...), and 23.0 GiB are free",
            "set a smaller context, or stop what holds memory of the cards: nvidia-smi names it; ",
        ),
        ("unrecognized arguments: --no-such", "change what it names; "),
    ],
)
def test_a_refusal_has_the_engines_words_and_what_helps(plan: Plan, said: str, hint: str) -> None:
    message, given = refusal(plan, Judgement(refusal=said))
    assert message.endswith(f" refuses {plan.service.name}: {said}")
    assert given == f'{hint}to start it all the same: allow = ["engine-judgement"]'


def test_a_sentence_says_what_the_engine_counts(plan: Plan) -> None:
    found = Judgement(weights_mib=2048, tokens=12_345, requests=1.5, kernels={"attention": ("FLASH_ATTN",)})
    text = text_of(plan, found)
    assert " takes the plan: 2.0 GiB of weights on a GPU; 12,345 tokens of KV cache (planned: " in text
    assert text.endswith("; attention FLASH_ATTN")


def test_a_sentence_says_what_the_fullest_card_holds(plan: Plan) -> None:
    text = text_of(plan, Judgement(weights_mib=2048, fullest=CardUse(2048, 1024, 512, 256)))
    assert ": 3.8 GiB (2.0 of weights, 1.0 of KV cache, 0.5 of buffers, 0.2 counted for CUDA) " in text


class NamedHost:
    """Stands for a connected host, of which only the name is asked."""

    name = "gpu1"


def carried_out(monkeypatch: pytest.MonkeyPatch, plan: Plan, said: Judgement) -> list[str]:
    """What the run says of a plan about which its engine says this."""
    logged: list[str] = []
    monkeypatch.setattr(judgement, "read_probe", lambda host: Probe())
    monkeypatch.setattr(judgement, "ask", lambda *arguments: said)
    monkeypatch.setattr(judgement, "report", lambda progress: logged.append(progress.text))
    judgement._judge(NamedHost(), plan, "vllm-0.33.0-0", lambda probe: (), FileSource("http://hub"))  # type: ignore[arg-type]
    return logged


def test_a_refusal_ends_the_run_unless_the_service_allows_it(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    said = Judgement(refusal="no such backend")
    with pytest.raises(HostFailed, match=f"gpu1: vllm 0.33.0 refuses {plan.service.name}: no such backend"):
        carried_out(monkeypatch, plan, said)
    service = plan.service.model_copy(update={"allow": ("engine-judgement",)})
    (text,) = carried_out(monkeypatch, plan.model_copy(update={"service": service}), said)
    assert text.endswith("refuses the plan, which allow has started all the same: no such backend")


def test_a_judge_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch, plan: Plan) -> None:
    (text,) = carried_out(monkeypatch, plan, Judgement(failed="ImportError: moved"))
    assert text.endswith("could not be asked about the plan: ImportError: moved")


def test_python_imports_the_judges_from_their_archive(tmp_path: Path) -> None:
    path = tmp_path / "judge.zip"
    path.write_bytes(judge.archive())
    assert path.read_bytes() == judge.archive()
    script = "from rigup.programs.judge import cases, simulated_gpus; print(cases.__file__)"
    words = [sys.executable, "-S", "-c", script]
    done = subprocess.run(words, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.startswith(str(path))
