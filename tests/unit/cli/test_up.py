"""`rigup up` before it applies: the model, what is written and locked, what is refused; and what it says at the end."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from rigup.cli import apply, main
from rigup.cli.sessions import new_host
from rigup.cli.up import ending
from rigup.errors import Unreachable
from rigup.facts.probe import PciGpu, Probe
from rigup.lockfile.resolver import Resolver
from rigup.operations.service.health import request_of
from rigup.plan import Plan
from rigup.project.inventory import HostEntry, load_project
from rigup.project.planning import plan_project

MODEL = "SmolLM2-135M-Instruct"  # the toolkit's lock pins it, so that locking asks nobody


HOSTS = [
    {
        "host": "box",
        "state": "changed",
        "changes": [],
        "errors": [],
        "answers": [],
        "seconds": 1.0,
        "estimated_seconds": None,
        "steps": [],
    }
]


@pytest.fixture
def applies(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """The applies that were asked for, each of which goes well without any host."""
    asked: list[argparse.Namespace] = []

    def applied(args: argparse.Namespace) -> apply.Applied:
        asked.append(args)
        return apply.Applied(0, {"schema": 1, "hosts": HOSTS} if args.json else None)

    monkeypatch.setattr(apply, "applied", applied)
    return asked


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applies: list[argparse.Namespace]) -> Path:
    """An empty folder; every box that is probed has 64 GiB and no GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(new_host, "probe_host", lambda *_: Probe(os="debian-12", memory_kib=64 * 2**20))
    return tmp_path


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_it_writes_a_fleet_folder_and_applies_it(
    fleet: Path, applies: list[argparse.Namespace], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["up", "ada@box", MODEL.lower(), "--yes", "--reboot", "--hub", "http://hub:8090/"]) == 0
    assert files(fleet) == [".gitignore", "group_data/cpu.py", "inventories/cpu.py", "rigup.lock"]
    (host,) = load_project(None).hosts
    assert (host.name, host.data["services"], host.data["hub"]) == (
        "ada@box",
        {"chat": {"model": MODEL}},
        "http://hub:8090",
    )
    (asked,) = applies
    assert (asked.inventory, asked.limit, asked.yes, asked.reboot, asked.rolling) == (
        "inventories/cpu.py",
        "ada@box",
        True,
        True,
        None,
    )
    said = capsys.readouterr().out
    assert "  rigup.lock: new\n" in said
    assert "chat: http://127.0.0.1:8000/v1, through: ssh -N -L 8000:127.0.0.1:8000 ada@box\n  curl -s http" in said
    assert said.endswith("go on with: rigup status inventories/cpu.py\n")


def test_its_lock_is_that_of_rigup_lock(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["up", "box", MODEL, "--yes"])
    before = (fleet / "rigup.lock").read_bytes()
    assert main.main(["lock", "--check"]) == 0
    assert main.main(["lock"]) == 0
    assert (fleet / "rigup.lock").read_bytes() == before


def test_the_same_command_again_goes_on(fleet: Path, applies: list[argparse.Namespace]) -> None:
    for _ in range(2):
        assert main.main(["up", "box", MODEL, "--yes"]) == 0
    assert main.main(["up", "box"]) == 0
    assert len(applies) == 3
    assert (fleet / "inventories/cpu.py").read_text() == 'cpu = ["box"]\n'


def test_an_equal_host_joins_and_another_model_gets_a_group_of_its_own(fleet: Path) -> None:
    main.main(["up", "one", MODEL, "--yes"])
    assert main.main(["up", "two", MODEL, "--yes"]) == 0
    assert main.main(["up", "three", MODEL, "--yes", "--name", "other"]) == 0
    assert (fleet / "inventories/cpu.py").read_text() == (
        'cpu = ["one", "two"]\ncpu_smollm2_135m_instruct = ["three"]\n'
    )
    assert "other" in (fleet / "group_data/cpu_smollm2_135m_instruct.py").read_text()


def test_json_is_one_document(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["up", "box", MODEL, "--yes", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert list(said) == ["schema", "host", "group", "inventory", "files", "lock", "plans", "hosts", "services"]
    assert (said["lock"]["action"], said["hosts"], said["services"][0]["url"]) == (
        "new",
        HOSTS,
        "http://127.0.0.1:8000/v1",
    )


REFUSED = [
    (["up", "box", "Kimi-K2.6-EAGLE3-MLA", "--yes"], 2, "MODEL: kimi-k2.6-eagle3-mla ", '"eagle"'),
    (["up", "box", "SmolM2-135M-Instruct", "--yes"], 2, 'MODEL: unknown model "SmolM2-135M-Instruct"', f'"{MODEL}"'),
    (["up", "box", "ollama:", "--yes"], 2, 'MODEL: "ollama:": ', "omit it to choose"),
    (["up", "box;reboot", MODEL], 2, "rigup up: 'box;reboot' ", "gpu1.lan"),
    (["up", "box", MODEL], 2, "up needs confirmation, but standard input is not a terminal", "pass --yes"),
    (["up", "box", "--yes"], 2, "MODEL: omitted, and standard input is not a terminal", "rigup up box gpt-oss-20b"),
    (["up", "box", "--yes", "--json"], 2, "MODEL: omitted with --json", "rigup up box gpt-oss-20b"),
    (["up", "box", MODEL, "--yes", "--hub", "hub"], 2, '--hub: "hub" is not', "write hub = "),
    (["up", "box", MODEL, "--yes", "--group", "a-b"], 2, '--group: "a-b" ', "underscores"),
    (["up", "box", MODEL, "--yes", "--name", "A b"], 2, '--name: "A b" ', "lower-case"),
    (["up", "box", "DeepSeek-V4-Flash-0731", "--yes"], 1, "box: DeepSeek-V4-Flash-0731: ", "rigup up box gpt-oss-20b"),
]


@pytest.mark.parametrize(("words", "code", "message", "hint"), REFUSED, ids=[str(n) for n in range(len(REFUSED))])
def test_what_cannot_be_done_leaves_no_trace(
    fleet: Path,
    applies: list[argparse.Namespace],
    words: list[str],
    code: int,
    message: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: False))
    assert main.main(words) == code
    said = capsys.readouterr().err
    assert message in said
    assert hint in said.partition("hint: ")[2]
    assert (files(fleet), applies) == ([], [])


def test_a_known_host_is_not_described_twice(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main.main(["up", "ada@box", MODEL, "--yes"])
    before = {name: (fleet / name).read_bytes() for name in files(fleet)}
    capsys.readouterr()
    assert main.main(["up", "ada@box", "gpt-oss-20b", "--yes"]) == 2
    assert capsys.readouterr().err == (
        "rigup: inventories/cpu.py: ada@box is described already; it serves chat, not gpt-oss-20b\n"
        "hint: change services in group_data/cpu.py, then run: rigup lock and rigup apply\n"
    )
    assert main.main(["up", "root@box", MODEL, "--yes"]) == 2
    assert "ada@box is already in " in capsys.readouterr().err
    assert {name: (fleet / name).read_bytes() for name in files(fleet)} == before


@pytest.mark.parametrize("answer", ["", "1", "gpt-oss-20b", "GPT-OSS-20B"])
def test_without_a_model_it_asks(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    asked = iter(["99", "nonsense", answer])

    def locked(_: Resolver, name: tuple[str, str], *__: object) -> NoReturn:
        raise Unreachable(f"no hub to ask for {name[0]}", "connect")

    monkeypatch.setattr(Resolver, "checkpoint", locked)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: next(asked))
    assert main.main(["up", "box"]) == 2
    said = capsys.readouterr()
    assert "\n1 gpt-oss-20b" in said.out
    assert said.out.count("not in the list; write a number from 1 to ") == 2
    assert "no hub to ask for unsloth/gpt-oss-20b-GGUF" in said.err
    assert files(fleet) == []


def test_the_question_reads_the_key_from_its_file(fleet: Path) -> None:
    main.main(["up", "box", MODEL, "--yes"])
    (plan,) = plan_project(load_project(None))

    def served(**service: object) -> Plan:
        return plan.model_copy(update={"service": plan.service.model_copy(update=service)})

    box = HostEntry("box", "cpu", {"ssh_port": 2222, "ssh_config_file": "my ssh"})
    generated, own = served(listen="0.0.0.0"), served(listen="::1", api_key_file="secrets/chat.key")
    assert ending.base_url(generated) == "http://box:8000/v1"
    assert "$(ssh -F 'my ssh' -p 2222 box sudo cat /etc/rigup/services/chat/api-key)" in ending.curl(box, generated)
    assert ending.tunnel(box, generated) is None
    assert ending.base_url(own) == "http://[::1]:8000/v1"
    assert "$(cat secrets/chat.key)" in ending.curl(box, own)


def test_the_command_at_the_end_asks_what_the_health_check_has_asked(fleet: Path) -> None:
    """A small model answers another question at length, in a language of its choice."""
    main.main(["up", "box", MODEL, "--yes"])
    (plan,) = plan_project(load_project(None))
    asked = ending.curl(HostEntry("box", "cpu", {}), plan)
    assert f'"content": "{request_of(plan)["question"]}"' in asked


def test_a_box_without_a_driver_is_asked_for_its_cards(
    fleet: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = tuple(PciGpu(bus=f"0000:0{number}:00.0") for number in range(2))
    bare = Probe(os="debian-12", memory_kib=64 * 2**20, pci_gpus=cards)
    monkeypatch.setattr(new_host, "probe_host", lambda *_: bare)
    assert main.main(["up", "box", "gpt-oss-20b", "--yes"]) == 1
    assert 'hint: name them: rigup up box gpt-oss-20b --gpus "2x RTX 3090"\n' in capsys.readouterr().err
    assert files(fleet) == []


def test_an_apply_loads_nothing_of_it(fleet: Path) -> None:
    main.main(["up", "box", MODEL, "--yes"])
    (fleet / "inventories/cpu.py").write_text('cpu = [("box", {"ssh_hostname": "127.0.0.1", "ssh_port": 9})]\n')
    rare: tuple[str, ...] = ("shtab", "rigup.cli.up", "rigup.cli.completion", "rigup.cli.output.foreseen")
    rare += ("rigup.cli.sessions.new_host", "rigup.cli.sessions.unplanned", "rigup.cli.service", "rigup.run.services")
    rare += (
        "rigup.api",
        "rigup.run.own_roles",
        "rigup.cli.schema",
        "rigup.run.whole_hosts",
        "rigup.operations.service.stopping",
        "rigup.operations.service.endpoints",
        "rich",
        "rigup.attention.mamba",
        "rigup.commands.vllm",
        "rigup.cli.plan",
        "rigup.facts.apply_records",
        "rigup.gateway_settings",
        "rigup.run.measured_memory",
        "rigup.run.multinode.coordinator",
    )
    program = (
        f"from rigup.cli.main import main; import sys; main(['apply']); print([m for m in {rare} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=fleet)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


@pytest.mark.parametrize("verb", ["up", "init"])
@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--name", "Chat!", '--name: "Chat!" '),
        ("--name", "gateway", '--name: "gateway" '),
        ("--group", "a-b", '--group: "a-b" '),
        ("--group", "class", '--group: "class" '),
        ("--fleet", "file", "--fleet: file: "),
        ("--gpus", "4x RTX 3091", '--gpus: unknown GPU "RTX 3091"'),
        ("--hub", "file:///x", '--hub: "file:///x" '),
    ],
)
def test_options_are_checked_before_the_host_is_asked(
    verb: str, option: str, value: str, message: str, fleet: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if verb == "init" and option == "--name":
        return

    def connected(*_: object) -> NoReturn:
        raise AssertionError("it has connected")

    monkeypatch.setattr(new_host, "probe_host", connected)
    (fleet / "file").touch()
    words = [verb, "ada@box", *([MODEL, "--yes"] if verb == "up" else ()), option, value]
    assert main.main(words) == 2
    assert message in capsys.readouterr().err
    assert files(fleet) == ["file"]
