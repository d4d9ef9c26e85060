"""vLLM and SGLang from their real wheels for GPUs, planned and applied to machines whose GPUs compute nothing.

Whatever an engine does before a kernel computes is real here: it imports, reads the card, checks its arguments, chooses
its kernels, builds the model, compiles what it compiles, captures its graphs, serves. What only silicon tells is left:
what the kernels compute, how fast, and in how much memory of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rigup.operations.service.health import GREETING_TOKENS
from tests.slow.silicon_fleet import SiliconFleet, made_silicon_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.alone,
    pytest.mark.rests_on("environments", "driver", "src/rigup/lab/gpus", "src/rigup/commands"),
]
SECONDS = 2400
# For each capability: the card, and what the engine says that it uses there.
VLLM = {
    "9.0": ("1x H100 SXM", ("FlashAttention version 3", "DeepGEMM")),
    "12.0": ("1x RTX PRO 6000 Workstation", ("FlashAttention version 2",)),
    "8.6": ("1x RTX 3090", ("FlashAttention version 2", "Marlin")),
}
SGLANG = {
    "9.0": ("1x H100 SXM", ("fa3",)),
    "12.0": ("1x RTX PRO 6000 Workstation", ()),
    "8.6": ("1x RTX 3090", ()),
}


@pytest.fixture(scope="module")
def vllm(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiliconFleet]:
    """A machine that is to serve with vLLM."""
    with made_silicon_fleet("vllm", "0.33.0", tmp_path_factory.mktemp("vllm"), VLLM["9.0"][0]) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def sglang(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SiliconFleet]:
    """A machine that is to serve with SGLang."""
    with made_silicon_fleet("sglang", "0.5.23", tmp_path_factory.mktemp("sglang"), SGLANG["9.0"][0]) as fleet:
        yield fleet


def serves(fleet: SiliconFleet, card: str, said: tuple[str, ...]) -> None:
    """Applies the fleet with this card; the service must answer a chat request, with the kernels that are named."""
    fleet.give_cards(card)
    (result,) = fleet.apply(seconds=SECONDS).json["hosts"]
    (answer,) = result["answers"]
    assert answer["tokens"] == GREETING_TOKENS
    log = fleet.log()
    print(f"{card}: {len(fleet.kernels())} kernels launched")
    assert [words for words in said if words not in log] == []


@pytest.mark.parametrize("capability", VLLM)
def test_vllm_serves_on(vllm: SiliconFleet, capability: str) -> None:
    serves(vllm, *VLLM[capability])


@pytest.mark.parametrize("capability", SGLANG)
def test_sglang_serves_on(sglang: SiliconFleet, capability: str) -> None:
    serves(sglang, *SGLANG[capability])
