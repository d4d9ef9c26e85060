"""What is found on a host before everything is removed, and what the removal keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rigup.operations import whole_removal
from rigup.operations.primitives import remote
from rigup.operations.whole_removal import Installed, installed_on, remove_everything
from tests.unit.local_host import LocalHost

DIGEST = "sha256:" + "a" * 64


def test_sizes_with_and_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    (state / "weights").mkdir(parents=True)
    (state / "weights/model").write_bytes(b"1" * 1_000_000)
    (tmp_path / "opt").mkdir()
    monkeypatch.setattr(whole_removal, "FOLDERS", (str(tmp_path / "opt"), str(state), str(tmp_path / "gone")))
    monkeypatch.setattr(whole_removal, "STATE", str(state))
    monkeypatch.setattr(whole_removal.layout, "WEIGHTS", str(state / "weights"))
    host: Any = LocalHost()
    found = installed_on(host, ("chat",))
    assert found.sizes.keys() == {str(tmp_path / "opt"), str(state)}
    assert found.weights >= 1_000_000 > found.other_bytes
    assert found.is_anything(weights=False)
    only_weights = Installed((), {str(state): 5}, 5)
    assert (only_weights.is_anything(weights=False), only_weights.is_anything(weights=True)) == (False, True)
    assert not Installed((), {}, 0).is_anything(weights=True)


@pytest.mark.parametrize(("weights", "keeps"), [(False, "/var/lib/rigup/weights"), (True, "")])
def test_the_removal(weights: bool, keeps: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scripts: list[tuple[str, ...]] = []
    commands: list[tuple[str, ...]] = []

    def run(host: Any, *words: str, **_: Any) -> remote.Output:
        commands.append(words)
        images = f"registry.example/vllm@{DIGEST}\n--all\nregistry.example/vllm:latest\n"
        return remote.Output(True, images if words[0] == "python3" else "", "")

    monkeypatch.setattr(remote, "run", run)
    monkeypatch.setattr(remote, "script", lambda host, text, *words, **_: scripts.append(words))
    host: Any = LocalHost()
    remove_everything(host, weights)
    assert scripts[0][:3] == (keeps, "rigup", "closed-port@")
    removed = [words for words in commands if words[0] == "podman"]
    assert removed == [("podman", "image", "rm", f"registry.example/vllm@{DIGEST}")]
