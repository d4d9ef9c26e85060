"""The fleet to rehearse on, as fixtures: a test module names this module in its `pytest_plugins`."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.hub import Hub
from rigup.lab.hub_content import commit_id
from rigup.lab.lab import Lab
from tests.lab.fleet import FILE_BYTES, FILES, REPO, Fleet, content_of


@pytest.fixture(scope="session")
def site(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Hub, Path, Path]]:
    """Two booted machines, a hub with a small checkpoint, a fleet folder whose lock pins it and the engine, a cache."""
    with made_site(tmp_path_factory, f"fleet{os.getpid()}", hosts=2) as made:
        yield made


@contextmanager
def made_site(
    tmp_path_factory: pytest.TempPathFactory, name: str, **options: Any
) -> Iterator[tuple[Lab, Hub, Path, Path]]:
    """A lab of that name (`options` as `Lab.up` takes them) with everything that a fleet needs; gone after it."""
    root, cache, served = (tmp_path_factory.mktemp(name) for name in ("fleet", "cache", "served"))
    archive = _engine_archive()
    engine = hashlib.sha256(archive).hexdigest()
    sources = cache / "rigup/sources"
    sources.mkdir(parents=True)
    (sources / engine).write_bytes(archive)
    (root / "rigup.lock").write_text(_lock(engine, _checkpoint(served)))
    try:
        lab = Lab.up(name, **options)
        hub = Hub.start(served, lab=lab.record.name)
        try:
            yield lab, hub, root, cache
        finally:
            hub.stop()
    finally:
        for lab in Lab.all():  # one that did not come up whole, too
            if lab.record.name == name:
                lab.down()


@pytest.fixture
def fleet(site: tuple[Lab, Hub, Path, Path]) -> Iterator[Fleet]:
    """The fleet, described with its default service, every fault of an earlier test healed. Runs end with the test."""
    fleet = Fleet(*site)
    fleet.describe()
    fleet.hub.faults()
    yield fleet
    for run in fleet.runs:
        if run.process.poll() is None:
            run.kill()
    fleet.hub.faults()
    fleet.host.machine.heal()


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


def _engine_archive() -> bytes:
    """The source archive of the stand-in engine: the same bytes on every machine."""
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w") as tar:
        for path in sorted((Path(__file__).parent / "stand_in_engine").iterdir()):
            entry = tarfile.TarInfo(f"engine/{path.name}")
            entry.size = path.stat().st_size
            tar.addfile(entry, io.BytesIO(path.read_bytes()))
    return gzip.compress(unpacked.getvalue(), mtime=0)
