"""The lists of what engines can serve, against the packages that they were read from. Needs the package index."""

from __future__ import annotations

import pytest

from rigup.catalogue.abilities import KINDS, package
from rigup.catalogue.catalogue import load_catalogue
from rigup.service import EngineName
from tests.golden.engine_lists import abilities_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rests_on(
        "llama.cpp's package", "vLLM's package", "SGLang's package", "src/rigup/catalogue/engine_packages"
    ),
]


@pytest.mark.parametrize(
    ("engine", "version"),
    [
        *(("vllm", version) for version in ("0.12.0", "0.13.0", "0.24.0", "0.33.0")),
        *(("sglang", version) for version in ("0.5.9", "0.5.14", "0.5.23")),
        ("llama.cpp", "b11434"),
    ],
)
def test_the_lists_say_what_the_package_says(engine: EngineName, version: str) -> None:
    release = load_catalogue().engines_by_name[engine].version(version)
    assert release is not None
    found = abilities_of(release)
    assert package(engine, version) == {"file": found.file, "sha256": found.sha256}
    for kind in KINDS:
        assert found.names(kind) == release.abilities.names(kind), kind
