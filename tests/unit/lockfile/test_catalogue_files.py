"""A service that names a repository as its model: `rigup plan` says that it is to be read, `rigup lock` reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.data_files import read_file
from rigup.checkpoints.entry_text import checkpoint_text
from rigup.lab.hub.server_process import StandInHub
from rigup.lock import load_lock
from rigup.lockfile.text import lock_text
from tests.command_line import CommandLine
from tests.unit.cli.test_model_add import tiny
from tests.unit.lockfile.test_lock_at_the_stand_in import WITH_PACKAGES

GROUP_DATA = """\
rig = {"gpus": "RTX 3090", "host_memory_gib": 64}
services = {"chat": {"model": "%s", "engine": "vllm", "context": 2048}}
"""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[StandInHub]:
    tiny(tmp_path / "root/org/Tiny-Llama")
    hub = StandInHub.start(tmp_path / "root", tmp_path / "state")
    yield hub
    hub.stop()


def fleet(tmp_path: Path, hub: StandInHub, model: str) -> CommandLine:
    made = CommandLine(tmp_path)
    made.describe(["a.example"], GROUP_DATA % model + f'hub = "{hub.url}"\n')
    made.write("rigup.lock", lock_text(WITH_PACKAGES))
    return made


def test_lock_reads_the_model_and_pins_its_files(tmp_path: Path, hub: StandInHub) -> None:
    line = fleet(tmp_path, hub, "org/Tiny-Llama")
    before = line.call("plan")
    assert before.code == 2
    error, hint = before.err.splitlines()
    assert error.startswith("rigup: group_data/boxes.py: services.chat.model: org/Tiny-Llama ")
    assert "rigup lock" in hint and hint.endswith("rigup model add org/Tiny-Llama")
    stale = line.call("lock", "--check")
    assert (stale.code, stale.err) == (1, "hint: rigup lock\n")
    assert "services.chat.model: org/Tiny-Llama " in stale.out and "so nothing of it is pinned" in stale.out
    locked = line.call("lock")
    assert locked.code == 0, locked.err
    assert line.call("lock", "--check").code == 0
    assert "catalogue/models/Tiny-Llama.toml: new" in locked.err
    (entry,) = load_lock(line.fleet / "rigup.lock").checkpoints
    assert (entry.repo, entry.quant) == ("org/Tiny-Llama", "BF16")
    (plan,) = line.call("plan", "--json").json["hosts"]
    assert (plan["verdict"], plan["checkpoint"]["repo"]) == ("ok", "org/Tiny-Llama")
    again = line.call("lock")
    assert again.code == 0 and "catalogue/" not in again.err


def test_what_the_hub_does_not_have_is_said_of_the_service(tmp_path: Path, hub: StandInHub) -> None:
    line = fleet(tmp_path, hub, "org/none:Q8_0")
    done = line.call("lock")
    assert done.code == 2
    name = hub.url.partition("//")[2]
    where = "rigup: group_data/boxes.py: services.chat.model: org/none"
    assert done.err.splitlines()[-2].startswith(f"{where}: the hub at {name} has no ")
    assert not (line.fleet / "catalogue").exists()


def test_a_gated_repository_is_said_of_the_service(tmp_path: Path, hub: StandInHub) -> None:
    hub.faults(gated=True)
    line = fleet(tmp_path, hub, "org/Tiny-Llama")
    done = line.run("lock")
    where, name = "group_data/boxes.py: services.chat.model", hub.url.partition("//")[2]
    error, hint = done.err.splitlines()[-2:]
    assert (done.code, error.partition(" requires ")[0]) == (
        2,
        f"rigup: {where}: org/Tiny-Llama: the hub at {name}",
    )
    assert 'hub_token_file = "secrets/hub.token"' in hint
    assert not (line.fleet / "catalogue").exists()


def test_lock_reads_where_the_bytes_of_a_catalogued_checkpoint_lie(tmp_path: Path, hub: StandInHub) -> None:
    """An entry that was computed gets the sizes of its files and, tensor by tensor, what their headers say."""
    (tmp_path / "root/org/Tiny-Llama/chat_template.jinja").write_text("{{ messages }}")
    line = fleet(tmp_path, hub, "org/Tiny-Llama")
    assert line.call("lock").code == 0
    path = next((line.fleet / "catalogue/checkpoints").iterdir())
    (read,) = read_file(path, "checkpoint", CheckpointEntry)
    assert read.tensors is not None
    guessed = {
        "template_tools": None,
        "tensors": read.tensors.scaled(3 * read.bytes),
        "bytes": 4 * read.bytes,
        "bytes_exact": False,
    }
    path.write_text(checkpoint_text(read.model_copy(update=guessed), "Guessed."))
    line.write("rigup.lock", lock_text(WITH_PACKAGES))
    (model,) = (line.fleet / "catalogue/models").iterdir()
    text = model.read_text()
    own = int(re.findall(r"^context = (\d+)$", text, re.MULTILINE)[0])
    model.write_text(text.replace(f"context = {own}", f"context = {2 * own}"))
    done = line.call("lock")
    assert done.code == 0 and "headers of" not in done.err, done.err
    lock = load_lock(line.fleet / "rigup.lock")
    (entry,) = lock.checkpoints
    assert entry.read_tensors == read.tensors
    assert (read.template_tools, entry.template_tools) == (False, False)
    assert (read.context, entry.context) == (None, own)  # less than the model's, which engines then refuse
    found = read.model_copy(update=guessed).measured(read.bytes, entry.read_tensors, "rigup.lock")
    assert (found.bytes, found.tensors, found.is_read) == (read.bytes, read.tensors, True)
    assert found.sources["tensors"] == "rigup.lock: headers of the weight files"
    assert lock_text(lock) == (line.fleet / "rigup.lock").read_text()
    (plan,) = line.call("plan", "--json").json["hosts"]
    assert plan["verdict"] == "ok"


def test_without_headers_the_catalogues_shares_remain(tmp_path: Path, hub: StandInHub) -> None:
    line = fleet(tmp_path, hub, "org/Tiny-Llama")
    assert line.call("lock").code == 0
    (read,) = read_file(next((line.fleet / "catalogue/checkpoints").iterdir()), "checkpoint", CheckpointEntry)
    assert read.tensors is not None
    found = read.measured(read.bytes // 2, None, "rigup.lock")
    assert found.tensors is not None and found.tensors.total <= found.bytes
    assert found.tensors.embedding == read.tensors.embedding * (read.tensors.total // 2) // read.tensors.total
    assert read.measured(read.bytes, None, "rigup.lock").tensors == read.tensors
