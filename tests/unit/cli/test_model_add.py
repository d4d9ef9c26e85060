"""`rigup model add`: from a hub, a folder or a file to entries of the catalogue; each refusal is one message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.checkpoints.tensor import Tensor
from rigup.cli import main
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.hub.sparse_files import Value, write_gguf, write_safetensors
from tests.published.checkpoint import write
from tests.published.collect import read_configs, read_shapes

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
}


def tiny_tensors(layers: int = 2) -> list[Tensor]:
    shapes = {
        "self_attn.q_proj": (64, 64),
        "self_attn.k_proj": (32, 64),
        "mlp.up_proj": (96, 64),
        "input_layernorm": (64,),
    }
    found = [Tensor("model.embed_tokens.weight", "BF16", (100, 64), 12_800)]
    for layer in range(layers):
        for name, shape in shapes.items():
            size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            found.append(Tensor(f"model.layers.{layer}.{name}.weight", "BF16", shape, size))
    return [*found, Tensor("lm_head.weight", "BF16", (100, 64), 12_800)]


def tiny(folder: Path, config: dict[str, Any] | None = None, layers: int = 2) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(TINY if config is None else config))
    write_safetensors(folder / "model.safetensors", tiny_tensors(layers))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "served"


@pytest.fixture
def hub(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    root.mkdir()
    found = StandInHub.start(root, tmp_path / "state", lfs_minimum=2**17)
    monkeypatch.setenv("HF_ENDPOINT", found.url)
    yield found
    found.stop()


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "fleet").mkdir()
    monkeypatch.chdir(tmp_path / "fleet")
    return tmp_path / "fleet"


def test_a_checkpoint_of_a_terabyte(
    root: Path, hub: StandInHub, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """True shapes of GLM-5.2 in FP8: 745 GB on the hub, of which the headers are read."""
    entry = read_configs()["zai-org/GLM-5.2-FP8"]
    sampling = json.dumps({"temperature": 1.0, "top_p": 0.95, "do_sample": True})
    card = "---\nlicense: mit\n---\n# GLM\n"
    write(
        root / "org/Huge-FP8",
        entry,
        read_shapes()["zai-org/GLM-5.2"],
        generation_config__json=sampling,
        README__md=card,
    )
    assert main.main(["model", "add", "org/Huge-FP8", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [file["action"] for file in said["files"]] == ["new", "new"]
    assert said["bytes_read"] < 40_000_000 < 745_000_000_000 < said["checkpoint"]["bytes"]

    catalogue = load_catalogue(fleet)
    model = catalogue.models_by_name["Huge"]
    assert (model.parameters, model.experts, model.license) == (743_377_019_904, 256, "mit")
    assert model.sampling == {"temperature": 1.0, "top_p": 0.95}
    assert {attention.kind for attention in model.attention} == {"latent_indexed"}
    (found,) = catalogue.checkpoints_by_model["Huge"]
    assert (found.quant, found.scheme, found.scope) == ("FP8", "fp8_block128", "linear")
    assert found.tensors is not None
    assert found.bytes - found.tensors.total < 20_000_000
    assert found.revision_seen and f"org/Huge-FP8@{found.revision_seen[:12]}" in found.sources["tensors"]
    downloaded = sum(each["bytes"] for each in hub.log())
    assert downloaded < 60_000_000


@pytest.mark.parametrize(
    "said", ["base_model: Qwen/Qwen3-0.6B", 'base_model:\n- "Qwen/Qwen3-0.6B"', "base_model: [Qwen/Qwen3-0.6B]"]
)
def test_a_fine_tune_has_the_parsers_of_what_it_was_made_from(
    said: str, fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tiny(tmp_path / "sft", {**TINY, "architectures": ["Qwen3ForCausalLM"]})
    (folder / "README.md").write_text(f"---\nlicense: mit\n{said}\ntags: [sft]\n---\n# Ours\n")
    assert main.main(["model", "add", str(folder), "--repo", "ada/qwen3-sft", "--json"]) == 0
    model = json.loads(capsys.readouterr().out)["model"]
    assert model["parsers"]["sglang"] == {"tool": ["qwen"], "reasoning": ["qwen3"]}
    assert "README.md: base_model Qwen/Qwen3-0.6B; " in model["sources"]["parsers"]


def test_a_quantisation_of_a_known_model_adds_a_checkpoint_alone(
    root: Path, hub: StandInHub, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny(root / "org/Tiny-1B")
    assert main.main(["model", "add", "org/Tiny-1B"]) == 0
    capsys.readouterr()
    assert main.main(["model", "add", "org/Tiny-1B"]) == 0
    assert "catalogue/: nothing to change" in capsys.readouterr().out
    metadata: dict[str, Value] = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 64}
    metadata |= {"llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.context_length": 4096}
    metadata |= {"llama.feed_forward_length": 96, "tokenizer.ggml.tokens": ["x"] * 100}
    shapes = {"attn_q": ("Q8_0", (64, 64), 4352), "ffn_up": ("Q8_0", (96, 64), 6528), "attn_norm": ("F32", (64,), 256)}
    tensors = [Tensor("token_embd.weight", "Q8_0", (100, 64), 6800)]
    tensors += [
        Tensor(f"blk.{layer}.{name}.weight", kind, shape, size)
        for layer in range(2)
        for name, (kind, shape, size) in shapes.items()
    ]
    for quant in ("Q8_0", "Q4_K_M"):
        write_gguf(root / f"un/Tiny-1B-GGUF/Tiny-1B-{quant}.gguf", metadata, tensors)
    capsys.readouterr()
    assert main.main(["model", "add", "un/Tiny-1B-GGUF"]) == 2
    assert capsys.readouterr().err.splitlines()[1:] == [
        "rigup: un/Tiny-1B-GGUF: 2 quantisations; name one",
        "hint: rigup model add un/Tiny-1B-GGUF:Q4_K_M; choose from: Q4_K_M, Q8_0",
    ]
    assert main.main(["model", "add", "un/Tiny-1B-GGUF:q8_0", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["model_known"] and [file["path"] for file in said["files"]] == [
        "catalogue/checkpoints/un--Tiny-1B-GGUF--Q8_0.toml"
    ]
    found = next(entry for entry in load_catalogue(fleet).checkpoints if entry.repo == "un/Tiny-1B-GGUF")
    assert (found.scheme, found.model, found.entry) == ("gguf", "Tiny-1B", "Tiny-1B-Q8_0.gguf")
    assert found.tensors is not None and found.tensors.layers[0].attention == 4352


def test_folders_and_files_of_this_machine(tmp_path: Path, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny(tmp_path / "weights/Tiny-2B-FP8")
    assert main.main(["model", "add", str(tmp_path / "weights/Tiny-2B-FP8"), "--repo", "me/Tiny-2B"]) == 0
    assert "Tiny-2B: 0.0 billion parameters" in capsys.readouterr().out
    metadata: dict[str, Value] = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 64}
    metadata |= {"llama.attention.head_count": 4, "llama.context_length": 4096, "tokenizer.ggml.tokens": ["x"] * 100}
    tensors = [
        Tensor("token_embd.weight", "F16", (100, 64), 12_800),
        Tensor("blk.0.attn_q.weight", "F16", (64, 64), 8192),
    ]
    write_gguf(tmp_path / "weights/own-F16.gguf", metadata, tensors)
    assert main.main(["model", "add", str(tmp_path / "weights/own-F16.gguf"), "--model", "Own"]) == 0
    found = next(entry for entry in load_catalogue(fleet).checkpoints if entry.model == "Own")
    assert (found.repo, found.quant, found.shards) == ("local/own-F16", "F16", 1)
    assert found.location == str(tmp_path / "weights/own-F16.gguf")
    (tmp_path / "more").mkdir()
    write_gguf(tmp_path / "more/own-F16.gguf", metadata, tensors)
    assert main.main(["model", "add", str(tmp_path / "more/own-F16.gguf"), "--model", "Own"]) == 0
    both = [entry for entry in load_catalogue(fleet).checkpoints if entry.model == "Own"]
    assert len({entry.repo for entry in both}) == 2 and both[0].location != both[1].location


@pytest.mark.parametrize(("beside", "named"), [("FP8", "fp8"), (None, "auto")])
def test_the_type_of_kv_cache_that_a_configuration_names(
    beside: str | None, named: str, tmp_path: Path, fleet: Path
) -> None:
    folder = tmp_path / "weights/Tiny-2B-FP8"
    own = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["model*", "lm_head"]}
    tiny(folder, {**TINY, "quantization_config": own})
    said = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": beside}}
    (folder / "hf_quant_config.json").write_text(json.dumps(said))
    assert main.main(["model", "add", str(folder), "--repo", "me/Tiny-2B"]) == 0
    found = next(entry for entry in load_catalogue(fleet).checkpoints if entry.repo == "me/Tiny-2B")
    assert found.kv_cache_type == named


# What is wrong, what the message begins with: the place, and after "..." the value that it ends with.
REFUSALS: dict[str, tuple[Any, str]] = {
    "weights without a config": (
        lambda folder: (tiny(folder) / "config.json").unlink(),
        "{}: weights without a config.json",
    ),
    "a config without weights": (
        lambda folder: (tiny(folder) / "model.safetensors").unlink(),
        "{}: a config.json without weights",
    ),
    "nothing": (lambda folder: folder.mkdir(), "{}: neither safetensors nor GGUF weights"),
    "a truncated header": (
        lambda folder: (tiny(folder) / "model.safetensors").write_bytes(b"\xff\0\0\0\0\0\0\0{"),
        "{}/model.safetensors: ... 1 of 255 bytes",
    ),
    "a header of absurd length": (
        lambda folder: _with_header(folder, b"{}", claimed=2**62),
        "{}/model.safetensors: the header claims 4611686.02 TB",
    ),
    "a header that is not JSON": (
        lambda folder: _with_header(folder, b"[" * 4000),
        "{}/model.safetensors: ...nested too deep",
    ),
    "tensors that overlap": (
        lambda folder: _with_header(
            folder,
            b'{"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]},'
            b' "b": {"dtype": "BF16", "shape": [4], "data_offsets": [4, 12]}}',
        ),
        "{}/model.safetensors: b overlaps ",
    ),
    "a tensor outside of the file": (
        lambda folder: _with_header(folder, b'{"a": {"dtype": "BF16", "shape": [400], "data_offsets": [0, 800]}}'),
        "{}/model.safetensors: a ends at byte 800",
    ),
    "another model": (
        lambda folder: tiny(folder, {**TINY, "num_hidden_layers": 3}),
        "{}: layer 2 of 3 has no tensors",
    ),
    "no heads": (
        lambda folder: tiny(folder, {key: value for key, value in TINY.items() if key != "num_attention_heads"}),
        "{}: config.json: num_attention_heads: missing",
    ),
    "layers without end": (
        lambda folder: tiny(folder, {**TINY, "num_hidden_layers": 10**9}),
        "{}: config.json: num_hidden_layers: ...1000000000",
    ),
    "layers of an unknown kind": (
        lambda folder: tiny(folder, {**TINY, "layer_types": ["full_attention", "psychic"]}),
        "{}: config.json: layer_types: rigup does not know layers of type 'psychic'",
    ),
    "an unknown quantisation": (
        lambda folder: tiny(folder, {**TINY, "quantization_config": {"quant_method": "magic"}}),
        '{}: config.json: quantization_config: unknown quantisation "magic"',
    ),
    "a class that is none": (
        lambda folder: tiny(folder, {**TINY, "architectures": ["\x1b[2Jx"]}),
        "{}: config.json: architectures: ",
    ),
    "absurd bits": (
        lambda folder: tiny(folder, {**TINY, "quantization_config": {"quant_method": "gptq", "bits": 5}}),
        "{}: config.json: quantization_config: bits: ...2, 3, 4, 8",
    ),
    "a config that is not JSON": (
        lambda folder: (tiny(folder) / "config.json").write_text("{'a'"),
        "{}: config.json: not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
    ),
    "a config of 2 GB": (
        lambda folder: _grown(tiny(folder) / "config.json", 2 * 10**9),
        "{}: config.json: 2.0 GB ",
    ),
    "an index that is a list": (
        lambda folder: (tiny(folder) / "model.safetensors.index.json").write_text("[]"),
        "{}: model.safetensors.index.json is not ",
    ),
    "missing shards": (
        lambda folder: (tiny(folder) / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "b.safetensors"}}'
        ),
        "{}: 1 of 1 weight files ...b.safetensors",
    ),
}


def _with_header(folder: Path, header: bytes, claimed: int | None = None) -> None:
    length = len(header) if claimed is None else claimed
    (tiny(folder) / "model.safetensors").write_bytes(length.to_bytes(8, "little") + header + bytes(12))


def _grown(path: Path, size: int) -> None:
    with path.open("ab") as file:
        file.truncate(size)


@pytest.mark.parametrize("kind", REFUSALS)
def test_refusals_are_one_message_and_write_nothing(
    kind: str, tmp_path: Path, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, message = REFUSALS[kind]
    folder = tmp_path / "Tiny"
    make(folder)
    assert main.main(["model", "add", str(folder)]) == 2
    said = capsys.readouterr()
    text, hint = said.err.splitlines()
    beginning, _, value = message.format(folder).partition("...")
    assert text.replace(f"{folder}/config", f"{folder}: config").startswith(f"rigup: {beginning}")
    assert text.endswith(value)
    assert hint.startswith("hint: ") and said.out == ""
    assert not (fleet / "catalogue").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["org/none"], "org/none: the hub at {} has no "),
        (["nonsense"], '"nonsense" is neither a repository nor a file or folder here'),
        (["./gone.gguf"], "gone.gguf: does not exist"),
        (["org/none", "--repo", "x"], "--repo: 'x' is not a repository"),
        (["org/none", "--model", "\x1b"], "--model: "),
        (["org/none", "--revision", "../../x"], '--revision: "../../x" '),
        (["org/none", "--revision", "a//b"], '--revision: "a//b" '),
        (["org/none", "--revision", "a\x1b"], "--revision: "),
        (["org/none", "--fleet", "/nowhere"], "--fleet: /nowhere: not a folder"),
    ],
)
def test_what_cannot_be_found(
    words: list[str], message: str, hub: StandInHub, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["model", "add", *words]) == 2
    name = hub.url.partition("//")[2]
    assert f"rigup: {message.format(name)}" in capsys.readouterr().err


GGUF_REFUSALS = {
    "cut": (b"GGUF\3\0\0\0", "8 bytes"),
    "of another kind": (bytes(100), "not a GGUF"),
    "with a count that cannot be": (
        b"GGUF" + (3).to_bytes(4, "little") + (2**60).to_bytes(8, "little") + bytes(8),
        "1,152,921,504,606,846,976 tensors",
    ),
    "with a name that cannot be": (
        b"GGUF" + (3).to_bytes(4, "little") + (1).to_bytes(8, "little") + bytes(8) + (2**40).to_bytes(8, "little"),
        "1,099,511,627,776 bytes",
    ),
}


@pytest.mark.parametrize("kind", GGUF_REFUSALS)
def test_a_gguf_that_cannot_be_read(kind: str, tmp_path: Path, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, value = GGUF_REFUSALS[kind]
    path = tmp_path / "x-Q8_0.gguf"
    path.write_bytes(content)
    assert main.main(["model", "add", str(path)]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith(f"rigup: {path}: ") and value in error.removeprefix(f"rigup: {path}: ")
    assert hint == "hint: copy or download the file again"
    assert not (fleet / "catalogue").exists()


def test_the_shards_of_a_split_gguf(tmp_path: Path, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (2, 3):
        (tmp_path / f"x-Q8_0-{number:05}-of-00003.gguf").write_bytes(b"GGUF")
    assert main.main(["model", "add", str(tmp_path / "x-Q8_0-00002-of-00003.gguf")]) == 2
    said = capsys.readouterr().err
    assert f"rigup: {tmp_path}/x-Q8_0-00002-of-00003.gguf: not the first of 3 shards" in said
    assert f"hint: name {tmp_path}/x-Q8_0-00001-of-00003.gguf" in said


def test_a_gated_repository(root: Path, hub: StandInHub, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny(root / "org/Tiny")
    hub.faults(gated=True)
    assert main.main(["model", "add", "org/Tiny"]) == 2
    name = hub.url.partition("//")[2]
    assert f"rigup: org/Tiny: the hub at {name} requires a token" in capsys.readouterr().err
