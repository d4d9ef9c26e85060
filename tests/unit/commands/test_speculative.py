"""The options of speculative decoding, engine by engine."""

from __future__ import annotations

import pytest

from rigup.commands.speculative import drafting as options
from rigup.plan import Checkpoint
from rigup.planner.drafting.draft import Draft
from tests.unit.planner.drafts import drafting, gguf_with_mtp, helped, small, small_model

PINNED = Checkpoint(repo="Qwen/Qwen3-0.6B", quant="BF16", bytes=1, revision="a" * 40)
FOLDER = f"/var/lib/rigup/weights/Qwen/Qwen3-0.6B/{'a' * 40}"
HEAD = small_model().model_copy(update={"architectures": ("LlamaForCausalLMEagle3",), "gguf_architecture": "eagle3"})


def test_vllm_gets_one_table() -> None:
    assert options(drafting(), None) == {"--speculative-config": {"method": "mtp", "num_speculative_tokens": 3}}
    assert options(helped(tokens=5), PINNED) == {
        "--speculative-config": {"method": "draft_model", "model": FOLDER, "num_speculative_tokens": 5}
    }
    head = options(helped(draft=Draft("eagle", 2, HEAD, small())), PINNED)
    assert head == {"--speculative-config": {"method": "eagle3", "model": FOLDER, "num_speculative_tokens": 2}}


@pytest.mark.parametrize(("kind", "algorithm"), [("draft", "STANDALONE"), ("eagle", "EAGLE3")])
def test_sglang_gets_a_chain(kind: str, algorithm: str) -> None:
    model = HEAD if kind == "eagle" else small_model()
    asked = helped("sglang", draft=Draft("eagle" if kind == "eagle" else "draft", 4, model, small()))
    assert options(asked, PINNED) == {
        "--speculative-algorithm": algorithm,
        "--speculative-draft-model-path": FOLDER,
        "--speculative-num-steps": 4,
        "--speculative-eagle-topk": 1,
        "--speculative-num-draft-tokens": 5,
    }
    assert options(drafting("sglang"), None)["--speculative-algorithm"] == "NEXTN"


def test_llama_cpp_gets_a_type_and_the_last_gpu_for_a_model_of_its_own() -> None:
    assert options(gguf_with_mtp(), None) == {"--spec-type": "draft-mtp", "--spec-draft-n-max": 3}
    files = PINNED.model_copy(update={"entry": "Qwen3-0.6B-Q8_0.gguf"})
    assert options(helped("llama.cpp"), files) == {
        "--spec-type": "draft-simple",
        "--spec-draft-n-max": 3,
        "--spec-draft-model": f"{FOLDER}/Qwen3-0.6B-Q8_0.gguf",
        "--spec-draft-ngl": "all",
        "--spec-draft-device": "CUDA3",
    }
