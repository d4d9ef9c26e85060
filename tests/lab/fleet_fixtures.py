"""Labs and fleets for fixtures to hand out: made with all that they need, and taken away again, come what may."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from rigup.cache import cache_folder
from rigup.lab.hub.content import commit_id
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.lab import Lab
from rigup.settings import CONTROLLER
from tests.lab.fleet import FILE_BYTES, FILES, REPO, Fleet, content_of

SomeFleet = TypeVar("SomeFleet", bound=Fleet)
USED = ("cmake", "g++", "libgomp1", "libnuma1", "ninja-build")
"""What a machine gets of Debian to compile llama.cpp or run vLLM. Most tests are about what comes after that."""


@contextmanager
def made_lab(name: str, **options: Any) -> Iterator[Lab]:
    """A lab of that name (`options` as `Lab.up` takes them); gone after it, also one that did not come up whole."""
    try:
        yield Lab.up(name, **options)
    finally:
        for lab in Lab.all():
            if lab.record.name == name:
                lab.down()


@contextmanager
def made_site(
    folder: Path, name: str, packages: Collection[str] = USED, **options: Any
) -> Iterator[tuple[Lab, StandInHub, Path, Path]]:
    """A lab of that name (`options` as `Lab.up` takes them) with everything that a fleet needs; gone after it.

    The engine is a stand-in, the checkpoint small. The folder gets the fleet's own, its cache, and what its hub serves.
    packages: those that the machines have from the start; none for a bare one.
    """
    root, cache, served = (folder / name for name in ("fleet", "cache", "served"))
    root.mkdir()
    archive = engine_archive()
    engine = hashlib.sha256(archive).hexdigest()
    sources = cache / "rigup/sources"
    sources.mkdir(parents=True)
    (sources / engine).write_bytes(archive)
    (root / "rigup.lock").write_text(_lock(engine, _checkpoint(served)))
    with made_lab(name, packages=packages, **options) as lab:
        yield lab, StandInHub.start(served, lab=name), root, cache


@contextmanager
def made_fleet(kind: type[SomeFleet], name: str, root: Path, served: Path, **options: Any) -> Iterator[SomeFleet]:
    """A fleet that runs real engines, compiled here and kept in this user's own cache. Gone after it.

    name: of the lab, made one of this process's own. root: the fleet's folder; without a lock of its own the toolkit's
    counts. served: what its hub serves. options: as `Lab.up` takes them.
    """
    with made_lab(f"{name}{os.getpid()}", packages=USED, **options) as lab:
        fleet = kind(lab, StandInHub.start(served, lab=lab.record.name), root, cache_folder().parent)
        fleet.builder = CONTROLLER
        try:
            yield fleet
        finally:
            fleet.end_runs()


def _checkpoint(served: Path) -> dict[str, str]:
    """Makes the checkpoint's files for the hub; returns their sha256 by name."""
    folder = served / REPO
    folder.mkdir(parents=True)
    sha256 = {}
    for name in FILES:
        content = content_of(name)
        (folder / name).write_bytes(content)
        sha256[name] = hashlib.sha256(content).hexdigest()
    return sha256


def _lock(engine: str, files: dict[str, str]) -> str:
    listed = "".join(
        f'[[checkpoints.files]]\npath = "{name}"\nsize = {FILE_BYTES}\nsha256 = "{sha256}"\n'
        for name, sha256 in files.items()
    )
    return (
        f'schema = 1\n[[checkpoints]]\nrepo = "{REPO}"\nquant = "Q4_1"\nrevision = "{commit_id(files)}"\n{listed}'
        '[[sources]]\nengine = "llama.cpp"\nversion = "b11434"\naddress = "https://example.org/engine.tar.gz"\n'
        f'sha256 = "{engine}"\nroot = "engine"\n'
    )


def engine_archive() -> bytes:
    """The source archive of the stand-in engine: the same bytes on every machine."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w") as tar:
        for path in sorted((Path(__file__).parent / "stand_in_engine").iterdir()):
            entry = tarfile.TarInfo(f"engine/{path.name}")
            entry.size = path.stat().st_size
            tar.addfile(entry, io.BytesIO(path.read_bytes()))
    return gzip.compress(unpacked.getvalue(), mtime=0)
