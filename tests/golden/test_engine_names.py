"""The lists of option and variable names, against the packages that they were read from. Needs the package index."""

from __future__ import annotations

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.engine_packages import sglang, vllm
from rigup.catalogue.option_names import known_options, known_variables, package
from tests.golden.engine_lists import names_of
from tests.golden.remote_wheel import open_wheel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rests_on(
        "llama.cpp's package", "vLLM's package", "SGLang's package", "src/rigup/catalogue/engine_packages"
    ),
]


@pytest.mark.parametrize("version", ["0.12.0", "0.16.0", "0.24.0", "0.33.0"])
def test_vllm(version: str) -> None:
    found = package("vllm", version)
    wheel, sha256 = open_wheel("vllm", found["file"])
    assert sha256 in ("", found["sha256"])
    assert vllm.options(wheel) == known_options("vllm", version)
    assert vllm.variables(wheel) == known_variables("vllm", version)


@pytest.mark.parametrize("version", ["0.5.9", "0.5.14", "0.5.23"])
def test_sglang(version: str) -> None:
    found = package("sglang", version)
    wheel, sha256 = open_wheel("sglang", found["file"])
    assert sha256 in ("", found["sha256"])
    assert sglang.options(wheel) == known_options("sglang", version)
    assert sglang.variables(wheel) == known_variables("sglang", version)


def test_llama_cpp() -> None:
    for release in load_catalogue().engines_by_name["llama.cpp"].versions:
        file, sha256, (options, variables) = names_of(release)
        assert package("llama.cpp", release.version) == {"file": file, "sha256": sha256}
        assert options == known_options("llama.cpp", release.version)
        assert variables == known_variables("llama.cpp", release.version)
