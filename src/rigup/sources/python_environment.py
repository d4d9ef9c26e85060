"""All wheels of an engine release's Python environment, as uv resolves them for a kind of host."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import tomllib
import urllib.parse
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import Version

from rigup.artifacts import Architecture, LockedEnvironment, Variant
from rigup.cache import cache_folder
from rigup.catalogue.engine_facts import EnvironmentRecipe
from rigup.catalogue.engines import EngineVersion
from rigup.errors import InputError, Unreachable
from rigup.regular_files import sha256_of
from rigup.sources.downloads import download
from rigup.sources.package_index import IndexFile, file_name, find_links, project_files, together
from rigup.sources.uv import interpreter, python_release, run_uv
from rigup.sources.wheel_tags import GLIBC, best_wheel, by_release, platform_name, target_tags

UNANSWERED = re.compile(r"Failed to (fetch|download)|error sending request|operation timed out|HTTP status (server|5)")
NO_WHEEL = re.compile(r"([\w.-]+?)(==[\w.+!-]+)? has no (usable )?wheels")


@dataclass(frozen=True)
class Resolution:
    """A resolved environment. local: its files that exist only in a folder of this machine.

    engine: the wheel of the engine itself, with its URL.
    """

    environment: LockedEnvironment
    local: tuple[str, ...]
    engine: IndexFile


def resolve_environment(
    program: Path, release: EngineVersion, variant: Variant, architecture: Architecture, ray: bool = False
) -> Resolution:
    """The newest set of compatible packages, one wheel for each package.

    Those that the recipe names are taken as they were when the engine was released.
    program: the path of uv. ray: include the packages that join hosts with Ray.
    Raises InputError if the release has no such build, is not on the index, is not built for the platform, or has
    conflicting dependencies; and Unreachable.
    """
    what = f"{release.engine} {release.version}"
    recipe = release.environment(variant)
    if recipe is None:
        others = ", ".join(sorted({known.variant for known in release.environments})) or "none"
        message = f"{what}: the catalogue has no Python environment for {'GPUs' if variant == 'cuda' else 'the CPU'}"
        raise InputError(message, f"choose from: {others}")
    python = recipe.python
    if recipe.python_from == "uv":
        python, _ = python_release(program, recipe.python, architecture)
    if ray:
        recipe = _with_ray(what, recipe)
    indexes = {name: _index_of(name, address) for name, address in sorted(recipe.indexes.items())}
    released = None
    if recipe.project not in indexes:
        released = _require_release(what, recipe, release.version, architecture)
    wheels = _wheels(program, what, recipe, release.version, python, architecture, indexes, released)
    elsewhere = {canonicalize_name(project) for project in indexes}
    local = tuple(wheel.name for wheel in wheels.values() if wheel.url.startswith("file:"))
    environment = LockedEnvironment(
        engine=release.engine,
        version=release.version,
        variant=variant,
        architecture=architecture,
        python=python,
        python_from=recipe.python_from,
        files=_hashes(wheels),
        addresses={wheel.name: wheel.url for n, wheel in wheels.items() if n in elsewhere and wheel.name not in local},
        bytes=together(wheels.values()),
    )
    engine = wheels[canonicalize_name(recipe.project)]
    _require_catalogued(what, release, engine)
    return Resolution(environment, local, engine)


def resolve_project(
    program: Path, what: str, recipe: EnvironmentRecipe, version: str, architecture: Architecture
) -> dict[str, str]:
    """The wheels of a project and its dependencies from pip's index alone: file name to sha256.

    what: starts the messages. recipe: its project may name extras. Raises as `resolve_environment` does.
    """
    return _hashes(_wheels(program, what, recipe, version, recipe.python, architecture, {}))


def _hashes(wheels: dict[str, IndexFile]) -> dict[str, str]:
    return dict(sorted((wheel.name, str(wheel.sha256)) for wheel in wheels.values()))


def _with_ray(what: str, recipe: EnvironmentRecipe) -> EnvironmentRecipe:
    """The recipe with Ray added to its requirements."""
    if recipe.ray is None:
        raise InputError(
            f"{what}: the catalogue has no Ray version for it",
            "set ray in its environments, or choose another version",
        )
    return recipe.model_copy(update={"requirements": (*recipe.requirements, recipe.ray)})


def _require_catalogued(what: str, release: EngineVersion, wheel: IndexFile) -> None:
    """Raises InputError if a wheel on the index does not have the sha256 in the catalogue."""
    known = release.wheels.get(wheel.name, wheel.sha256)
    if known != wheel.sha256:
        raise InputError(
            f"{what}: {wheel.name}: sha256 is {wheel.sha256} on the package index but {known} in the catalogue",
            "find out why before you use this index: released files must never change",
        )


def _index_of(project: str, address: str) -> str:
    """The index of a package: a local find-links folder that has the package, otherwise the recipe's address."""
    for folder in find_links():
        if any(canonicalize_name(file.name.partition("-")[0]) == project for file in folder.glob("*.whl")):
            return str(folder)
    return address


def _require_release(what: str, recipe: EnvironmentRecipe, version: str, architecture: Architecture) -> datetime | None:
    """When its newest wheel was uploaded, if the index tells.

    Raises InputError if the index lacks this version of the engine, or lacks it for the platform.
    """
    by_version = by_release(project_files(recipe.project, what))
    wheels = by_version.get(Version(version), [])
    if not wheels:
        there = ", ".join(str(known) for known in sorted(by_version, reverse=True)[:8]) or "none"
        raise InputError(
            f"{what}: pip's package index has no wheel of {recipe.project} {version}", f"choose from: {there}"
        )
    if best_wheel(wheels, target_tags(architecture, recipe.python)) is None:
        built = ", ".join(sorted(file.name.split("-", 2)[2].removesuffix(".whl") for file in wheels))
        raise InputError(
            f"{what}: no wheel is built for {_platform(architecture, recipe.python)}",
            f"choose a platform with wheels: {built}",
        )
    return max((wheel.uploaded for wheel in wheels if wheel.uploaded), default=None)


def _wheels(
    program: Path,
    what: str,
    recipe: EnvironmentRecipe,
    version: str,
    python: str,
    architecture: Architecture,
    indexes: dict[str, str],
    released: datetime | None = None,
) -> dict[str, IndexFile]:
    """The best wheel of each package that uv chooses, with its sha256, by normalised name.

    released: when the project was.
    """
    with tempfile.TemporaryDirectory(prefix="rigup-lock-") as folder:
        asked, given = Path(folder), Path(folder) / "pylock.toml"
        (asked / "pyproject.toml").write_text(_question(recipe, version, indexes))
        (asked / "overrides.txt").write_text("".join(f"{line}\n" for line in recipe.overrides))
        (asked / "excludes.txt").write_text("".join(f"{line}\n" for line in recipe.excludes))
        words = ["pip", "compile", str(asked / "pyproject.toml"), "--output-file", str(given), "--format=pylock.toml"]
        words += ["--quiet", "--only-binary=:all:", f"--python-version={python}", *interpreter()]
        words += [f"--python-platform={platform_name(architecture)}", f"--overrides={asked / 'overrides.txt'}"]
        if released:
            words += [f"--exclude-newer-package={name}={released.isoformat()}" for name in recipe.as_released]
        try:
            done = run_uv(program, [*words, f"--excludes={asked / 'excludes.txt'}"])
        except subprocess.TimeoutExpired:
            raise Unreachable(f"{what}: the package index responds too slowly", "run the same command again") from None
        if done.returncode or not given.exists():
            raise _refusal(what, done.stderr, _platform(architecture, recipe.python))
        answer = tomllib.loads(given.read_text())
    tags = target_tags(architecture, recipe.python)
    found: dict[str, IndexFile] = {}
    for entry in answer["packages"]:
        name = str(entry["name"])
        wheel = best_wheel([_file(each) for each in entry.get("wheels", [])], tags)
        if wheel is None:
            raise InputError(f"{what}: {name} is not built for {_platform(architecture, recipe.python)}", _where(name))
        found[canonicalize_name(name)] = wheel if wheel.sha256 else _hashed(wheel)
    return found


def _question(recipe: EnvironmentRecipe, version: str, indexes: dict[str, str]) -> str:
    """A pyproject.toml for uv: only this form can restrict single packages to one index and use pip's for the rest."""
    wanted = [
        f"{recipe.project}=={version}",
        *(name for name in indexes if name != recipe.project),
        *recipe.requirements,
    ]
    lines = ["[project]", 'name = "rigup-environment"', 'version = "0"', f'requires-python = ">={recipe.python}"']
    lines += [f"dependencies = {json.dumps(wanted)}"]
    for number, (project, place) in enumerate(indexes.items()):
        lines += [f"[tool.uv.sources.{json.dumps(project)}]", f'index = "other-{number}"']
        lines += ["[[tool.uv.index]]", f'name = "other-{number}"', f"url = {json.dumps(place)}", "explicit = true"]
        lines += ['format = "flat"'] if place.startswith("/") else []
    return "\n".join(lines) + "\n"


def _file(wheel: dict[str, Any]) -> IndexFile:
    url = str(wheel["url"]) if "url" in wheel else Path(str(wheel["path"])).as_uri()
    path = _local_path(url)
    size = path.stat().st_size if path else int(wheel.get("size", 0))
    return IndexFile(str(wheel.get("name") or file_name(url)), url, wheel.get("hashes", {}).get("sha256"), size)


def _local_path(url: str) -> Path | None:
    """The path of a wheel that lies in a folder of this machine."""
    address = urllib.parse.urlsplit(url)
    return Path(urllib.parse.unquote(address.path)) if address.scheme == "file" else None


def _hashed(wheel: IndexFile) -> IndexFile:
    """A wheel whose index states no sha256, with that of its content and its size; downloads it for that."""
    if local := _local_path(wheel.url):
        return replace(wheel, sha256=sha256_of(local))
    folder = cache_folder() / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix="hashing-") as part:
        path = Path(part) / "wheel"
        download(wheel.url, wheel.name, path)
        found = replace(wheel, sha256=sha256_of(path), bytes=path.stat().st_size)
        path.replace(folder / str(found.sha256))
    return found


def _refusal(what: str, output: str, platform: str) -> InputError | Unreachable:
    """uv's error output as one message without URLs."""
    lines = [re.sub(r"https?://\S+", "the index", line.strip()) for line in output.splitlines() if line.strip()]
    lines = [line.removeprefix("error: ").removeprefix("cause: ") for line in lines if not line.startswith("warning:")]
    if UNANSWERED.search(output):
        hint = "check that this machine is online and which index pip uses: pip config get global.index-url"
        return Unreachable(f"{what}: cannot query the package index: {lines[-1] if lines else 'no answer'}", hint)
    because = next((line for line in lines if line.startswith("Because")), lines[0] if lines else "uv failed")
    if lacking := NO_WHEEL.search(because):
        name = lacking[1] + (lacking[2] or "")
        return InputError(f"{what}: {name} is not built for {platform}: {because}", _where(name))
    return InputError(
        f"{what}: no compatible set of packages: {because}",
        "lift the conflicting bound with overrides in the engine's file",
    )


def _platform(architecture: Architecture, python: str) -> str:
    return f"Python {python} on {architecture} with glibc {GLIBC[0]}.{GLIBC[1]}"


def _where(name: str) -> str:
    return (
        f"another version of the engine may have {name.partition('=')[0]} as a wheel; rigup does not build packages "
        "on hosts"
    )
