"""vLLM and SGLang from their real wheels for GPUs, planned and applied to machines whose GPUs compute nothing.

Whatever an engine does before a kernel computes is real here: it imports, reads the card, checks its arguments, chooses
its kernels, builds the model, compiles what it compiles, captures its graphs, serves. What only silicon tells is left:
what the kernels compute, how fast, and in how much memory of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests import tiny_fp8_minimax_m2 as tiny
from tests.slow.silicon_fleet import SAMPLING, SiliconFleet, made_silicon_fleet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.alone,
    pytest.mark.rests_on("environments", "driver", "src/rigup/lab/gpus", "src/rigup/commands"),
]
SECONDS = 2400
RARE = pytest.mark.rare
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


# What a chat request that says nothing of sampling is given, by SGLang's own code and the files of a folder.
CHAT_REQUEST = """
import json, sys
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.entrypoints.openai.protocol import ChatCompletionRequest
from sglang.srt.utils.hf_transformers import get_generation_config

config = ModelConfig.__new__(ModelConfig)
config.sampling_defaults, config.hf_generation_config = "model", get_generation_config(sys.argv[1], False)
request = ChatCompletionRequest(model="x", messages=[{"role": "user", "content": "Hello"}])
print(json.dumps(request.to_sampling_params([], config.get_default_sampling_params())))
"""


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
    """Applies the fleet with this card; the engine must answer a chat request, after it has said these words.

    Which tokens it samples nobody computes: they may be no text.
    """
    fleet.give_cards(card)
    began = fleet.host.tell("date +%s")
    run = fleet.start("apply", "--yes", "--json")
    ended = run.wait(SECONDS)
    (result,) = run.json["hosts"]
    assert ended == 0 or "the answer is empty" in result["errors"][0]["message"], run.text
    log = fleet.host.tell(f"journalctl --no-pager -o cat -u rigup-chat --since @{began}")
    assert '"POST /v1/chat/completions HTTP/1.1" 200' in log
    assert [words for words in said if words not in log] == []


@pytest.mark.parametrize("capability", [each if each == "9.0" else pytest.param(each, marks=RARE) for each in VLLM])
def test_vllm_serves_on(vllm: SiliconFleet, capability: str) -> None:
    serves(vllm, *VLLM[capability])


@RARE
@pytest.mark.parametrize("capability", SGLANG)
def test_sglang_serves_on(sglang: SiliconFleet, capability: str) -> None:
    serves(sglang, *SGLANG[capability])


@RARE
def test_sampling_reaches_a_chat_request_of_sglang(sglang: SiliconFleet) -> None:
    host = sglang.host
    host.machine.ssh("cat > /root/request.py", input=CHAT_REQUEST, check=True)
    build = host.tell("ls -d /opt/rigup/builds/sglang-*")
    weights = host.tell(f"ls -d /var/lib/rigup/weights/{tiny.REPO}/*/")
    inside = f"nsenter --target {host.show('MainPID').partition('=')[2]} --mount"
    said = json.loads(host.tell(f"{inside} {build}/bin/python /root/request.py {weights}").splitlines()[-1])
    assert (said["temperature"], said["top_k"]) == (SAMPLING["temperature"], SAMPLING["top_k"])
    assert json.loads(host.tell(f"{inside} cat {weights}/generation_config.json"))["eos_token_id"] == 257
    assert "temperature" not in json.loads(host.tell(f"cat {weights}/generation_config.json"))
