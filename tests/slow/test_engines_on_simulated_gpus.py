"""vLLM and SGLang from their real wheels for GPUs, planned and applied to a machine whose GPUs compute nothing.

Whatever the engine does before a kernel computes is real here: it imports, reads the card, checks its arguments,
chooses its kernels, builds the model, compiles what it compiles, captures its graphs, serves. What only silicon tells
is left: what the kernels compute, how fast, and in how much memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slow.silicon_fleet import VERSIONS, SiliconFleet, made_silicon_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.alone,
    pytest.mark.rests_on("environments", "driver", "src/rigup/lab/gpus", "src/rigup/commands"),
]
SECONDS = 10_800
NO_TEXT = ("answer is empty", "answer has no text")
CARDS = {"8.6": "1x RTX 3090", "9.0": "1x H100 SXM", "12.0": "1x RTX PRO 6000 Workstation"}
# What each engine says that it uses on a compute capability.
SAID = {
    ("vllm", "8.6"): ("FlashAttention version 2", "MARLIN Fp8 MoE"),
    ("vllm", "9.0"): ("FlashAttention version 3", "FlashInferFp8DeepGEMM", "TRITON Fp8 MoE"),
    ("vllm", "12.0"): ("FlashAttention version 2", "DEEPGEMM Fp8 MoE"),
    ("sglang", "8.6"): ("Use flashinfer backend", "KV Cache is allocated"),
    ("sglang", "9.0"): ("Use fa3 backend", "DeepGEMM JIT Compiling"),
    ("sglang", "12.0"): ("Use flashinfer backend", "KV Cache is allocated"),
}
# On 8.6 SGLang compiles Marlin for FP8, for more than a quarter of an hour.
QUANT = {("sglang", "8.6"): "BF16"}
# Where it ends because a value is not computed: FlashInfer compares the tokens that it gets with those that the card
# summed up for its plan. It has compiled its kernels by then.
UNEQUAL = "does not match qo_indptr[-1] (0)"
STOPS = {("sglang", "8.6"): UNEQUAL, ("sglang", "12.0"): UNEQUAL}


@pytest.fixture(scope="module")
def silicon(
    request: pytest.FixtureRequest, labs_can_run: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SiliconFleet]:
    """A machine that is to serve with an engine."""
    with made_silicon_fleet(request.param, tmp_path_factory.mktemp(request.param), CARDS["8.6"]) as fleet:
        yield fleet


@pytest.mark.parametrize(
    ("silicon", "capability"),
    [pytest.param(*case, marks=[pytest.mark.rare] * (case != ("vllm", "8.6"))) for case in SAID],
    indirect=["silicon"],
)
def test_an_engine_serves(silicon: SiliconFleet, capability: str) -> None:
    """The engine must answer a chat request, or come to the first value that nobody computes, and say what it uses.

    Which tokens it samples nobody computes: they may be no text.
    """
    case = silicon.engine, capability
    silicon.give_cards(CARDS[capability], QUANT.get(case, "FP8"))
    began = silicon.host.tell("date +%s")
    run = silicon.start("apply", "--yes", "--json")
    ended = run.wait(SECONDS)
    assert f"chat: {silicon.engine} {VERSIONS[silicon.engine]} takes the plan" in run.text
    (result,) = run.json["hosts"]
    log = silicon.host.tell(f"journalctl --no-pager -o cat -u rigup-chat --since @{began}")
    assert [words for words in SAID[case] if words not in log] == []
    if case in STOPS:
        assert ended != 0
        assert STOPS[case] in log
        return
    assert ended == 0 or any(words in result["errors"][0]["message"] for words in NO_TEXT), run.text
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log


@pytest.mark.parametrize("silicon", ["vllm"], indirect=True)
def test_an_engine_judges_before_anything_is_changed(silicon: SiliconFleet) -> None:
    """vLLM takes the plan, as rigup counts it, and refuses one that rigup lets pass: the service goes on as it was."""
    silicon.give_cards(CARDS["8.6"], "FP8")
    silicon.start("apply", "--yes").wait(SECONDS)  # the service's answer has no text
    release = silicon.host.tell("readlink /etc/rigup/services/chat/current || true")
    asked = silicon.start("plan", "--ask", silicon.host.name, "--json")
    assert asked.wait(SECONDS) == 0, asked.text
    (said,) = asked.json["hosts"][0]["services"]
    assert (said["asked"], said["refusal"], said["failed"]) == (True, "", "")
    assert said["kv_tokens"] == pytest.approx(said["planned_kv_tokens"], rel=0.02)
    assert said["kernels"]["attention"] == ["FLASH_ATTN"]

    silicon.serve(CARDS["8.6"], "FP8", flags={"--attention-backend": "FLASHMLA"})
    refused = silicon.start("apply", "--yes")
    assert refused.wait(SECONDS) == 1, refused.text
    assert "vllm 0.33.0 refuses chat: " in refused.text
    assert 'allow = ["engine-judgement"]' in refused.text
    assert silicon.host.tell("readlink /etc/rigup/services/chat/current || true") == release
