"""Checkpoints that lie on hosts, as `rigup lock` reads and chooses them: this machine stands for the host."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.checkpoints.repository import Repository
from rigup.cli import main
from rigup.errors import HostFailed, InputError
from rigup.lock import LockedCheckpoint, LockedFile
from rigup.lockfile.host_reader import HostReader
from rigup.lockfile.text import lock_text
from rigup.operations.weights import host_files
from rigup.sources.http_retry import LARGEST_PART
from tests.command_line import CommandLine
from tests.lab.test_files_on_host import tiny
from tests.unit.local_host import LocalHost
from tests.unit.lockfile.test_lock_at_the_stand_in import WITH_PACKAGES

BOX = cast(Any, SimpleNamespace(name="box"))


class SaysHost(LocalHost):
    """A host that answers every command with the same output."""

    def __init__(self, output: str) -> None:
        super().__init__()
        self.output = output

    def run_shell_command(self, *_: Any, **__: Any) -> tuple[bool, Any]:
        return True, SimpleNamespace(stdout=self.output, stderr="")


def repository(location: str) -> Repository:
    reader = HostReader(None, lambda _: None)
    reader._hosts["box"] = cast(Any, LocalHost())
    return reader.repository(BOX, location)


def test_a_large_index_comes_in_parts(tmp_path: Path) -> None:
    """A host's output is bounded, and an index may have more bytes than that."""
    content = bytes(range(256)) * (LARGEST_PART // 256) + b"end"
    (tmp_path / "model.safetensors.index.json").write_bytes(content)
    found = repository(str(tmp_path))
    assert found.small("model.safetensors.index.json", 2**26) == content


def test_a_name_that_a_lock_cannot_hold(tmp_path: Path) -> None:
    for name in ("a@b.json", "a=b.json", "config.json"):
        (tmp_path / name).write_text("{}")
    assert list(repository(str(tmp_path)).files) == ["config.json"]
    tiny(tmp_path / "x@1.gguf")
    with pytest.raises(InputError, match=r"box: .*/x@1.gguf: a lock cannot hold this name") as raised:
        repository(f"{tmp_path}/x@1.gguf")
    assert raised.value.hint == "rename it: letters, digits and _ + . -"


@pytest.mark.parametrize("size", ["\u00b2", "\u0663", "9" * 5000, "-1", "1e9", "", str(2**44 + 1)])
def test_a_host_that_lies_about_a_size_fails_alone(size: str) -> None:
    host = cast(Any, SaysHost(f"regular file|{size}|/models/x.gguf\n"))
    with pytest.raises(HostFailed, match=r"^box: /models/x.gguf: its size "):
        host_files.file_sizes(host, ["/models/x.gguf"])


def test_a_listing_has_no_other_lines() -> None:
    assert host_files.file_names(cast(Any, SaysHost("file a\nb\nfile c\n")), "/models") == ("a", "c")


def test_files_of_one_host_are_not_offered_where_a_service_names_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another host does not have them, so a path counts where a service names it, or where a model has nothing else."""
    line = CommandLine(tmp_path)
    line.describe(
        ["a.example"], 'rig = {"gpus": "RTX 3090"}\nservices = {"chat": {"model": "Mine", "context": 2048}}\n'
    )
    line.write("rigup.lock", lock_text(WITH_PACKAGES))
    tiny(tmp_path / "x-Q8_0.gguf")
    monkeypatch.chdir(line.fleet)
    assert main.main(["model", "add", f"{tmp_path}/x-Q8_0.gguf", "--model", "Mine"]) == 0
    (own,) = load_catalogue(line.fleet).checkpoints_by_model["Mine"]
    assert own.location == f"{tmp_path}/x-Q8_0.gguf"
    refused = line.run("lock")
    assert (refused.code, refused.err.splitlines()[-2:]) == (
        2,
        [
            f"rigup: group_data/boxes.py: services.chat: its files lie on hosts, at {own.location}",
            f'hint: name the path: "checkpoint": "{own.location}"',
        ],
    )
    assert main.main(["model", "add", f"{tmp_path}/x-Q8_0.gguf", "--model", "Mine", "--repo", "me/mine"]) == 0
    assert [entry.repo for entry in load_catalogue(line.fleet).checkpoints_by_model["Mine"]] == ["me/mine"]


@pytest.mark.parametrize(
    ("upgrade", "message"),
    [
        ("local/x-Q8_0", "--upgrade local/x-Q8_0: no service uses local/x-Q8_0"),
        ("local/y-Q8_0=v1", "--upgrade local/y-Q8_0=v1: {}/y-Q8_0.gguf has no revisions"),
    ],
)
def test_no_host_is_asked_for_files_that_it_does_not_use(
    upgrade: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, locked = CommandLine(tmp_path), []
    path = f"{tmp_path}/y-Q8_0.gguf"
    services = {"chat": {"checkpoint": path, "context": 2048}}
    line.describe(["nobody.invalid"], f'rig = {{"gpus": "RTX 3090"}}\nservices = {services!r}\n')
    monkeypatch.chdir(line.fleet)
    for name in ("x-Q8_0", "y-Q8_0"):
        tiny(tmp_path / f"{name}.gguf")
        assert main.main(["model", "add", f"{tmp_path}/{name}.gguf"]) == 0
        file = LockedFile(path=f"{name}.gguf", size=(tmp_path / f"{name}.gguf").stat().st_size, sha256="a" * 64)
        place = f"{tmp_path}/{name}.gguf"
        entry = {"repo": f"local/{name}", "quant": "Q8_0", "revision": "b" * 40, "files": (file,), "location": place}
        locked.append(LockedCheckpoint.model_validate(entry))
    line.write("rigup.lock", lock_text(WITH_PACKAGES.model_copy(update={"checkpoints": tuple(locked)})))
    refused = line.run("lock", "--upgrade", upgrade)
    assert (refused.code, refused.err.splitlines()[-2:-1]) == (2, [f"rigup: {message.format(tmp_path)}"])
