"""The packages of an engine, resolved by the real uv at an index of its own on loopback."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rigup.artifacts import LockedEnvironment
from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.engine_facts import EnvironmentRecipe
from rigup.catalogue.engines import EngineVersion
from rigup.errors import InputError, Unreachable
from rigup.sources.python_environment import Resolution, resolve_environment
from rigup.sources.wheel_tags import best_wheel, target_tags
from tests.unit.sources.local_uv import local_uv
from tests.unit.sources.stand_in_index import StandInIndex, index_of_pip, wheel

X86, ARM = "manylinux_2_28_x86_64", "manylinux_2_28_aarch64"
VLLM = f"vllm-0.33.0-cp38-abi3-{X86}.whl"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInIndex]:
    """An index with one engine and what it asks for, which pip and so uv are set up for; uv's cache is empty."""
    with index_of_pip(monkeypatch, tmp_path / "cache") as index:
        for platform in (X86, ARM):
            index.hold(
                f"vllm-0.33.0-cp38-abi3-{platform}.whl", "torch==2.14.0", "pure>=1", 'odd; sys_platform=="win32"'
            )
            index.hold(f"torch-2.14.0-cp312-cp312-{platform}.whl")
            index.hold(f"torch-2.14.0-cp311-cp311-{platform}.whl")
        index.hold("vllm-0.20.2-cp38-abi3-manylinux_2_35_x86_64.whl", "torch==2.11.0")
        index.hold("vllm-0.33.0.tar.gz")
        for version in ("1.0", "1.2", "2.0rc1"):
            index.hold(f"pure-{version}-py3-none-any.whl")
        yield index


def release(version: str = "0.33.0", wheels: dict[str, str] | None = None, **recipe: Any) -> EngineVersion:
    known = load_catalogue().engines_by_name["vllm"].version("0.33.0")
    assert known is not None
    own = EnvironmentRecipe(**{"project": "vllm", "source": "a test", **recipe})
    return known.model_copy(update={"version": version, "wheels": wheels or {}, "environments": (own,)})


def resolved(version: str = "0.33.0", architecture: Any = "x86_64", **recipe: Any) -> Resolution:
    return resolve_environment(local_uv(), release(version, **recipe), recipe.get("variant", "cuda"), architecture)


def refusal(version: str = "0.33.0", **recipe: Any) -> InputError | Unreachable:
    with pytest.raises((InputError, Unreachable)) as error:
        resolved(version, **recipe)
    assert "127.0.0.1" not in error.value.message
    return error.value


def size_of(index: StandInIndex, environment: LockedEnvironment) -> int:
    return sum(len(files[name]) for files in index.files.values() for name in environment.files if name in files)


def test_the_size_is_that_which_the_index_states(index: StandInIndex) -> None:
    index.sizes = {name: 10**9 + number for number, name in enumerate(index.files["simple"])}
    found = resolved().environment
    assert found.bytes == sum(index.sizes[name] for name in found.files) > 3 * 10**9


def test_where_the_index_states_no_sizes_the_files_tell_theirs(index: StandInIndex) -> None:
    found = resolved().environment
    assert found.bytes == size_of(index, found) > 0
    index.lengths = False
    assert resolved().environment == found.model_copy(update={"bytes": 0}), "a part would be taken for the whole"


def test_sizes_beyond_reason_are_none(index: StandInIndex) -> None:
    index.sizes = dict.fromkeys(index.files["simple"], 2**62)
    assert resolved().environment.bytes == 0


def test_no_package_is_newer_than_the_engine_where_the_recipe_says_so(index: StandInIndex) -> None:
    index.sizes = dict.fromkeys(index.files["simple"], 1)
    assert "pure-1.2-py3-none-any.whl" in resolved(as_released=["pure"]).environment.files, "nobody knows its date"
    index.dates = dict.fromkeys(index.files["simple"], "2026-11-02T10:13:18Z")
    index.dates["pure-1.0-py3-none-any.whl"] = "2026-11-01T00:00:00.000001Z"
    index.dates["pure-1.2-py3-none-any.whl"] = "2026-11-02T10:13:19Z"
    assert "pure-1.0-py3-none-any.whl" in resolved(as_released=["pure"]).environment.files
    assert "pure-1.2-py3-none-any.whl" in resolved().environment.files


def test_one_wheel_a_package_for_each_kind_of_host(index: StandInIndex) -> None:
    found = resolved()
    files = index.files["simple"]
    names = [VLLM, f"torch-2.14.0-cp312-cp312-{X86}.whl", "pure-1.2-py3-none-any.whl"]
    assert found.environment.files == {name: hashlib.sha256(files[name]).hexdigest() for name in sorted(names)}
    assert (found.environment.addresses, found.local) == ({}, ())
    assert found.environment.python.startswith("3.12.") and found.environment.python_from == "uv"
    assert found.engine.name == VLLM and found.engine.sha256 == found.environment.files[VLLM]
    on_arm = resolved(architecture="aarch64").environment
    assert list(on_arm.files) == sorted(name.replace(X86, ARM) for name in names)
    assert resolved() == found


def test_of_the_systems_python_only_the_minor_version_counts(index: StandInIndex) -> None:
    found = resolved(variant="cpu", python="3.11", python_from="os").environment
    assert (found.variant, found.python, found.python_from) == ("cpu", "3.11", "os")
    assert f"torch-2.14.0-cp311-cp311-{X86}.whl" in found.files


def test_what_is_overridden_and_what_is_left_out(index: StandInIndex) -> None:
    index.hold(f"vllm-0.33.0-cp38-abi3-{X86}.whl", "pure>=9", "torch==2.14.0")
    error = refusal()
    assert error.message.startswith("vllm 0.33.0: no compatible set of packages: Because only ")
    assert error.hint == "lift the conflicting bound with overrides in the engine's file"
    found = resolved(overrides=("pure>=1,<1.1",), excludes=("torch",)).environment
    assert list(found.files) == ["pure-1.0-py3-none-any.whl", VLLM]


def test_wheels_of_another_index_have_their_address(index: StandInIndex) -> None:
    name = f"vllm-0.33.0+cu130-cp38-abi3-{X86}.whl"
    sha256 = index.hold(name, "torch==2.14.0", index="cu130")
    index.hold("pure-9.0-py3-none-any.whl", index="cu130")
    index.unhashed.add("cu130")
    index.files["simple"] = {k: v for k, v in index.files["simple"].items() if not k.startswith("vllm")}
    found = resolved("0.33.0+cu130", indexes={"vllm": f"{index.url}/cu130"}).environment
    assert found.files[name] == sha256
    assert found.addresses == {name: f"{index.url}/cu130/files/{name}"}
    assert found.bytes == size_of(index, found)
    assert sorted(found.files) == sorted([name, f"torch-2.14.0-cp312-cp312-{X86}.whl"])


def test_a_wheel_in_a_folder_that_pip_looks_in(
    index: StandInIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"torch-2.14.0+cpu-cp312-cp312-{X86}.whl"
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / name).write_bytes(wheel(name))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    index.hold(f"vllm-0.33.0-cp38-abi3-{X86}.whl", "torch==2.14.0+cpu")
    found = resolved(indexes={"torch": f"{index.url}/nothing"})
    assert (found.local, found.environment.addresses) == ((name,), {})
    assert found.environment.files[name] == hashlib.sha256(wheel(name)).hexdigest()
    assert found.environment.bytes == size_of(index, found.environment) + len(wheel(name))


def test_an_engine_whose_wheel_is_not_the_catalogues(index: StandInIndex) -> None:
    found = hashlib.sha256(index.files["simple"][VLLM]).hexdigest()
    with pytest.raises(InputError) as error:
        resolve_environment(local_uv(), release(wheels={VLLM: "0" * 64}), "cuda", "x86_64")
    assert error.value.message == (
        f"vllm 0.33.0: {VLLM}: sha256 is {found} on the package index but {'0' * 64} in the catalogue"
    )


NO_WHEEL = "pip's package index has no wheel of"


def test_a_version_that_was_taken_back(index: StandInIndex) -> None:
    index.yanked |= {name for name in index.files["simple"] if name.startswith("vllm-0.33.0")}
    error = refusal()
    assert (error.message, error.hint) == (
        f"vllm 0.33.0: {NO_WHEEL} vllm 0.33.0",
        "choose from: 0.20.2",
    )


def test_a_version_that_does_not_exist(index: StandInIndex) -> None:
    error = refusal("0.40.0")
    assert error.message == f"vllm 0.40.0: {NO_WHEEL} vllm 0.40.0"
    assert error.hint == "choose from: 0.33.0, 0.20.2"


def test_an_engine_that_is_not_built_for_the_platform(index: StandInIndex) -> None:
    index.hold("vllm-0.34.0-cp38-abi3-manylinux_2_39_x86_64.whl")
    index.hold("vllm-0.34.0-cp313-cp313-manylinux_2_28_x86_64.whl")
    error = refusal("0.34.0")
    assert error.message == "vllm 0.34.0: no wheel is built for Python 3.12 on x86_64 with glibc 2.35"
    assert (
        error.hint
        == "choose a platform with wheels: cp313-cp313-manylinux_2_28_x86_64, cp38-abi3-manylinux_2_39_x86_64"
    )


@pytest.mark.parametrize("there", ["kernels-1.0.tar.gz", f"kernels-1.0-cp313-cp313-{X86}.whl"])
def test_a_package_that_has_no_wheel_for_the_platform_is_named(index: StandInIndex, there: str) -> None:
    index.hold(there)
    index.hold(f"vllm-0.33.0-cp38-abi3-{X86}.whl", "kernels==1.0")
    error = refusal()
    assert error.message.startswith(
        "vllm 0.33.0: kernels==1.0 is not built for Python 3.12 on x86_64 with glibc 2.35: Because kernels==1.0 has no "
    )
    assert (
        error.hint
        == "another version of the engine may have kernels as a wheel; rigup does not build packages on hosts"
    )


def test_an_index_that_does_not_answer(index: StandInIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    error = refusal("0.33.0+cu130", indexes={"vllm": "http://127.0.0.1:9/cu130"})
    assert isinstance(error, Unreachable)
    assert error.message == "vllm 0.33.0+cu130: cannot query the package index: Connection refused (os error 111)"
    monkeypatch.setenv("PIP_INDEX_URL", "http://user:secret@127.0.0.1:9/simple")
    error = refusal()
    assert isinstance(error, Unreachable)
    assert error.message.startswith("vllm 0.33.0: cannot query pip's ") and "secret" not in error.message


def test_a_variant_that_there_is_not(index: StandInIndex) -> None:
    with pytest.raises(InputError) as error:
        resolve_environment(local_uv(), release(), "cpu", "x86_64")
    assert error.value.message == "vllm 0.33.0: the catalogue has no Python environment for the CPU"
    assert error.value.hint == "choose from: cuda"


def test_the_most_special_wheel_is_taken(index: StandInIndex) -> None:
    from rigup.sources.package_index import IndexFile

    names = ["a-1-py3-none-any.whl", f"a-1-cp38-abi3-{X86}.whl", f"a-1-cp312-cp312-{X86}.whl", "odd.zip", "a-1.whl"]
    assert best_wheel([IndexFile(n, "", None) for n in names], target_tags("x86_64", "3.12")) == IndexFile(
        f"a-1-cp312-cp312-{X86}.whl", "", None
    )
    assert best_wheel([IndexFile(names[2], "", None)], target_tags("aarch64", "3.12.3")) is None


def test_ray_comes_with_it_where_it_is_wanted_and_the_catalogue_knows_which(index: StandInIndex) -> None:
    index.hold("ray-2.40.0-py3-none-any.whl")
    index.hold("ray-2.60.0-py3-none-any.whl")
    known = release(ray="ray>=2.48.0")
    found = resolve_environment(local_uv(), known, "cuda", "x86_64", ray=True).environment
    assert [name for name in found.files if name.startswith("ray-")] == ["ray-2.60.0-py3-none-any.whl"]
    assert found.has("ray") and not resolve_environment(local_uv(), known, "cuda", "x86_64").environment.has("ray")
    with pytest.raises(InputError, match=r"^vllm 0\.33\.0: the catalogue has no Ray version for it$"):
        resolve_environment(local_uv(), release(), "cuda", "x86_64", ray=True)
