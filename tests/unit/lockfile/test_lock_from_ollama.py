"""A name in Ollama's registry: read from its headers, pinned by its hash, at a stand-in that answers as it does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.cli import main
from rigup.errors import InputError, RigupError, Unreachable
from rigup.lab.hub.server_process import StandInHub
from rigup.lock import load_lock
from rigup.lockfile.text import lock_text
from rigup.sources.ollama import MODEL, OllamaRegistry
from tests.command_line import CommandLine
from tests.lab.test_files_on_host import METADATA, tiny
from tests.unit.lockfile.test_lock_at_the_stand_in import WITH_PACKAGES
from tests.unit.programs.hostile_server import HostileServer

GROUP_DATA = """\
rig = {"gpus": "RTX 3090", "host_memory_gib": 64}
services = {"chat": {"checkpoint": "ollama:tiny:1b", "context": 2048}}
hub = "http://127.0.0.1:9"
ollama_registry = "%s"
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[StandInHub]:
    folder = tmp_path / "root/library/tiny"
    folder.mkdir(parents=True)
    tiny(folder / "1b.gguf")
    (folder / "1b.json").write_text('{"file_type": "Q8_0", "model_family": "llama"}')
    found = StandInHub.start(tmp_path / "root", tmp_path / "state", lfs_minimum=1000)
    yield found
    found.stop()


def test_a_name_is_read_locked_and_planned(tmp_path: Path, registry: StandInHub) -> None:
    line = CommandLine(tmp_path)
    line.describe(["a.example"], GROUP_DATA % registry.url)
    line.write("rigup.lock", lock_text(WITH_PACKAGES))
    error, hint = line.run("plan").err.splitlines()
    assert error.startswith("rigup: group_data/boxes.py: services.chat.checkpoint: ollama:tiny:1b ")
    assert "rigup lock" in hint and hint.endswith("rigup model add ollama:tiny:1b")
    done = line.run("lock")
    assert done.code == 0, done.err
    (entry,) = load_lock(line.fleet / "rigup.lock").checkpoints
    (file,) = entry.files
    assert (entry.repo, entry.quant, entry.location, file.path) == (
        "ollama/tiny-1b",
        "Q8_0",
        "ollama:tiny:1b",
        "tiny-1b-Q8_0.gguf",
    )
    assert file.size == (tmp_path / "root/library/tiny/1b.gguf").stat().st_size
    (plan,) = line.run("plan", "--json").json["hosts"]
    assert (plan["verdict"], plan["checkpoint"]["repo"]) == ("ok", "ollama/tiny-1b")
    assert line.run("lock", "--check").code == 0


def test_model_add(
    tmp_path: Path, registry: StandInHub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OLLAMA_REGISTRY", registry.url)
    assert main.main(["model", "add", "ollama:library/tiny:1b"]) == 0
    (entry,) = [each for each in load_catalogue(tmp_path).checkpoints if each.location]
    assert (entry.location, entry.model, entry.shards) == ("ollama:tiny:1b", "tiny-1b", 1)
    capsys.readouterr()
    name = registry.url.partition("//")[2]
    for words, message in {
        "ollama:tiny:70b": f"ollama:tiny:70b: the registry at {name} has no such model or tag",
        "ollama:none": f"ollama:none:latest: the registry at {name} has no such model or tag",
        "ollama:../etc": "checkpoint: 'ollama:../etc' is ",
    }.items():
        assert main.main(["model", "add", words]) == 2
        error, hint = capsys.readouterr().err.splitlines()[-2:]
        assert error.startswith(f"rigup: {message}") and hint.startswith("hint: ")
    registry.faults(gated=True)
    assert main.main(["model", "add", "ollama:tiny:1b"]) == 2
    assert f"the registry at {name} requires a login" in capsys.readouterr().err
    assert METADATA["general.architecture"] == "llama"


LAYER = {"mediaType": MODEL, "digest": f"sha256:{'0' * 64}", "size": 5}


@pytest.mark.usefixtures("nothing_to_collect")
@pytest.mark.parametrize(
    ("manifest", "kind", "says"),
    [
        ("[]", Unreachable, "does not answer as Ollama's registry does"),
        ('{"layers": 5}', Unreachable, "does not answer as Ollama's registry does"),
        (json.dumps({"layers": [{**LAYER, "digest": "sha256:../../x"}]}), Unreachable, "does not answer as"),
        (json.dumps({"layers": [{**LAYER, "size": -1}]}), Unreachable, "does not answer as"),
        (json.dumps({"layers": [{**LAYER, "size": 2**60}]}), Unreachable, "does not answer as"),
        (json.dumps({"layers": [LAYER, 5]}), Unreachable, "does not answer as"),
        (json.dumps({"layers": [LAYER, LAYER]}), InputError, "ollama:x:y: is not one GGUF file"),
        (json.dumps({"layers": []}), InputError, "ollama:x:y: is not one GGUF file"),
        (
            json.dumps({"layers": [LAYER, {"mediaType": MODEL.replace("model", "adapter")}]}),
            InputError,
            "ollama:x:y: is an adapter for another model",
        ),
        ("[" * 100_000, Unreachable, "does not answer as"),
        ("x" * 2_000_000, Unreachable, "sent more than"),
    ],
)
def test_what_a_registry_may_not_say(manifest: str, kind: type[RigupError], says: str) -> None:
    server = HostileServer()
    server.states["/v2/library/x/manifests/y"] = manifest.encode()
    with pytest.raises(kind) as raised:
        OllamaRegistry(f"http://127.0.0.1:{server.port}", lambda _: None).model("ollama:x:y")
    server.end()
    assert says in raised.value.message and raised.value.hint
