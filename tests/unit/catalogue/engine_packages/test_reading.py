"""What is read out of an engine's package: of small ones that are written like the real ones, and of broken ones."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from rigup.catalogue.engine_packages import llama_cpp
from rigup.catalogue.engine_packages.llama_cpp_arguments import arguments
from rigup.catalogue.engine_packages.reading import UNREADABLE, archive_abilities, archive_names, wheel_abilities
from tests.hostile import bounded

SHA256 = "0" * 64
VLLM = {
    "vllm/model_executor/models/registry.py": """
_TEXT_GENERATION_MODELS = {"LlamaForCausalLM": ("llama", "LlamaForCausalLM")}
_MULTIMODAL_MODELS: dict = {
    "Qwen3VLForConditionalGeneration": ("qwen3_vl", "Qwen3VLForConditionalGeneration"),
}
_VLLM_MODELS = {**_TEXT_GENERATION_MODELS, **_MULTIMODAL_MODELS}
_PREVIOUSLY_SUPPORTED_MODELS = {"GoneForCausalLM": "0.10.2"}
raise RuntimeError("nobody runs this")
""",
    "vllm/model_executor/layers/quantization/__init__.py": 'QuantizationMethods = Literal["fp8", "gptq"]',
    "vllm/tool_parsers/__init__.py": '_TOOL_PARSERS_TO_REGISTER = {"hermes": ("hermes_tool_parser", "Hermes")}',
    "vllm/entrypoints/openai/tool_parsers/__init__.py": "moved = True",
    "vllm/reasoning/__init__.py": '_REASONING_PARSERS_TO_REGISTER = {"qwen3": ("qwen3_reasoning_parser", "Qwen3")}',
}
SGLANG = {
    "sglang/srt/models/llama.py": "\nEntryClass = LlamaForCausalLM\n",
    "sglang/srt/models/qwen3_vl.py": "\nEntryClass = [Qwen3VLForConditionalGeneration, Qwen3VLMoeForCausalLM]\n",
    "sglang/srt/models/shared/parts.py": "\nEntryClass = NotAModel\n",
    "sglang/srt/models/utils.py": "def load(): ...",
    "sglang/srt/layers/quantization/__init__.py": """
BASE_QUANTIZATION_METHODS: Dict[str, Type] = {"fp8": Fp8Config}
if is_cuda() or is_hip():
    BASE_QUANTIZATION_METHODS.update({"mxfp4": Mxfp4Config})
if is_npu():
    BASE_QUANTIZATION_METHODS.update({"npu_only": Config})
""",
    "sglang/srt/function_call/function_call_parser.py": 'class P:\n    ToolCallParserEnum: Dict = {"qwen25": Detector}',
    "sglang/srt/parser/reasoning_parser.py": 'class R:\n    DetectorMap: Dict = {"qwen3": Detector}',
}
LLAMA_CPP = {
    "common/arg.cpp": r"""
static std::initializer_list<enum llama_example> pictures = { LLAMA_EXAMPLE_MTMD, LLAMA_EXAMPLE_SERVER };
// add_opt(common_arg({"--commented"}, "help", nullptr));
common_params_context init(common_params & params, llama_example ex) {
    auto add_opt = [&](common_arg arg) { options.push_back(std::move(arg)); };
    add_opt(common_arg(
        {"-c", "--ctx-size"}, "N",
        string_format("size {of} the context (default: %d, \"0\" = all)", params.n_ctx),
        [](common_params & params, int value) { if (value == '}') { params.n_ctx = 1'000; } }
    ).set_env("LLAMA_ARG_CTX_SIZE"));
    add_opt(common_arg({"--perf"}, {"--no-perf"}, R"(timings") })", on)
        .set_env("LLAMA_ARG_PERF").set_examples({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({ "-mm", "--mmproj" }, "FILE", "of pictures", file).set_examples(pictures));
    if (ex == LLAMA_EXAMPLE_SERVER) {
        add_opt(common_arg({"--host"}, "HOST", "where", host)
            .set_examples({LLAMA_EXAMPLE_SERVER}).set_env("LLAMA_ARG_HOST"));
    }
    add_opt(common_arg({"--prompt"}, "TEXT", "none here", text).set_excludes({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({"--chunks"}, "N", "of others", chunks).set_examples({LLAMA_EXAMPLE_PERPLEXITY}));
    add_opt(common_arg({"--draft"}, "N", "gone", [](common_params &, int) { arg_removed("use another"); })
        .set_env("LLAMA_ARG_DRAFT"));
    add_opt(common_arg({"--log"}, "help", log).set_spec());
}
void preset(std::vector<common_arg> & args) { args.push_back(common_arg({"load-on-startup"}, "NAME", "help", none)); }
""",
    "src/llama-arch.cpp": """
static const std::map<llm_arch, const char *> LLM_ARCH_NAMES = {
    { LLM_ARCH_CLIP,   "clip"      }, // dummy
    { LLM_ARCH_LLAMA,  "llama"     },
    { LLM_ARCH_GROK,   "grok"      },
    { LLM_ARCH_UNKNOWN, "(unknown)" },
};
static const std::map<llm_kv, const char *> OTHERS = { { LLM_KV_X, "x" } };
bool llm_arch_is_hybrid(const llm_arch & arch) { switch (arch) { case LLM_ARCH_LLAMA: return true; } }
bool llm_arch_supports_sm_tensor(const llm_arch & arch) {
    switch (arch) { case LLM_ARCH_GROK: return false; default: return true; }
}
""",
    "ggml/src/ggml.c": '.type_name = "q4_K", .type_name = "DEPRECATED", .type_name = "TYPE_Q4_0_4_4 REMOVED",',
    "gguf-py/gguf/constants.py": """
MODEL_ARCH_NAMES: dict = {MODEL_ARCH.LLAMA: "llama", MODEL_ARCH.GROK: "grok", MODEL_ARCH.MMPROJ: "clip"}
""",
    "conversion/llama.py": """
@ModelBase.register("LlamaForCausalLM", "MistralForCausalLM")
class LlamaModel(TextModel):
    model_arch = gguf.MODEL_ARCH.LLAMA
@ModelBase.register("VisionModel")
class LlamaVision(MmprojModel):
    model_arch = gguf.MODEL_ARCH.MMPROJ
""",
    "conversion/grok.py": """
@ModelBase.register("GrokForCausalLM")
class GrokModel(LlamaModel):
    model_arch = gguf.MODEL_ARCH.GROK
@ModelBase.register("Grok2ForCausalLM")
@ModelBase.example("somebody/Grok")
class Grok2Model(GrokModel):
    pass
""",
}


def wheel(members: Mapping[str, str]) -> zipfile.ZipFile:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as written:
        for path, text in members.items():
            written.writestr(path, text)
    return zipfile.ZipFile(file)


def archive(folder: Path, members: Mapping[str, str], root: str = "tree-1") -> Path:
    path = folder / "source.tar.gz"
    with tarfile.open(path, "w:gz") as written:
        for name, text in members.items():
            entry = tarfile.TarInfo(f"{root}/{name}")
            entry.size = len(text.encode())
            written.addfile(entry, io.BytesIO(text.encode()))
    return path


def test_vllm() -> None:
    found = wheel_abilities("vllm", "0.40.0", wheel(VLLM), "vllm.whl", SHA256)
    assert found.architectures == {"LlamaForCausalLM", "Qwen3VLForConditionalGeneration"}
    assert (found.quantizations, found.tool_parsers, found.reasoning_parsers) == (
        {"fp8", "gptq"},
        {"hermes"},
        {"qwen3"},
    )
    old = {path: text for path, text in VLLM.items() if path != "vllm/tool_parsers/__init__.py"}
    old["vllm/entrypoints/openai/tool_parsers/__init__.py"] = '_TOOL_PARSERS_TO_REGISTER = {"granite": ()}'
    assert wheel_abilities("vllm", "0.11.0", wheel(old), "vllm.whl", SHA256).tool_parsers == {"granite"}


def test_sglang() -> None:
    found = wheel_abilities("sglang", "0.6.0", wheel(SGLANG), "sglang.whl", SHA256)
    classes = {"LlamaForCausalLM", "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForCausalLM"}
    assert found.architectures == classes
    assert (found.quantizations, found.tool_parsers, found.reasoning_parsers) == (
        {"fp8", "mxfp4"},
        {"qwen25"},
        {"qwen3"},
    )


def test_llama_cpp(tmp_path: Path) -> None:
    found = archive_abilities("b12000", archive(tmp_path, LLAMA_CPP), "tree-1", "source.tar.gz", SHA256)
    assert (found.architectures, found.layer_split_only, found.quantizations) == ({"llama", "grok"}, {"grok"}, {"q4_K"})
    assert found.conversions == {
        "LlamaForCausalLM=llama",
        "MistralForCausalLM=llama",
        "GrokForCausalLM=grok",
        "Grok2ForCausalLM=grok",
    }


def test_the_options_of_llama_server(tmp_path: Path) -> None:
    options, variables = archive_names(archive(tmp_path, LLAMA_CPP), "tree-1")
    assert options == {"-c", "--ctx-size", "--perf", "--no-perf", "-mm", "--mmproj", "--host", "--log"}
    assert variables == {"LLAMA_ARG_CTX_SIZE", "LLAMA_ARG_PERF", "LLAMA_ARG_HOST"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "the archive has no common/arg.cpp"),
        ("", "no add_opt in common/arg.cpp"),
        ('add_opt(common_arg({"--host"}, "HOST"', "a bracket is not closed"),
        ('add_opt(common_arg({"--host"}, x).set_examples(gone));', "no list gone"),
        ('add_opt(common_arg({"--host"}, x).', "a bracket is not closed"),
        ('add_opt(common_arg({"--host"}', "a bracket is not closed"),
        ("add_opt(common_arg(", "a bracket is not closed"),
    ],
)
def test_a_table_of_arguments_that_is_not_as_expected(tmp_path: Path, text: str | None, problem: str) -> None:
    members = {path: known for path, known in LLAMA_CPP.items() if path != "common/arg.cpp"}
    if text is not None:
        members["common/arg.cpp"] = text
    with pytest.raises(UNREADABLE) as error:
        archive_names(archive(tmp_path, members), "tree-1")
    assert error.value.args[0] == problem


@pytest.mark.parametrize(
    "piece", ["/*", 'R"(', '"\\\\"', "add_opt(common_arg({", "llama_example> a = {", "'", "add_opt(common_arg()"]
)
def test_a_hostile_table_of_arguments_is_read_in_one_pass(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    with bounded(), suppress(*UNREADABLE):
        list(arguments(text))


@pytest.mark.parametrize("path", [path for path in VLLM if "entrypoints" not in path])
@pytest.mark.parametrize("text", ["", "x = (", "\0", "[" * 5000])
def test_a_wheel_of_vllm_that_is_not_as_expected(path: str, text: str) -> None:
    with pytest.raises(UNREADABLE):
        wheel_abilities("vllm", "0.40.0", wheel({**VLLM, path: text}), "vllm.whl", SHA256)


@pytest.mark.parametrize("path", ["src/llama-arch.cpp", "ggml/src/ggml.c", "gguf-py/gguf/constants.py"])
@pytest.mark.parametrize("text", [None, "", "x = ("])
def test_an_archive_of_llama_cpp_that_is_not_as_expected(tmp_path: Path, path: str, text: str | None) -> None:
    members = {known: LLAMA_CPP[known] for known in LLAMA_CPP if known != path}
    if text is not None:
        members[path] = text
    with pytest.raises(UNREADABLE):
        archive_abilities("b12000", archive(tmp_path, members), "tree-1", "source.tar.gz", SHA256)


def test_an_archive_whose_files_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama_cpp, "LARGEST", 100)
    with pytest.raises(LookupError, match=r"common/arg\.cpp is too large to read"):
        llama_cpp.sources(archive(tmp_path, LLAMA_CPP), "tree-1")


def test_an_archive_that_breaks_off(tmp_path: Path) -> None:
    path = archive(tmp_path, LLAMA_CPP)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UNREADABLE):
        archive_abilities("b12000", path, "tree-1", "source.tar.gz", SHA256)


def test_classes_that_are_derived_from_each_other_end(tmp_path: Path) -> None:
    circle = '@M.register("A")\nclass A(B): pass\n@M.register("B")\nclass B(A): pass\n'
    with pytest.raises(LookupError):
        archive_abilities(
            "b1",
            archive(tmp_path, {**LLAMA_CPP, "conversion/llama.py": circle, "conversion/grok.py": ""}),
            "tree-1",
            "a",
            SHA256,
        )
