"""A fleet's engine file holds only what it adds to an engine, or changes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.engines import Engine, EngineVersion
from rigup.errors import InputError

RELEASE = f"""
name = "vllm"
[[versions]]
version = "0.34.0"
python = ">=3.11,<3.15"
torch = "2.15.0"
cuda = "13.0"
glibc = "2.28"
wheels = {{ "vllm-0.34.0-cp38-abi3-manylinux_2_28_x86_64.whl" = "{"b" * 64}" }}
"""
ARCHITECTURE = """
name = "vllm"
[[architectures]]
name = "OursForCausalLM"
since = "0.33.0"
source = "our plugin"
"""
PARSER = """
name = "sglang"
tool_parsers = [{ name = "ours", source = "our fork" }]
reasoning_parsers = [{ name = "thoughts", before = "0.5.20", source = "our fork" }]
"""


def engine(fleet: Path, name: str, **files: str) -> Engine:
    folder = fleet / "catalogue" / "engines"
    folder.mkdir(parents=True, exist_ok=True)
    for stem, text in files.items():
        (folder / f"{stem}.toml").write_text(text)
    return load_catalogue(fleet).engines_by_name[name]


def release(found: Engine, version: str | None = None) -> EngineVersion:
    known = found.version(version)
    assert known is not None
    return known


def test_one_release_more(tmp_path: Path) -> None:
    vllm = engine(tmp_path, "vllm", ours=RELEASE)
    plain = load_catalogue().engines_by_name["vllm"]
    assert [known.version for known in vllm.versions] == [*(known.version for known in plain.versions), "0.34.0"]
    assert (vllm.default_version, vllm.title) == (plain.default_version, plain.title)
    added, last = release(vllm, "0.34.0"), release(plain)
    assert (added.formats, added.kv_cache_types, added.cuda_needs) == (
        last.formats,
        last.kv_cache_types,
        last.cuda_needs,
    )
    assert not added.abilities.read and added.abilities.has("architectures", "MiniMaxM2ForCausalLM")


def test_a_release_of_the_same_version_replaces_the_toolkits(tmp_path: Path) -> None:
    vllm = engine(tmp_path, "vllm", ours=RELEASE.replace("0.34.0", "0.33.0"))
    assert (len(vllm.versions), release(vllm).torch) == (32, "2.15.0")


def test_one_architecture_more(tmp_path: Path) -> None:
    vllm = engine(tmp_path, "vllm", a=RELEASE, b=ARCHITECTURE)
    have = {known.version for known in vllm.versions if known.abilities.has("architectures", "OursForCausalLM")}
    assert have == {"0.33.0", "0.34.0"}


def test_parsers_more(tmp_path: Path) -> None:
    sglang = engine(tmp_path, "sglang", ours=PARSER)
    assert release(sglang).abilities.has("tool_parsers", "ours")
    assert release(sglang, "0.5.19").abilities.has("reasoning_parsers", "thoughts")
    assert release(sglang).abilities.lacks("reasoning_parsers", "thoughts")


def test_a_fact_of_the_fleet_counts_before_the_toolkits(tmp_path: Path) -> None:
    text = 'name = "vllm"\n[[formats]]\nformat = "bf16"\nminimum = "9.0"\nnative = "9.0"\nsource = "our policy"\n'
    support = release(engine(tmp_path, "vllm", ours=text)).support("bf16")
    assert support is not None and (support.minimum, support.source) == ("9.0", "our policy")


def test_single_values_and_tables(tmp_path: Path) -> None:
    text = 'name = "llama.cpp"\ntitle = "our llama.cpp"\n[recipes.cpu]\nflags = []\ntargets = ["x"]\npackages = []\n'
    found = release(engine(tmp_path, "llama.cpp", ours=text + 'runtime_packages = []\nsource = "ours"\n'))
    assert (found.title, found.recipes["cpu"].targets) == ("our llama.cpp", ("x",))
    assert found.recipes["cuda"].source != "ours"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "tgi"', "name: Input should be 'vllm', 'sglang' or 'llama.cpp'"),
        ('title = "vLLM"', "name: Field required"),
        ("name = 3", "name: Input should be 'vllm', 'sglang' or 'llama.cpp'"),
        ('name = "vllm"\nfamilies = { llama = "0.12.0" }', "families: Extra inputs are not permitted"),
        ('name = "vllm"\narchitectures = ["OursForCausalLM"]', "architectures.0: Input should be a valid dictionary"),
        ('name = "vllm"\n[[architectures]]\nname = "A"\nsince = "0.33"', "architectures.0.source: Field required"),
        (
            'name = "vllm"\n[[architectures]]\nname = "A"\nsince = "new"\nsource = "ours"',
            'architectures.0.since: "new" is not a version like "0.33.0" or "b11434"',
        ),
        ('name = "vllm"\ndefault_version = "0.40.0"', "default_version: 0.40.0 is not in versions"),
        ('name = "vllm"\n[[versions]]\npython = ">=3.11"', "versions.0.version: Field required"),
    ],
)
def test_a_broken_file_is_reported_by_path_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        engine(tmp_path, "vllm", ours=text)
    assert error.value.message.startswith(f"{tmp_path}/catalogue/engines/ours.toml: {message}")
