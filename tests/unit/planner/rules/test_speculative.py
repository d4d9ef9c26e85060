"""Speculative decoding that cannot be is refused, with what is lacking."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rigup.planner.candidate import Candidate
from rigup.planner.drafting.draft import Draft
from rigup.planner.rules import refusals
from tests.unit.planner.drafts import drafting, gguf_with_mtp, helped, small, small_model
from tests.unit.planner.rules.builder import candidate

HEAD = small_model().model_copy(update={"architectures": ("LlamaForCausalLMEagle3",), "gguf_architecture": "eagle3"})
OLD_HEAD = HEAD.model_copy(update={"architectures": ("EagleLlamaForCausalLM",), "gguf_architecture": ""})
REFUSED: dict[str, tuple[Candidate, str, str, str]] = {
    "a model without": (
        candidate("4x H200", "MiniMaxAI/MiniMax-M2.5", parallel={"tensor": 4}, draft=Draft("mtp", 3)),
        "speculative-layers",
        "MiniMax-M2.5 has no MTP layers that the catalogue knows of",
        "leave speculative out",
    ),
    "a checkpoint without": (
        candidate("2x H200", "unsloth/Qwen3.6-27B-GGUF", "llama.cpp", quant="Q8_0", draft=Draft("mtp", 3)),
        "speculative-layers",
        "unsloth/Qwen3.6-27B-GGUF Q8_0 has no MTP layers that the catalogue knows of",
        "leave speculative out; or, if the repository has them, read it: rigup model add unsloth/Qwen3.6-27B-GGUF",
    ),
    "an older release": (
        drafting(version="0.16.0"),
        "speculative-engine",
        "vLLM 0.16.0 cannot run the MTP layers of Qwen3.6-27B; vLLM 0.17.0, llama.cpp b11434 and SGLang 0.5.23 have",
        "set version to 0.17.0, or leave speculative out",
    ),
    "stages of an older SGLang": (
        drafting("sglang", version="0.5.22", parallel={"pipeline": 2}),
        "speculative-layout",
        "SGLang 0.5.22 does not draft tokens in a pipeline",
        "use tensor_parallel, or leave speculative out",
    ),
    "not a head": (
        helped(draft=Draft("eagle", 3, small_model(), small())),
        "speculative-model",
        "Qwen/Qwen3-0.6B BF16 is not an EAGLE head",
        'write "kind": "draft", or leave speculative out',
    ),
    "a head as a model": (
        helped(model=HEAD),
        "speculative-model",
        "Qwen/Qwen3-0.6B BF16 is an EAGLE head",
        'write "kind": "eagle"',
    ),
    "an older head in llama.cpp": (
        helped("llama.cpp", draft=Draft("eagle", 3, OLD_HEAD, small("gguf"))),
        "speculative-model",
        "llama.cpp b11434 runs heads of EAGLE-3 only, and Qwen/Qwen3-0.6B-GGUF Q8_0 is an older one",
        "leave speculative out",
    ),
    "another format than the model's": (
        helped(draft=Draft("draft", 3, small_model(), small(mistral_class="MistralForCausalLM"))),
        "speculative-model",
        "Qwen/Qwen3-235B-A22B-Instruct-2507 BF16 is in transformers' format, "
        "and Qwen/Qwen3-0.6B BF16 is not: one reader loads both",
        "name a repository that has it in transformers' format, or leave speculative out",
    ),
    "a GGUF for safetensors": (
        helped(draft=Draft("draft", 3, small_model(), small("gguf"))),
        "speculative-model",
        "the catalogue has no checkpoint of Qwen3-0.6B in safetensors that vLLM 0.33.0 loads",
        "name a repository that has it in safetensors, or leave speculative out",
    ),
    "safetensors for a GGUF": (
        helped("llama.cpp", draft=Draft("draft", 3, small_model(), small())),
        "speculative-model",
        "the catalogue has no checkpoint of Qwen3-0.6B in GGUF that llama.cpp b11434 loads",
        "name a repository that has it in GGUF, or leave speculative out",
    ),
    "another vocabulary": (
        helped(model=small_model().model_copy(update={"vocab": 151_937})),
        "speculative-vocabulary",
        "the vocabularies differ: Qwen3-235B-A22B-Instruct-2507 has 151,936 tokens and Qwen3-0.6B 151,937",
        "name a model with the same tokenizer, or leave speculative out",
    ),
    "another vocabulary in llama.cpp": (
        helped("llama.cpp", model=small_model().model_copy(update={"vocab": 152_065})),
        "speculative-vocabulary",
        "the vocabularies differ: Qwen3-235B-A22B-Instruct-2507 has 151,936 tokens and Qwen3-0.6B 152,065",
        "name a model with the same tokenizer, or leave speculative out",
    ),
    "a longer context": (
        helped(context=40_961),
        "speculative-context",
        "Qwen3-0.6B drafts in a context of 40,960 tokens at most, not 40,961",
        "set context to 40960, or leave speculative out",
    ),
    "a vLLM that cannot": (
        helped(version="0.14.1"),
        "speculative-engine",
        "vLLM 0.14.1 does not draft with a model",
        "set version to 0.15.0 or later, or leave speculative out",
    ),
    "stages of vLLM": (
        helped(parallel={"tensor": 4, "pipeline": 2}),
        "speculative-layout",
        "the plan does not count a model that drafts tokens in a pipeline",
        "use tensor_parallel, or leave speculative out",
    ),
    "stages of SGLang": (
        helped("sglang", parallel={"tensor": 4, "pipeline": 2}),
        "speculative-layout",
        "SGLang 0.5.23 does not draft tokens in a pipeline",
        "use tensor_parallel, or leave speculative out",
    ),
    "flags that say it again": (
        drafting(service={"flags": {"--speculative-config": {"method": "mtp", "num_speculative_tokens": 1}}}),
        "speculative-flags",
        "--speculative-config repeats a setting of speculative",
        "leave one of them out",
    ),
    "a flag of llama.cpp": (
        replace(
            gguf_with_mtp(),
            service=gguf_with_mtp().service.model_copy(update={"flags": {"--spec-draft-n-max": 4}}),
        ),
        "speculative-flags",
        "--spec-draft-n-max repeats a setting of speculative",
        "leave one of them out",
    ),
    "more hosts of llama.cpp": (
        replace(gguf_with_mtp(), rig=gguf_with_mtp().rig.model_copy(update={"hosts_per_service": 2})),
        "speculative-layout",
        "the plan does not count speculative decoding with llama.cpp over several hosts",
        "leave speculative out",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why(case: str) -> None:
    asked, rule, message, hint = REFUSED[case]
    found = [(each.rule, each.message, each.hint) for each in refusals(asked) if each.rule.startswith("speculative-")]
    assert found == [(rule, message, hint)]


def test_tokens_that_the_modules_do_not_divide_are_refused_for_vllm() -> None:
    asked = drafting(tokens=4)
    three = asked.model.mtp_attention[0].model_copy(update={"layers": (0, 1, 2)})
    asked = replace(asked, model=asked.model.model_copy(update={"mtp_attention": (three,)}))
    (found,) = [each for each in refusals(asked) if each.rule == "speculative-tokens"]
    assert found.message == "speculative.tokens is 4, which is not a multiple of the 3 MTP modules of Qwen3.6-27B"
    assert found.hint == "write 3, or leave tokens out"
    assert not [each for each in refusals(replace(asked, draft=Draft("mtp", 2))) if each.rule == "speculative-tokens"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llama.cpp"])
def test_a_smaller_model_with_the_same_vocabulary_is_accepted(engine: str) -> None:
    found = [each for each in refusals(helped(engine)) if each.rule.startswith("speculative-")]
    assert found == []
    close = helped("llama.cpp", model=small_model().model_copy(update={"vocab": 152_064}))
    assert [each for each in refusals(close) if each.rule == "speculative-vocabulary"] == []


def test_a_head_is_accepted_as_what_it_is() -> None:
    asked = helped(draft=Draft("eagle", 3, HEAD, small()))
    assert [each for each in refusals(asked) if each.rule.startswith("speculative-")] == []
