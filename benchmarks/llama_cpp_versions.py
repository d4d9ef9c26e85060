"""Two versions of llama.cpp for benchmarks: the catalogue's, and one before it that the package index has, too.

rigup compiles each for this machine's processor as it does for hosts whose `builder` is "controller", and keeps it in
the user's cache. The archives that benchmarks give to their machines hold the compiled server: machines with simulated
GPUs could not compile for them. As a module:

    python -m benchmarks.llama_cpp_versions b11434
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import platform
import tarfile
import tempfile
from functools import cache, partial
from pathlib import Path

from benchmarks import smallest
from rigup import catalogue
from rigup.cache import cache_folder
from rigup.catalogue.catalogue import FOLDER, load_catalogue
from rigup.lock import LockedSource
from rigup.lockfile.package_lists import abilities_with_archive, names_with_archive, write_abilities, write_names
from rigup.operations.builds.controller import compiled, own_os
from rigup.operations.builds.source import compile_job, name_of
from rigup.plan import Build
from rigup.project.inventory import load_project, toolkit_root
from rigup.project.planning import plan_project
from rigup.settings import CONTROLLER, Builder
from rigup.sources.archives import fetch_source, pin_source
from rigup.sources.downloads import silent
from tests.lab.fleet_fixtures import engine_archive

EARLIER, LATER = "b11401", "b11434"
# Puts a compiled server where llama.cpp's own build would.
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(engine NONE)
set(bin ${CMAKE_BINARY_DIR}/bin)
foreach(name llama-server ggml-rpc-server)
  add_custom_target(${name} ALL COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/engine ${bin}/${name})
endforeach()
"""


def describe_earlier(root: Path) -> LockedSource:
    """Adds the earlier version to a fleet's catalogue: what its own archive says of it, and that it loads the model."""
    known = load_catalogue().engines_by_name["llama.cpp"].version(LATER)
    assert known is not None
    address, folder = ((text or "").replace(LATER[1:], EARLIER[1:]) for text in (known.archive, known.archive_root))
    source = _pinned(address, folder)
    engines = root / FOLDER / "engines"
    engines.mkdir(parents=True, exist_ok=True)
    (engines / "earlier.toml").write_text(
        f'name = "llama.cpp"\n[[versions]]\nversion = "{EARLIER}"\ncuda = "{known.cuda}"\narchive = "{address}"\n'
        f"archive_root = \"{folder}\"\ncmake = '''\n{known.cmake}'''\nquick_cmake = '''\n{known.quick_cmake}'''\n"
    )
    model = (Path(catalogue.__file__).parent / "data/checkpoints/smollm2.toml").read_text()
    (root / FOLDER / "checkpoints").mkdir(exist_ok=True)
    (root / FOLDER / "checkpoints/smollm2.toml").write_text(model.replace(LATER, EARLIER))
    write_names(engines / "flags", names_with_archive((), source, lambda text: None))
    write_abilities(engines / "abilities", abilities_with_archive((), source, lambda text: None))
    return source


@cache
def _pinned(address: str, folder: str) -> LockedSource:
    return pin_source("llama.cpp", EARLIER, address, folder, cache_folder() / "sources")


def locked(source: LockedSource) -> str:
    """An entry of a lock."""
    return "\n[[sources]]\n" + "".join(f'{key} = "{value}"\n' for key, value in source.model_dump().items())


def server(version: str, stand_in: bytes | None = None) -> bytes:
    """A version's llama-server for this machine's processor; compiles it unless the cache has it.

    stand_in: an archive with a folder "engine", to be compiled instead of the version's own source, and not kept.
    """
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        source = describe_earlier(root)
        service = {
            "model": "SmolLM2-135M-Instruct",
            "context": 1024,
            "version": version,
            "quick_build": version == EARLIER,
        }
        for name, text in {
            "inventories/one.py": 'boxes = ["box"]\n',
            "group_data/boxes.py": f'rig = {{"gpus": []}}\nservices = {{"chat": {service!r}}}\n',
            "rigup.lock": (toolkit_root() / "rigup.lock").read_text() + locked(source),
        }.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
        (plan,) = plan_project(load_project(str(root / "inventories/one.py")))
        assert plan.build is not None, plan.refusals
        if stand_in is None:
            return _server_of(plan.build, Builder(CONTROLLER, cache_folder() / "builds" / CONTROLLER))
        archive = root / "engine.tar.gz"
        archive.write_bytes(stand_in)
        build = plan.build.model_copy(update={"root": "engine", "sha256": hashlib.sha256(stand_in).hexdigest()})
        return _server_of(build, Builder(CONTROLLER, root / "builds"), archive)


def _server_of(build: Build, builder: Builder, archive: Path | None = None) -> bytes:
    """The llama-server of a build, which is compiled unless the builder has it. archive: the source, or fetched."""
    name, version = name_of(build, platform.machine(), own_os()), build.version
    if not builder.archive(name).exists():
        pinned = LockedSource(**{key: getattr(build, key) for key in LockedSource.model_fields})
        archive = archive or fetch_source(pinned, cache_folder() / "sources", silent)
        check = (("bin/llama-server", "--version"), version.removeprefix("b"))
        job = partial(compile_job, build, name, str(archive), "", check, CONTROLLER)
        compiled(builder, name, job, lambda done, of: print(f"{version}: {done} of {of}", end="\r"))
    with tarfile.open(builder.archive(name)) as tar:
        file = tar.extractfile(f"{name}/bin/llama-server")
        assert file is not None
        return file.read()


def source_archive(version: str, stand_in: bytes | None = None) -> bytes:
    """An archive with a folder "engine", whose compilation yields the version's server. stand_in: as for `server`."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w") as tar:
        for name, content, mode in (
            ("CMakeLists.txt", CMAKE.encode(), 0o644),
            ("engine", server(version, stand_in), 0o755),
        ):
            entry = tarfile.TarInfo(f"engine/{name}")
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return gzip.compress(unpacked.getvalue(), mtime=0)


def main() -> None:
    """Compiles a version, unless the cache has it, and says how large its server is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("version", choices=(EARLIER, LATER))
    args = smallest.arguments(parser)
    size = len(server(args.version, engine_archive() if args.smallest else None))
    print(f"llama.cpp {args.version}: llama-server of {size} bytes")


if __name__ == "__main__":
    main()
