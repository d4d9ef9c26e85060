"""Each command of the pages is run: here, on a lab machine or by another test, or a table says why it is not."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path

import pytest

from rigup.checkpoints.tensor import Tensor
from rigup.lab.hub.server_process import StandInHub
from rigup.lab.hub.sparse_files import write_gguf
from rigup.project import inventory
from tests.command_line import CommandLine
from tests.documented_commands import AT_A_HOST, ELSEWHERE, HELP, HERE, NOT_RUN, NOT_TYPED, PAGES, ROOT, commands
from tests.serving import serving
from tests.unit.cli.test_bench import result
from tests.unit.cli.test_model_add import tiny
from tests.unit.lockfile.test_lock import M21, TWO, Fleet
from tests.unit.sources.replayed_hub import ReplayedHub

METADATA = {"general.architecture": "llama", "llama.block_count": 1, "llama.embedding_length": 64}
METADATA |= {"llama.attention.head_count": 4, "llama.context_length": 4096, "tokenizer.ggml.tokens": ["x"] * 100}
TENSORS = [
    Tensor("token_embd.weight", "Q8_0", (100, 64), 6800),
    Tensor("blk.0.attn_q.weight", "Q8_0", (64, 64), 4352),
]
BEFORE = {
    "rigup plan --format markdown --before /tmp/main.json": "rigup plan --json > /tmp/main.json",
    **dict.fromkeys([command for command in HERE if command.startswith("rigup lock --")], "rigup lock"),
}
GROUP = """\
rig = {"gpus": "4x RTX 3090", "host_memory_gib": 64}
services = {"minimax": {"checkpoint": "unsloth/MiniMax-M2.1-GGUF", "quant": "UD-IQ2_M", "context": 32768,
                        "listen": "0.0.0.0"}}
monitoring = {}
"""


def test_every_command_of_a_page_is_in_one_table() -> None:
    tables = [set(table) for table in (HERE, HELP, AT_A_HOST, ELSEWHERE, NOT_RUN)]
    told = {command for page in PAGES for command in commands(page) if not NOT_TYPED.match(command)}
    assert told - set().union(*tables) == set(), "add each to a table of tests/documented_commands.py"
    assert set().union(*tables) - told == set(), "no page has these any more"
    assert sum(map(len, tables)) == len(set().union(*tables)), "a command is in one table"


@pytest.mark.parametrize("command", ELSEWHERE)
def test_what_runs_a_command_elsewhere_is_there(command: str) -> None:
    path, words = ELSEWHERE[command]
    assert words in (ROOT / path).read_text()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandInHub]:
    """What the pages add to a catalogue, a few kilobytes each."""
    root = tmp_path_factory.mktemp("hub")
    tiny(root / "Qwen/Qwen3-235B-A22B-GPTQ-Int4")
    found = StandInHub.start(root, tmp_path_factory.mktemp("state"))
    yield found
    found.stop()


@pytest.fixture(scope="module")
def hub_to_lock_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayedHub]:
    """A hub that has the listing of what the fleet serves: 78 GB, of which nothing is read."""
    with serving(ReplayedHub()) as hub:
        Fleet(tmp_path_factory.mktemp("of hub"), hub).serve(M21, TWO)
        yield hub


@pytest.fixture
def line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """A fleet as README has it, and what else the pages name."""
    monkeypatch.setattr(inventory, "toolkit_root", lambda: tmp_path / "toolkit")
    line = CommandLine(tmp_path)
    for folder in ("inventories", "group_data"):
        shutil.copytree(ROOT / folder, tmp_path / "toolkit" / folder)
    for root in (line.fleet, tmp_path / "toolkit"):
        shutil.copy(ROOT / "rigup.lock", root)
        shutil.copytree(ROOT / "catalogue", root / "catalogue")
    line.write("inventories/homelab.py", 'quad_3090 = ["gpu1.lan"]\n')
    line.write("group_data/quad_3090.py", GROUP)
    (line.fleet / "results").mkdir()
    for name, speed in (("a", 100.0), ("b", 120.0)):
        line.write(f"results/{name}.json", json.dumps(result(speed)))
    tiny(line.home / "models/my-finetune")
    (tmp_path / "models").mkdir()
    write_gguf(tmp_path / "models/x-Q4_K_M.gguf", METADATA, TENSORS)
    return line


@pytest.mark.parametrize("command", HERE)
def test_a_command_does_without_a_host_what_its_page_says(
    line: CommandLine, tmp_path: Path, hub: StandInHub, hub_to_lock_at: ReplayedHub, command: str
) -> None:
    code, words = HERE[command]
    folder = tmp_path / "toolkit" if "seeds.py" in command else line.fleet
    for each in filter(None, (BEFORE.get(command), command)):
        typed, _, target = each.partition(" > ")
        typed = typed.replace("/tmp/", f"{tmp_path}/").replace("/models/x", f"{tmp_path}/models/x")
        given = [word.replace("~", str(line.home)) for word in shlex.split(typed)[1:]]
        line.fleet = folder
        done = line.call(*given, HF_ENDPOINT=hub_to_lock_at.url if "lock" in given else hub.url)
        if target:
            (folder / target.replace("/tmp/", f"{tmp_path}/")).write_text(done.out)
    assert done.code == code, done.text
    assert words in done.text


@pytest.mark.parametrize("command", sorted(HELP))
def test_the_options_of_a_program_are_in_its_help(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    _, *words = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [words[0], "--help"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = ROOT / (f"src/{words[1].replace('.', '/')}.py" if words[0] == "-m" else words[0])
    with redirect_stdout(StringIO()) as said, suppress(SystemExit):
        runpy.run_path(str(path), run_name="__main__")
    assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[a-z-]+", said.getvalue()))
    assert "usage: " in said.getvalue()


def test_a_command_is_taken_out_of_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`rigup not this`\n```console\n$ rigup plan   # what it does\n# rigup lab up\nrigup is not a prompt here: no\n"
        "$ curl -s http://a.example \\\n    -d x\n```\n```toml\npython = '3.12'\n```\n"
        "   ```\n   rigup bench --compare a b    compares\n   HOME=/x rigup plan\n   ```\n"
    )
    assert list(commands(page)) == [
        "rigup plan",
        "rigup lab up",
        "rigup is not a prompt here: no",
        "curl -s http://a.example -d x",
        "rigup bench --compare a b",
        "HOME=/x rigup plan",
    ]
