"""The toolkit's catalogue is whole and sourced, and a fleet's files are laid over it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rigup.attention.full import FullAttention
from rigup.catalogue.catalogue import Catalogue, file_stem, load_catalogue
from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.data_files import DATA, read_file
from rigup.catalogue.engine_files import FILES
from rigup.catalogue.model import Model
from rigup.errors import InputError

PLAIN = ("gguf", "bf16")
# Nobody has stored their configuration: `rigup model add` reads it.
METHOD_NOT_READ = {
    "deepseek-ai/DeepSeek-V4.1-Flash",
    "MiniMaxAI/MiniMax-M3-MXFP8",
    "QuantTrio/MiniMax-M2-AWQ",
    "QuantTrio/MiniMax-M2.5-AWQ",
    "QuantTrio/MiniMax-M2.7-AWQ",
}


@pytest.fixture(scope="module")
def catalogue() -> Catalogue:
    return load_catalogue()


def write(fleet: Path, name: str, text: str) -> None:
    path = fleet / "catalogue" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_it_knows_the_models_and_gpus_of_the_example_systems(catalogue: Catalogue) -> None:
    assert {"MiniMax-M2", "MiniMax-M2.1", "MiniMax-M2.5", "MiniMax-M2.7", "MiniMax-M3"} <= set(catalogue.models_by_name)
    assert "SmolLM2-135M-Instruct" in catalogue.models_by_name
    assert {"RTX 3090", "B200", "GB10"} <= {
        gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ") for gpu in catalogue.gpus
    }
    assert set(catalogue.engines_by_name) == {"vllm", "sglang", "llama.cpp"}


def test_every_figure_that_planning_rests_on_has_a_source(catalogue: Catalogue) -> None:
    for gpu in catalogue.gpus:
        assert gpu.sources["memory_bandwidth_gbs"]
        assert gpu.sources["unified_memory" if gpu.memory_mib is None else "memory_mib"]
        assert gpu.sources["name"]
        assert gpu.power_range_w is None or gpu.sources["power_range_w"]
    for model in catalogue.models:
        assert model.sources["layers"] and model.sources["parameters"]
    for checkpoint in catalogue.checkpoints:
        assert checkpoint.sources["bytes"]


def test_what_makers_say_has_a_source(catalogue: Catalogue) -> None:
    for model in catalogue.served:
        assert (model.commercial is None) == (not model.license), model.name
        for key in ("license", "license_note", "sampling", "template_flags"):
            assert not getattr(model, key) or key in model.sources, (model.name, key)
        for key, said in (("license", "licence"), ("sampling", "advice on sampling")):
            assert getattr(model, key) or any(said in note for note in model.notes), (model.name, key)
        unsourced = [note for note in model.notes if "found in public sources" not in note]
        assert not unsourced or "notes" in model.sources, model.name


def test_quantised_checkpoints_name_the_method_of_their_configuration(catalogue: Catalogue) -> None:
    """Without it, no rule can say which release of an engine lacks that method."""
    lacking = {entry.repo for entry in catalogue.checkpoints if not entry.method and entry.scheme not in PLAIN}
    assert lacking == METHOD_NOT_READ


def test_every_checkpoint_is_of_a_known_model_and_loads_in_a_known_engine(catalogue: Catalogue) -> None:
    for checkpoint in catalogue.checkpoints:
        assert checkpoint.model in catalogue.models_by_name
        model = catalogue.models_by_name[checkpoint.model]
        served = any(not engine.versions[-1].lacks(model) for engine in catalogue.engines)
        assert checkpoint.minimum_versions is not None and bool(checkpoint.minimum_versions) == served, checkpoint.label
        for engine, version in checkpoint.minimum_versions.items():
            newest = catalogue.engines_by_name[engine].versions[-1]
            assert newest.at_least(version)


def test_checkpoints_and_gpus_are_named_once(catalogue: Catalogue) -> None:
    pairs = [(entry.repo, entry.quant) for entry in catalogue.checkpoints]
    assert len(set(pairs)) == len(pairs)
    assert len({gpu.key for gpu in catalogue.gpus}) == len(catalogue.gpus)


@pytest.mark.parametrize("name", ["MiniMax-M2", "MiniMax-M2.1", "MiniMax-M2.5", "MiniMax-M2.7"])
def test_the_shape_of_minimax_adds_up_to_its_parameters(catalogue: Catalogue, name: str) -> None:
    model = catalogue.models_by_name[name]
    (attention,) = model.attention
    assert isinstance(attention, FullAttention)
    norms = (
        model.layers * (2 * model.hidden + attention.head_dim * (attention.heads + attention.kv_heads)) + model.hidden
    )
    routers = model.layers * model.experts * (model.hidden + 1)
    experts = model.layers * model.experts * model.expert_parameters
    projections = model.layers * model.attention_parameters
    assert 2 * model.embedding_parameters + projections + experts + routers + norms == model.parameters


def test_ten_lines_add_a_gpu_and_a_checkpoint(tmp_path: Path) -> None:
    gpu = """[[gpu]]
name = "NVIDIA A100-SXM-96GB"
architecture = "Ampere"
compute_capability = "8.0"
memory_mib = 98304
memory_bandwidth_gbs = 1638
sources = { memory_mib = "nvidia-smi on our own host" }
"""
    checkpoint = """[[checkpoint]]
repo = "ours/MiniMax-M2.5-NVFP4"
model = "MiniMax-M2.5"
quant = "NVFP4"
scheme = "nvfp4"
scope = "experts"
bytes = 134498893824
minimum_versions = { vllm = "0.20.2" }
sources = { bytes = "du on our own host" }
"""
    write(tmp_path, "gpus/ours.toml", gpu)
    write(tmp_path, "checkpoints/ours.toml", checkpoint)
    found = load_catalogue(tmp_path)
    added = next(item for item in found.gpus if item.name == "NVIDIA A100-SXM-96GB")
    assert (added.key, added.moe_config_name) == ("a100-sxm-96gb", "NVIDIA_A100-SXM-96GB")
    assert any(entry.repo == "ours/MiniMax-M2.5-NVFP4" for entry in found.checkpoints_by_model["MiniMax-M2.5"])
    assert len(load_catalogue().gpus) == len(found.gpus) - 1


def test_a_fleet_replaces_what_the_toolkit_has(tmp_path: Path) -> None:
    text = """[[gpu]]
name = "NVIDIA GeForce RTX 3090"
key = "rtx-3090"
architecture = "Ampere"
compute_capability = "8.6"
memory_mib = 24000
memory_bandwidth_gbs = 936
sources = { memory_mib = "ours" }
"""
    write(tmp_path, "gpus/ours.toml", text)
    found = [gpu for gpu in load_catalogue(tmp_path).gpus if gpu.key == "rtx-3090"]
    assert [gpu.memory_mib for gpu in found] == [24000]


def test_defaults_and_sources_are_shared_by_the_entries_of_a_file(tmp_path: Path) -> None:
    text = """[defaults]
repo = "ours/GGUF"
model = "MiniMax-M2.5"
scheme = "gguf"
minimum_versions = { "llama.cpp" = "b11434" }
sources = { embedding_bits = "header" }
[[checkpoint]]
quant = "Q2"
bytes = 80000000000
sources = { bytes = "du" }
[[checkpoint]]
quant = "Q3"
bytes = 90000000000
"""
    write(tmp_path, "checkpoints/ours.toml", text)
    two, three = (entry for entry in load_catalogue(tmp_path).checkpoints if entry.repo == "ours/GGUF")
    assert two.sources == {"embedding_bits": "header", "bytes": "du"}
    assert three.sources == {"embedding_bits": "header"}


GPU_LINES = 'architecture = "X"\nmemory_bandwidth_gbs = 1\nmemory_mib = 1\nsources = { memory_mib = "x" }\n'
CHECKPOINT_LINES = 'repo = "a/b"\nquant = "Q"\nscheme = "gguf"\nminimum_versions = {}\n'
BROKEN = {
    "not TOML": ("gpus/a.toml", "[[gpu]\n", "{file}: Expected ']]' at the end of an array declaration"),
    "wrong table": ("gpus/a.toml", "[[gpus]]\n", "{file}: gpus: unknown table"),
    "table for list": ("gpus/a.toml", "[gpu]\n", "{file}: gpu: must be a list of tables"),
    "text for a table": ("gpus/a.toml", 'gpu = ["RTX 3090"]\n', '{file}: gpu[0]: must be a table, not "RTX 3090"'),
    "text for the sources of all": (
        "gpus/a.toml",
        f'[defaults]\nsources = "x"\n[[gpu]]\nname = "A"\n{GPU_LINES}',
        '{file}: defaults.sources: must be a table, not "x"',
    ),
    "no version": (
        "checkpoints/a.toml",
        '[[checkpoint]]\nmodel = "MiniMax-M2"\nbytes = 9\nrepo = "a/b"\nquant = "Q"\nscheme = "gguf"\n'
        'minimum_versions = { "llama.cpp" = "latest" }\n',
        '{file}: checkpoint[0].minimum_versions.llama.cpp: "latest" ',
    ),
    "unknown key": (
        "gpus/a.toml",
        f'[[gpu]]\nname = "A"\ncompute_capability = "8.0"\nspeed = 3\n{GPU_LINES}',
        "{file}: gpu[0].speed: unknown key",
    ),
    "missing key": ("gpus/a.toml", f'[[gpu]]\nname = "A"\n{GPU_LINES}', "{file}: gpu[0].compute_capability: missing"),
    "no source": (
        "gpus/a.toml",
        '[[gpu]]\nname = "A"\ncompute_capability = "8.0"\narchitecture = "X"\nmemory_bandwidth_gbs = 1\nsources = {}\n',
        "{file}: gpu[0].sources: dictionary should have at least 1 item after validation, not 0",
    ),
    "bad range": (
        "checkpoints/a.toml",
        f'[[checkpoint]]\nmodel = "MiniMax-M2"\nbytes = 0\n{CHECKPOINT_LINES}',
        "{file}: checkpoint[0].bytes: input should be greater than or equal to 1",
    ),
    "unknown model": (
        "checkpoints/a.toml",
        f'[[checkpoint]]\nmodel = "MiniMax-M9"\nbytes = 9\n{CHECKPOINT_LINES}',
        '{folder}: a/b Q: unknown model "MiniMax-M9"',
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_is_reported_by_path_and_key(tmp_path: Path, case: str) -> None:
    name, text, message = BROKEN[case]
    write(tmp_path, name, text)
    path = tmp_path / "catalogue" / name
    with pytest.raises(InputError) as caught:
        load_catalogue(tmp_path)
    assert caught.value.message.startswith(message.format(file=path, folder=path.parent))
    assert caught.value.hint


MODEL_LINES = {
    **{"name": '"M"', "family": '"m"', "layers": "2", "hidden": "8", "vocab": "9", "context": "64"},
    **{"parameters": "1000", "active_parameters": "1000", "reference_bits": "8", "commercial": "true"},
    "attention": '[{ kind = "full", layers = "0-1", heads = 2, kv_heads = 1, head_dim = 4 }]',
}
WRONG_VALUES = (
    ("layers", "true", "input should be a valid integer, not True"),
    ("layers", '"8"', 'input should be a valid integer, not "8"'),
    ("layers", "8.0", "input should be a valid integer, not 8.0"),
    ("layers", "1_000_000_000", "input should be less than or equal to 1024"),
    ("parameters", "1" + "0" * 23, f"1{'0' * 23} is not a number up to 1,000,000,000,000,000"),
    ("reference_bits", "true", "input should be a valid number, not True"),
    ("reference_bits", '"8"', 'input should be a valid number, not "8"'),
    ("reference_bits", "inf", "inf is not a number up to 1,000,000,000,000,000"),
    ("reference_bits", "nan", "nan is not a number up to 1,000,000,000,000,000"),
    ("reference_bits", "1e23", "1e+23 is not a number up to 1,000,000,000,000,000"),
    ("commercial", "1", "input should be a valid boolean, not 1"),
    ("family", "2026-01-01", 'must be a number, text, a list or a table, not "2026-01-01"'),
    ("family", '"\\u001b[2J"', '"\\x1b[2J" contains '),
    ("family", f'"{"x" * 100_000}"', "100,000 characters "),
)


@pytest.mark.parametrize(("key", "value", "problem"), WRONG_VALUES, ids=[f"{k} {v[:12]}" for k, v, _ in WRONG_VALUES])
def test_a_value_is_of_its_type_and_finite(tmp_path: Path, key: str, value: str, problem: str) -> None:
    lines = "".join(f"{name} = {text}\n" for name, text in {**MODEL_LINES, key: value}.items())
    write(tmp_path, "models/a.toml", f"[[model]]\n{lines}")
    with pytest.raises(InputError) as caught:
        load_catalogue(tmp_path)
    assert caught.value.message.startswith(f"{tmp_path}/catalogue/models/a.toml: model[0].{key}: {problem}")


@pytest.mark.parametrize("field", ["memory_bandwidth_gbs", "default_power_w", "memory_mib"])
@pytest.mark.parametrize("value", ["true", '"8"', "inf", "nan", "-1"])
def test_a_figure_of_a_gpu_is_a_positive_number(tmp_path: Path, field: str, value: str) -> None:
    figures = {"memory_bandwidth_gbs": "1", field: value}
    lines = "".join(f"{name} = {text}\n" for name, text in figures.items())
    text = f'[[gpu]]\nname = "A"\narchitecture = "X"\ncompute_capability = "8.0"\nsources = {{ x = "y" }}\n{lines}'
    write(tmp_path, "gpus/a.toml", text)
    with pytest.raises(InputError) as caught:
        load_catalogue(tmp_path)
    assert caught.value.message.startswith(f"{tmp_path}/catalogue/gpus/a.toml: gpu[0].{field}: ")


def test_an_engine_file_converts_no_value_either(tmp_path: Path) -> None:
    text = FILES[0].read_text()
    assert "\ndriver = " in text
    for value in ("true", '"570"', "nan"):
        write(tmp_path, "engines/own.toml", re.sub(r"(?m)^driver = .*$", f"driver = {value}", text, count=1))
        with pytest.raises(InputError, match=r"own\.toml: cuda\.[0-9]+\.driver: "):
            load_catalogue(tmp_path)


@pytest.mark.parametrize(("folder", "table", "kind", "key"), [
    ("models", "model", Model, "name"),
    ("checkpoints", "checkpoint", CheckpointEntry, "model"),
])  # fmt: skip
def test_a_model_is_in_the_files_that_its_name_leads_to(folder: str, table: str, kind: type, key: str) -> None:
    for path in (DATA / folder).glob("*.toml"):
        for entry in read_file(path, table, kind):
            stem = file_stem(getattr(entry, key))
            assert path.stem.startswith(stem) or stem.startswith(path.stem), f"{path.name}: {getattr(entry, key)}"


def test_only_the_models_that_are_wanted_are_read(catalogue: Catalogue) -> None:
    for name in ("MiniMax-M2.5", "minimax-m2.5", "GLM-5.2"):
        found = load_catalogue(models=[name])
        known = {model.name.lower(): model for model in found.models}
        model = catalogue.models_by_name[known[name.lower()].name]
        assert known[name.lower()] == model
        assert found.checkpoints_by_model[model.name] == catalogue.checkpoints_by_model[model.name]
        assert len(found.models) < 6
        assert (found.gpus, found.engines) == (catalogue.gpus, catalogue.engines)


def test_a_fleets_checkpoint_brings_its_model(tmp_path: Path, catalogue: Catalogue) -> None:
    (tmp_path / "catalogue/checkpoints").mkdir(parents=True)
    text = (DATA / "checkpoints/gpt_oss_20b.toml").read_text()
    (tmp_path / "catalogue/checkpoints/mine.toml").write_text(text)
    assert "gpt-oss-20b" in load_catalogue(tmp_path, models=["SmolLM2-135M-Instruct"]).models_by_name


@pytest.mark.parametrize("location", ["/models/x.gguf", "ollama:somebody/x:latest"])
def test_a_checkpoint_at_a_location_is_not_offered_beside_others(tmp_path: Path, location: str) -> None:
    entry = '[[checkpoint]]\nrepo = "local/x"\nquant = "Q8_0"\nscheme = "gguf"\nbytes = 144811584\n'
    entry += f'model = "SmolLM2-135M-Instruct"\nlocation = "{location}"\n[checkpoint.sources]\nbytes = "counted"\n'
    write(tmp_path, "checkpoints/x.toml", entry)
    found = load_catalogue(tmp_path)
    assert location in [each.location for each in found.checkpoints]
    offered = found.checkpoints_by_model["SmolLM2-135M-Instruct"]
    assert offered and not any(each.location for each in offered)


@pytest.mark.parametrize("location", ["models/x.gguf", "/models/../x.gguf", "ollama:x", "ollama:library/x:1b"])
def test_a_location_is_a_path_or_a_whole_name_in_ollamas_registry(tmp_path: Path, location: str) -> None:
    entry = '[[checkpoint]]\nrepo = "local/x"\nquant = "Q8_0"\nscheme = "gguf"\nbytes = 144811584\n'
    entry += f'model = "SmolLM2-135M-Instruct"\nlocation = "{location}"\n[checkpoint.sources]\nbytes = "counted"\n'
    write(tmp_path, "checkpoints/x.toml", entry)
    with pytest.raises(InputError, match=r"catalogue/checkpoints/x\.toml: .*location: ") as raised:
        load_catalogue(tmp_path)
    assert raised.value.hint
