"""A hub stand-in on loopback, and one repository with one job for each test."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rigup.lab.hub.content import commit_id
from rigup.lab.hub.server_process import StandInHub
from rigup.programs import program_file

DEADLINE_S = 120


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Waits for a condition, with a deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


@pytest.fixture(scope="session")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    folder = tmp_path_factory.mktemp("hub")
    (folder / "root").mkdir()
    hub = StandInHub.start(folder / "root", folder / "state", lfs_minimum=1000)
    yield hub
    hub.stop()


@dataclass
class Weights:
    """One repository at the hub and the job that fetches it, with the programs as they lie on a host: side by side."""

    hub: StandInHub
    root: Path
    home: Path
    repo: str
    contents: dict[str, bytes]
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for path, content in self.contents.items():
            target = self.root / self.repo / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        self.hub.faults()
        self.home.mkdir(exist_ok=True)
        for name in ("fetch_weights.py", "weights_folder.py", "curl_transfers.py", "hub_access.py", "unit_status.py"):
            shutil.copy(program_file(name), self.home / name)

    @property
    def revision(self) -> str:
        return commit_id({path: hashlib.sha256(content).hexdigest() for path, content in self.contents.items()})

    @property
    def folder(self) -> Path:
        return self.home / "weights" / self.repo / self.revision

    def part(self, path: str) -> Path:
        return Path(f"{self.folder}.incoming") / "parts" / f"{path}.part"

    def job(self, *paths: str, **changes: Any) -> Path:
        """Writes a job file for some of the files, or all, and returns its path."""
        wanted = {path: self.contents[path] for path in paths or self.contents}
        files = [
            {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for path, content in wanted.items()
        ]
        place = {"hub": self.hub.url, "repo": self.repo, "revision": self.revision, "folder": str(self.folder)}
        job = self.home / f"job-{random.randrange(10**9)}.json"
        job.write_text(json.dumps({**place, "files": files, **self.options, **changes}))
        return job

    def start(self, job: Path, *flags: str, **environment: str) -> subprocess.Popen[str]:
        """Starts the program with nothing but the standard library within reach."""
        command = [sys.executable, "-S", str(self.home / "fetch_weights.py"), *flags, str(job)]
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe, env={**kept, **environment})

    def run(
        self, job: Path, *flags: str, standard_input: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs the program to its end."""
        with self.start(job, *flags, **environment) as process:
            try:
                out, err = process.communicate(standard_input, timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def fetched(self, *paths: str) -> bool:
        """Whether the files lie in the folder with the right bytes."""
        wanted = paths or tuple(self.contents)
        return all((self.folder / path).read_bytes() == self.contents[path] for path in wanted)

    def requests(self, path: str | None = None) -> list[dict[str, Any]]:
        """The hub's log for this repository, redirected requests included; or for one of its files."""
        marks = [f"/{self.repo}/"] if path is None else []
        wanted = self.contents if path is None else {path: self.contents[path]}
        marks += [f"/cdn/{hashlib.sha256(content).hexdigest()}" for content in wanted.values()]
        marks += [f"/{self.repo}/resolve/{self.revision}/{path}"] if path else []
        return [entry for entry in self.hub.log() if any(mark in entry["path"] for mark in marks)]

    def interrupted(self, job: Path, path: str, at_least: int) -> None:
        """Runs the program against a slow hub and kills it, as a power cut would, when a part has grown enough."""
        self.hub.faults(bytes_per_second=max(20_000, len(self.contents[path]) // 4))
        with self.start(job) as process:
            wait_for(lambda: self.part(path).exists() and self.part(path).stat().st_size >= at_least, "a part")
            process.send_signal(signal.SIGKILL)
        self.hub.faults()


@pytest.fixture
def weights(hub: StandInHub, tmp_path: Path, request: pytest.FixtureRequest) -> Weights:
    """A repository with a large file, one in a sub-folder, a small one without a redirect, and an empty one."""
    random_bytes = random.Random(request.node.nodeid).randbytes
    contents = {
        "model-00001.gguf": random_bytes(600_000),
        "quants/model 00002+x.gguf": random_bytes(250_000),
        "config.json": random_bytes(300),
        "empty": b"",
    }
    root = Path(hub.state).parent / "root"
    return Weights(hub, root, tmp_path / "host", f"org/{tmp_path.name}", contents)
