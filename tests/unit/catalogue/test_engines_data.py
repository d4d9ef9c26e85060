"""The engines' data files: complete, sourced, and reported by path when broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.catalogue.engine_files import FILES, load_engines
from rigup.catalogue.option_names import known_options, last_version_with, nearest
from rigup.catalogue.versions import version_key
from rigup.errors import InputError
from tests.unit.planner.rules.builder import CATALOGUE, engine

LLAMA_CPP = next(path for path in FILES if path.stem == "llama_cpp")


def test_supported_versions() -> None:
    for name, first, last in (
        ("vllm", "0.12.0", "0.33.0"),
        ("sglang", "0.5.9", "0.5.23"),
        ("llama.cpp", *["b11434"] * 2),
    ):
        versions = [release.version for release in engine(name).versions]
        assert (versions[0], versions[-1]) == (first, last)
        assert versions == sorted(versions, key=version_key)
        assert engine(name).version() is not None


def test_every_wheel_has_what_planning_needs() -> None:
    for found in CATALOGUE.engines:
        for release in found.versions:
            assert release.method == "source" or release.wheels, release.version
            assert release.method == "source" or (release.python and release.torch), release.version
            assert release.cuda_needs is not None, release.version
            assert release.formats and release.kv_cache_types, release.version
            assert all(fact.source for fact in (*release.formats, *release.known_bad))


@pytest.mark.parametrize(
    ("version", "python", "torch", "cuda", "glibc"),
    [
        ("0.12.0", ">=3.10,<3.14", "2.9.0", "12.9", "2.31"),
        ("0.19.1", ">=3.10,<3.14", "2.10.0", "12.9", "2.31"),
        ("0.20.2", ">=3.10,<3.15", "2.11.0", "13.0", "2.35"),
        ("0.33.0", ">=3.11,<3.15", "2.14.0", "13.0", "2.28"),
    ],
)
def test_vllm_releases(version: str, python: str, torch: str, cuda: str, glibc: str) -> None:
    release = engine("vllm").version(version)
    assert release is not None
    assert (release.python, release.torch, release.cuda, release.glibc) == (python, torch, cuda, glibc)


def test_a_build_for_gpus_names_exactly_their_architectures() -> None:
    release = engine("llama.cpp").version()
    assert release is not None
    for_cpu, for_gpus = release.recipe(()), release.recipe(("8.6", "12.0"))
    assert for_cpu is not None and for_gpus is not None
    assert "-DGGML_CUDA=ON" not in for_cpu.flags
    assert for_gpus.flags[-1] == "-DCMAKE_CUDA_ARCHITECTURES=86;120"
    assert "-DGGML_CUDA=ON" in for_gpus.flags


def broken(tmp_path: Path, old: str, new: str) -> InputError:
    text = LLAMA_CPP.read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        load_engines((path,))
    assert caught.value.message.startswith(f"{path}: ")
    return caught.value


def test_broken_files_are_reported_by_path_and_key(tmp_path: Path) -> None:
    assert "default_version: b1 " in broken(tmp_path, '"b11434"', '"b1"').message
    assert "formats.0.minimum: " in broken(tmp_path, 'minimum = "0.0"', 'minimum = "low"').message
    assert "formats.0.source: missing" in broken(tmp_path, 'source = "llama.cpp b11434: GGUF', 'note = "').message
    assert "surprise: unknown key" in broken(tmp_path, 'name = "llama.cpp"', 'surprise = 1\nname = "llama.cpp"').message
    found = broken(tmp_path, '\nversion = "b11434"', '\nversion = "latest"').message
    assert ': versions.0.version: "latest" ' in found
    assert "line" in broken(tmp_path, "[[versions]]", "[[versions").message


def test_a_missing_file_is_reported_by_path(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml"):
        load_engines((tmp_path / "none.toml",))


def test_a_fleets_engine_file_replaces_the_toolkits(tmp_path: Path) -> None:
    path = tmp_path / "llama_cpp.toml"
    path.write_text(LLAMA_CPP.read_text().replace('title = "llama.cpp"', 'title = "my llama.cpp"'))
    titles = {found.name: found.title for found in load_engines((*FILES, path))}
    assert titles == {"llama.cpp": "my llama.cpp", "sglang": "SGLang", "vllm": "vLLM"}


@pytest.mark.parametrize(
    ("engine_name", "option", "first", "gone"),
    [
        ("vllm", "--moe-backend", "0.17.0", None),
        ("vllm", "--swap-space", "0.12.0", "0.18.0"),
        ("sglang", "--nsa-prefill-backend", "0.5.9", "0.5.20"),
    ],
)
def test_options_come_and_go(engine_name: str, option: str, first: str, gone: str | None) -> None:
    assert option in known_options(engine_name, first)
    if gone is not None:
        assert option not in known_options(engine_name, gone)
        assert last_version_with(engine_name, "options", option) is not None


def test_nearest_names() -> None:
    assert nearest("--max-model-length", known_options("vllm", "0.33.0")) == "--max-model-len"
    assert nearest("--qqqqqqqq", known_options("vllm", "0.33.0")) is None


# What vLLM and SGLang register for weights of a format.
METHODS = {
    "fp8": {"fp8"},
    "nvfp4": {"modelopt_fp4", "compressed-tensors"},
    "mxfp8": {"modelopt_mxfp8", "mxfp8"},
    "mxfp4": {"mxfp4"},
    "int4": {"awq", "gptq", "compressed-tensors"},
}


def test_formats_are_those_of_the_packages() -> None:
    """The rule weight-format refuses by `formats`; each release reads what its own package lists, and nothing else."""
    for each in (engine("vllm"), engine("sglang")):
        for release in each.versions:
            listed = release.abilities.names("quantizations")
            said = {support.format for support in release.formats} - {"bf16"}
            assert said <= METHODS.keys() | {"gguf"}, release.version
            for name in said & METHODS.keys():
                assert METHODS[name] & listed, (each.name, release.version, name)
            assert "gguf" not in said or "gguf" in listed


def test_a_build_is_compiled_with_the_locked_toolkit() -> None:
    release = engine("llama.cpp").version(None)
    assert release is not None
    usual, newer = (release.recipe(("8.6",), toolkit=toolkit) for toolkit in (None, "13.3.1"))
    assert usual is not None and newer is not None
    assert "-DCMAKE_CUDA_COMPILER=/usr/local/cuda-13.0/bin/nvcc" in usual.flags
    assert "-DCMAKE_CUDA_COMPILER=/usr/local/cuda-13.3/bin/nvcc" in newer.flags
    assert "cuda-toolkit-13-3" in newer.packages
    assert {"cuda-cudart-13-3", "libcublas-13-3"} < set(newer.runtime_packages)
    assert not any("{" in word for word in (*newer.flags, *newer.packages, *newer.runtime_packages))
