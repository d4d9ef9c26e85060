"""vLLM from its real wheels for GPUs, planned and applied to a machine whose GPUs compute nothing.

Whatever the engine does before a kernel computes is real here: it imports, reads the card, checks its arguments,
chooses its kernels, builds the model, compiles what it compiles, captures its graphs, serves. What only silicon tells
is left: what the kernels compute, how fast, and in how much memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slow.silicon_fleet import SiliconFleet, made_silicon_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.alone,
    pytest.mark.rests_on("environments", "driver", "src/rigup/lab/gpus", "src/rigup/commands"),
]
SECONDS = 2400
# For each compute capability: the card, and what the engine says that it uses there.
CARDS = {
    "8.6": ("1x RTX 3090", ("FlashAttention version 2", "MARLIN Fp8 MoE")),
    "12.0": ("1x RTX PRO 6000 Workstation", ("FlashAttention version 2", "DEEPGEMM Fp8 MoE")),
}


@pytest.fixture(scope="module")
def vllm(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiliconFleet]:
    """A machine that is to serve with vLLM."""
    with made_silicon_fleet("silicon", tmp_path_factory.mktemp("vllm"), CARDS["8.6"][0]) as fleet:
        yield fleet


def serves(fleet: SiliconFleet, card: str, said: tuple[str, ...]) -> None:
    """Applies the fleet with this card; the engine must answer a chat request, after it has said these words.

    Which tokens it samples nobody computes: they may be no text.
    """
    fleet.give_cards(card)
    began = fleet.host.tell("date +%s")
    run = fleet.start("apply", "--yes", "--json")
    ended = run.wait(SECONDS)
    (result,) = run.json["hosts"]
    assert ended == 0 or "answer is empty" in result["errors"][0]["message"], run.text
    log = fleet.host.tell(f"journalctl --no-pager -o cat -u rigup-chat --since @{began}")
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log
    assert [words for words in said if words not in log] == []


def test_vllm_serves_on_8_6(vllm: SiliconFleet) -> None:
    serves(vllm, *CARDS["8.6"])


@pytest.mark.rare
def test_vllm_serves_on_12_0(vllm: SiliconFleet) -> None:
    serves(vllm, *CARDS["12.0"])
