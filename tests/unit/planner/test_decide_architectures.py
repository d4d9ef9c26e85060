"""Plans of models that only some engines have: what is chosen, and what is said where nothing can serve them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.catalogue import Catalogue, load_catalogue
from rigup.lock import Lock
from rigup.plan import Plan
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.project.planning import plan_service

MODEL = (Path(__file__).parents[3] / "src/rigup/catalogue/data/models/smollm2.toml").read_text()
NAMES = 'architectures = ["LlamaForCausalLM"]\ngguf_architecture = "llama"\n'
CHECKPOINTS = """
[[checkpoint]]
repo = "org/own"
model = "Own"
quant = "BF16"
scheme = "bf16"
scope = "linear"
bytes = 269030016
sources = { bytes = "two bytes a weight" }

[[checkpoint]]
repo = "org/own-GGUF"
model = "Own"
quant = "Q8_0"
scheme = "gguf"
bytes = 144811072
entry = "own.gguf"
sources = { bytes = "ls" }
"""


def catalogue(fleet: Path, names: str, engines: str = "") -> Catalogue:
    """A fleet's catalogue with a model under these names of its architecture, in safetensors and as a GGUF."""
    text = MODEL.replace("SmolLM2-135M-Instruct", "Own", 1)
    assert NAMES in text
    files = {"models": text.replace(NAMES, names), "checkpoints": CHECKPOINTS, "engines": engines}
    for folder, content in files.items():
        path = fleet / "catalogue" / folder / "own.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        if content:
            path.write_text(content)
    return load_catalogue(fleet)


def plan(known: Catalogue, gpus: object = "1x RTX 3090", **service: Any) -> Plan:
    rig = read_rig({"gpus": gpus, "host_memory_gib": 64}, "test", known)
    (wanted,) = read_services({"chat": {"model": "Own", **service}}, "test", rig)
    return plan_service("host", "group", rig, wanted, known, Lock())


def refused(found: Plan) -> list[tuple[str, str, str]]:
    return [(finding.rule, finding.message, finding.hint) for finding in found.refusals]


def test_an_engine_with_the_architecture_is_chosen_without_a_word_about_versions(tmp_path: Path) -> None:
    only_sglang = 'architectures = ["IQuestQ1ForCausalLM"]\n'
    found = plan(catalogue(tmp_path, only_sglang))
    assert (found.verdict, found.build and found.build.engine) == ("ok", "sglang")


@pytest.mark.parametrize(
    ("names", "service", "lacks", "advice"),
    [
        (
            'architectures = ["IQuestQ1ForCausalLM"]\n',
            {"engine": "llama.cpp"},
            ("llama.cpp b11434", "`IQuestQ1ForCausalLM`", "SGLang 0.5.23"),
            "SGLang",
        ),
        (
            'architectures = ["IQuestQ1ForCausalLM"]\n',
            {"engine": "sglang", "version": "0.5.20"},
            ("SGLang 0.5.20", "`IQuestQ1ForCausalLM`", "SGLang 0.5.21"),
            "0.5.21",
        ),
        ('gguf_architecture = "pockettts"\n', {"engine": "vllm"}, ("class of Own", "vLLM"), "set architectures"),
    ],
)
def test_an_engine_that_is_named_and_lacks_it(
    tmp_path: Path, names: str, service: dict[str, str], lacks: tuple[str, ...], advice: str
) -> None:
    ((rule, message, hint),) = refused(plan(catalogue(tmp_path, names), **service))
    assert rule == "model-support" and advice in hint
    assert all(part in message for part in lacks), message


def test_on_a_rig_without_gpus_the_reason_is_the_architecture(tmp_path: Path) -> None:
    found = refused(plan(catalogue(tmp_path, 'architectures = ["IQuestQ1ForCausalLM"]\n'), [], engine="llama.cpp"))
    assert [rule for rule, _, _ in found] == ["model-support"]
    assert found[0][1].startswith("llama.cpp b11434 ") and "`IQuestQ1ForCausalLM`" in found[0][1]


def test_no_engine_has_it(tmp_path: Path) -> None:
    names = 'architectures = ["Glm6ForCausalLM"]\ngguf_architecture = "glm6"\n'
    found = refused(plan(catalogue(tmp_path, names)))
    assert [(rule, message) for rule, message, _ in found] == [
        ("model-support", "llama.cpp b11434 has no architecture `glm6`"),
        ("model-support", "SGLang 0.5.23 has no architecture `Glm6ForCausalLM`"),
        ("model-support", "vLLM 0.33.0 has no architecture `Glm6ForCausalLM`"),
    ]
    assert all("catalogue/engines/" in hint for _, _, hint in found)


def test_engines_are_asked_for_the_class_of_mistrals_own_format(tmp_path: Path) -> None:
    """One checkpoint in it, and one of another publisher in transformers' format, whose class no engine has."""
    names = 'architectures = ["Mistral4ForCausalLM"]\n'
    own = CHECKPOINTS.replace('scope = "linear"', 'scope = "linear"\nmistral_class = "MistralLarge3ForCausalLM"')
    other = CHECKPOINTS.partition('\n[[checkpoint]]\nrepo = "org/own-GGUF')[0].replace("org/own", "org/other")
    catalogue(tmp_path, names)
    (tmp_path / "catalogue/checkpoints/own.toml").write_text(own + other)
    known = load_catalogue(tmp_path)
    found = plan(known)
    assert (found.verdict, found.build and found.build.engine) == ("ok", "vllm")
    assert found.checkpoint and found.checkpoint.repo == "org/own"
    (lacking,) = refused(plan(known, checkpoint="org/other", engine="vllm"))
    assert lacking[:2] == ("model-support", "vLLM 0.33.0 has no architecture `Mistral4ForCausalLM`")
    (named,) = refused(plan(known, checkpoint="org/own", engine="sglang"))
    assert named[0] == "mistral-format" and "vLLM" in named[2]
    hints = [hint for _, _, hint in refused(plan(known, checkpoint="org/own", engine="llama.cpp"))]
    assert "use vLLM" in hints, "SGLang does not read it of org"


def test_a_fleet_adds_the_architecture_alone(tmp_path: Path) -> None:
    names = 'architectures = ["Glm6ForCausalLM"]\ngguf_architecture = "glm6"\n'
    own = 'name = "vllm"\narchitectures = [{ name = "Glm6ForCausalLM", since = "0.33.0", source = "our plugin" }]\n'
    known = catalogue(tmp_path, names, own)
    found = plan(known)
    assert (found.verdict, found.build and found.build.engine) == ("ok", "vllm")
    (older,) = refused(plan(known, engine="vllm", version="0.32.0"))
    assert older[1:] == (
        "vLLM 0.32.0 has no architecture `Glm6ForCausalLM`; vLLM 0.33.0 has",
        "set version to 0.33.0",
    )


def test_a_release_that_is_not_read_yet_is_planned_with_a_warning(tmp_path: Path) -> None:
    names = 'architectures = ["Glm6ForCausalLM"]\n'
    release = 'version = "0.34.0"\ncuda = "13.0"\nglibc = "2.28"\npython = ">=3.11"\n'
    known = catalogue(tmp_path, names, f'name = "vllm"\ndefault_version = "0.34.0"\n[[versions]]\n{release}')
    found = plan(known)
    assert (found.verdict, found.build and found.build.version) == ("ok", "0.34.0")
    warned = {finding.rule: finding.message for finding in found.warnings}
    assert all(part in warned["unread-architecture"] for part in ("vLLM 0.34.0", "Own", "0.33.0"))


def test_the_rule_can_be_silenced(tmp_path: Path) -> None:
    names = 'architectures = ["Glm6ForCausalLM"]\n'
    found = plan(catalogue(tmp_path, names), engine="vllm", allow=["model-support"])
    assert (found.verdict, found.silenced) == ("ok", ("model-support",))


def test_a_model_names_an_architecture(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="architectures or gguf_architecture is missing: engines are asked for them"):
        catalogue(tmp_path, "")
