"""Writes the lists of what engines can serve and of their options, for releases in the engines' files that lack them.

    python -m tests.golden.engine_lists

Reads each release's own package: a wheel by ranges, a source archive whole. Nothing in it is run. What is listed
already stays; the differences are for reading before they are committed. Fixed values of options are kept by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rigup.cache import cache_folder
from rigup.catalogue.abilities import FOLDER as ABILITIES
from rigup.catalogue.abilities import KINDS, AbilityList
from rigup.catalogue.engine_files import load_engines
from rigup.catalogue.engine_packages.reading import archive_abilities, archive_names, read_names, wheel_abilities
from rigup.catalogue.engines import EngineVersion
from rigup.catalogue.option_names import FOLDER as OPTIONS
from rigup.catalogue.versions import in_ranges, version_key
from rigup.sources.archives import pin_source
from rigup.sources.package_index import project_files
from rigup.sources.remote_wheel import Wheel, open_wheel

SOURCES = {
    "vllm": "read from the wheels' Python sources: vllm/model_executor/models/registry.py, vllm/model_executor/layers/"
    "quantization/__init__.py, vllm/tool_parsers/__init__.py (earlier entrypoints/openai/), vllm/reasoning/__init__.py",
    "sglang": "read from the wheels' Python sources: sglang/srt/models/, sglang/srt/layers/quantization/__init__.py, "
    "sglang/srt/function_call/function_call_parser.py, sglang/srt/parser/reasoning_parser.py",
    "llama.cpp": "read from the source archives: src/llama-arch.cpp, conversion/, gguf-py/gguf/constants.py, "
    "ggml/src/ggml.c",
}


def file_of(folder: Path, engine: str) -> Path:
    """The file of an engine's list."""
    return folder / f"{engine.replace('.', '_')}.json"


def wheel_of(release: EngineVersion) -> tuple[str, str]:
    """The wheel of a release that is read: name and sha256. Of several, one for x86-64 and Python 3.12, the first."""
    names = sorted(release.wheels, key=lambda name: ("aarch64" in name, "cp312" not in name, name))
    return names[0], release.wheels[names[0]]


def opened(project: str, name: str) -> Wheel:
    """A wheel on the package index."""
    return open_wheel(next(file for file in project_files(project, yanked=True) if file.name == name))


def archive_of(release: EngineVersion) -> tuple[Path, str, str]:
    """The source archive of a release, downloaded: its path, its name and its sha256."""
    assert release.archive is not None
    cache = cache_folder() / "sources"
    source = pin_source(release.engine, release.version, release.archive, release.archive_root, cache)
    return cache / source.sha256, release.archive_root.partition("/")[0] + ".tar.gz", source.sha256


def abilities_of(release: EngineVersion) -> AbilityList:
    """What a release's package says that it can serve."""
    if release.engine == "llama.cpp":
        path, file, sha256 = archive_of(release)
        return archive_abilities(release.version, path, release.archive_root, file, sha256)
    name, sha256 = wheel_of(release)
    with opened(release.engine, name) as wheel:
        return wheel_abilities(release.engine, release.version, wheel, name, sha256)


def names_of(release: EngineVersion) -> tuple[str, str, tuple[set[str], set[str]]]:
    """A release's package, by name and sha256, and the options and variables in it."""
    if release.engine == "llama.cpp":
        path, file, sha256 = archive_of(release)
        return file, sha256, archive_names(path, release.archive_root)
    name, sha256 = wheel_of(release)
    with opened(release.engine, name) as wheel:
        return name, sha256, read_names(release.engine, wheel)


def ranges_of(known_in: set[str], versions: tuple[str, ...]) -> str:
    """The ranges of `versions`, in ascending order, that have something: what `in_ranges` reads."""
    spans: list[list[str]] = []
    open_span = False
    for version in versions:
        if version in known_in:
            if not open_span:
                spans.append([version])
            spans[-1] = [spans[-1][0], version]
        open_span = version in known_in
    return " ".join(first if first == last else f"{first}..{last}" for first, last in spans)


def extended(data: dict[str, Any], version: str, package: dict[str, str], names: Mapping[str, Any]) -> dict[str, Any]:
    """A list with one more release: its package, and the names of each kind that it has."""
    before = data["versions"]
    versions = tuple(sorted({*before, version}, key=version_key))
    grown = {**data, "versions": list(versions), "packages": {**data["packages"], version: package}}
    grown["packages"] = {known: grown["packages"][known] for known in versions}
    for kind, found in names.items():
        table = data.get(kind, {})
        known_in = {name: {known for known in before if in_ranges(known, spans)} for name, spans in table.items()}
        for name in found:
            known_in.setdefault(name, set()).add(version)
        grown[kind] = {name: ranges_of(known_in[name], versions) for name in sorted(known_in)}
    return grown


def main() -> None:
    """Reads what is missing."""
    for engine in load_engines():
        lists = file_of(ABILITIES, engine.name)
        empty: dict[str, Any] = {"source": SOURCES[engine.name], "versions": [], "packages": {}}
        abilities = json.loads(lists.read_text()) if lists.exists() else empty
        options = json.loads(file_of(OPTIONS, engine.name).read_text())
        for release in engine.versions:
            if release.version not in abilities["versions"]:
                print(f"{engine.name} {release.version}: its abilities", flush=True)
                found = abilities_of(release)
                package = {"file": found.file, "sha256": found.sha256}
                kinds: dict[str, Any] = {kind: found.names(kind) for kind in KINDS if found.names(kind)}
                abilities = extended(abilities, release.version, package, kinds)
            if release.version not in options["versions"]:
                print(f"{engine.name} {release.version}: options", flush=True)
                name, sha256, (known, variables) = names_of(release)
                names: dict[str, Any] = {"options": known, "variables": variables}
                options = extended(options, release.version, {"file": name, "sha256": sha256}, names)
        lists.parent.mkdir(exist_ok=True)
        lists.write_text(json.dumps(abilities, indent=0) + "\n")
        file_of(OPTIONS, engine.name).write_text(json.dumps(options, indent=0) + "\n")


if __name__ == "__main__":
    main()
