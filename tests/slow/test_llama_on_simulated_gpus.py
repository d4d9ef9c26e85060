"""The pinned llama.cpp as four RTX 3090 get it, from a bare machine on: the cards are the lab's, the answers are real.

`rigup apply` installs the driver, compiles the build for CUDA with the lab's compiler, and serves tiny models of every
class of attention one after another over all cards, by the plan's own command line. Its answers are those of the same
program without cards. Only the checkpoints are made up (tests/tiny), and the hub a stand-in.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rigup import layout
from rigup.cache import cache_folder
from rigup.catalogue.runtimes import runtimes
from rigup.lab.packages.nvidia_repository import ensure, settings
from rigup.programs.build_source import JUDGE
from rigup.project.inventory import toolkit_root
from rigup.units import MIB
from tests.lab.fleet import wait_for
from tests.lab.fleet_fixtures import made_fleet
from tests.slow.tiny_fleet import TinyFleet
from tests.tiny.checkpoint import name_of, write_gguf

pytestmark = [
    pytest.mark.slow,
    pytest.mark.lab,
    pytest.mark.rests_on("llama.cpp's package", "builds from source", "driver", "src/rigup/lab/gpus"),
]
CARDS = "4x RTX 3090"
DISK = "6g"
COLD_SECONDS = 2400
# So many that caches are more than what a figure in MiB is rounded by.
SLOTS = 16
# By name, the class of attention and what the service has beside its model.
SERVED: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("full", {}),
    "window": ("sliding_window", {}),
    "chunked": ("chunked_local", {}),
    "blocks": ("block_sparse", {}),
    "latent": ("latent", {}),
    "indexed": ("latent_indexed", {}),
    "compressed": ("compressed_sparse", {}),
    "gated-delta": ("gated_delta", {}),
    "kimi-delta": ("kimi_delta", {}),
    "mamba": ("mamba", {}),
    "mamba2": ("mamba2", {}),
    "experts-on-host": ("gated_delta", {"flags": {"--n-cpu-moe": 2}}),
    "quantised-cache": ("sliding_window", {"kv_cache_type": "q8_0"}),
    "drafted": (
        "full",
        {"concurrency": 2, "speculative": {"kind": "draft", "model": "example/Tiny-sliding-window-GGUF"}},
    ),
}
# More tokens than a batch has at least before experts in host memory are computed on a card, and fewer.
PROMPTS = ("Tell me of the sea. " * 8, "0123456789 " * 30, "abc")
TOKENS = 12
# Experts in MXFP4: the processor has kernels for a copy in another order, which a card does not hold.
TOLERANCE = {"compressed": 0.02}
BUFFER = re.compile(r"CUDA(\d) (?:DSV4 \w+ )?(model|KV|RS|state|compute) buffer size = +([\d.]+) MiB")
PAGE_MIB = 2
FIGURES = runtimes()["llama.cpp"]
OF_CARDS = (
    "--n-gpu-layers",
    "--split-mode",
    "--tensor-split",
    "--n-cpu-moe",
    "--spec-draft-ngl",
    "--spec-draft-device",
)
DROP_IN = "/usr/lib/systemd/system/rigup-chat.service.d/lab.conf"
"""Where a distribution's drop-ins are, which are not drift."""
TOO_MANY_TOKENS = 32 * 2**20
"""At a KiB each, if all layers are on one card."""


@dataclass(frozen=True)
class Served:
    """One service: its plan, the log of its start, MiB in use of each card, and what it answers, with and without.

    run: what the apply printed.
    """

    plan: dict[str, Any]
    run: str
    log: str
    used: list[int]
    answers: list[dict[str, Any]]
    without_cards: list[dict[str, Any]]


class CardsFleet(TinyFleet):
    """One machine with cards, whose one service changes."""

    gpus = CARDS

    def serve(self, name: str, flags: dict[str, Any] | None = None) -> None:
        """Writes the fleet with a service of SERVED. flags: what it has beside."""
        kind, more = SERVED[name]
        service = {"model": name_of(kind), "quick_build": True, "context": 8192, "concurrency": SLOTS}
        service["gpus"] = [0, 1, 2, 3]
        flags = {"--verbosity": 4, "--cache-ram": 0, **more.get("flags", {}), **(flags or {})}
        self.describe_services({"chat": {**service, **more, "flags": flags}}, self.hub.url, self.more())

    def kept(self) -> Path:
        """Where the build is kept that an apply has compiled with the lab's compiler, which this is called after."""
        return cache_folder() / "tests" / f"llama-for-simulated-{ensure().name}.tar.gz"

    def keep_build(self) -> None:
        """Keeps what was compiled, and no build of another compiler."""
        for other in self.kept().parent.glob("llama-for-simulated-*"):
            other.unlink()
        with self.kept().open("wb") as file:
            self.piped(f"tar -C {layout.BUILDS} -cz .", stdout=file)

    def give_build(self) -> None:
        """Puts it on the machine, as built there: an apply then compiles nothing."""
        with self.kept().open("rb") as file:
            self.piped(f"mkdir -p {layout.BUILDS}; tar -C {layout.BUILDS} -xz", stdin=file)
        built = f'"built_by": "{self.host.name}"'
        self.host.tell(f'sed -i \'s/"built_by": "[^"]*"/{built}/\' {layout.BUILDS}/*/manifest.json')

    def piped(self, command: str, **streams: Any) -> None:
        """Runs a command on the machine with bytes as input or output."""
        words = ["ssh", "-F", str(self.lab.folder.ssh_config), self.host.name, command]
        subprocess.run(words, check=True, timeout=120, **streams)

    def more(self) -> str:
        """What group_data has beside: the lab's repository of drivers, and that the host compiles for itself."""
        said = {**settings(self.host.machine.record.suite), "builder": None}
        return "".join(f"{key} = {value!r}\n" for key, value in said.items())

    def command(self) -> list[str]:
        """The words of the service's process."""
        pid = self.host.tell("systemctl show --property=MainPID --value rigup-chat")
        return self.host.tell(f"tr '\\0' '\\n' </proc/{pid}/cmdline").splitlines()

    def start_log(self) -> str:
        """What the engine has said since it was started last."""
        run = self.host.tell("systemctl show --property=InvocationID --value rigup-chat")
        return self.host.tell(f"journalctl -o cat _SYSTEMD_INVOCATION_ID={run}")

    def used(self) -> list[int]:
        """MiB that nvidia-smi says are in use, by card."""
        query = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits"
        return [int(line) for line in self.host.tell(query).splitlines()]

    def answers(self, port: int) -> list[dict[str, Any]]:
        """To each prompt, with the likeliest token each time."""
        asked = {"n_predict": TOKENS, "temperature": 0, "n_probs": 1, "cache_prompt": False, "ignore_eos": True}
        curl = f"curl -sS -m 300 -H 'Content-Type: application/json' -d @- http://127.0.0.1:{port}/completion"
        found = []
        for prompt in PROMPTS:
            body = json.dumps({"prompt": prompt, **asked})
            found.append(json.loads(self.host.machine.ssh(curl, input=body, timeout=320, check=True).stdout))
        return found

    def answers_without_cards(self) -> list[dict[str, Any]]:
        """Of the same program with the same options, but for those about cards."""
        words, rest = self.command(), []
        given = iter(words)
        for word in given:
            if word in OF_CARDS:
                next(given)
            else:
                rest.append(word)
        rest[rest.index("--port") + 1] = "8100"
        rest += ["--device", "none", *(["--spec-draft-device", "none"] if "--spec-draft-model" in rest else [])]
        self.host.tell(shlex.join(["systemd-run", "--quiet", "--collect", "--unit=no-cards", *rest]))
        try:
            wait_for(lambda: self.host.says("curl -sf http://127.0.0.1:8100/health"), "the server without cards")
            return self.answers(8100)
        finally:
            self.host.tell("systemctl stop no-cards")


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CardsFleet]:
    """One bare machine with four cards, and a fleet with the toolkit's lock and the tiny models."""
    root = tmp_path_factory.mktemp("fleet")
    shutil.copy(toolkit_root() / "rigup.lock", root / "rigup.lock")
    kinds = sorted({kind for kind, _ in SERVED.values()})
    for kind in kinds:
        write_gguf(root / "served" / repo_of(kind) / f"{name_of(kind)}-F16.gguf", kind)
    with made_fleet(CardsFleet, "cards", root, root / "served", hosts=1, disk=DISK, rig=CARDS) as fleet:
        if fleet.kept().exists():
            fleet.give_build()
        services = {
            kind.replace("_", "-"): {
                "model": name_of(kind),
                "quick_build": True,
                "port": 8000 + card,
                "gpus": [card],
                "flags": {"--cache-ram": 0},
            }
            for card, kind in enumerate(kinds)
        }
        fleet.gpus = f"{len(kinds)}x RTX 3090"
        fleet.add_and_lock([repo_of(kind) for kind in kinds], services, fleet.more())
        fleet.gpus = CARDS
        yield fleet


@pytest.fixture(scope="module")
def served(fleet: CardsFleet) -> dict[str, Served]:
    """Every service in turn, each applied."""
    found = {}
    for name in SERVED:
        began = time.monotonic()
        fleet.serve(name)
        (plan,) = fleet.plans().values()
        run = fleet.apply("--reboot", seconds=COLD_SECONDS)
        if not fleet.kept().exists():
            fleet.keep_build()
        used, log, answers = fleet.used(), fleet.start_log(), fleet.answers(8000)
        found[name] = Served(plan, run.text, log, used, answers, fleet.answers_without_cards())
        print(f"{name}: {time.monotonic() - began:.0f} s, {used} MiB, {[answer['content'] for answer in answers]}")
    return found


def repo_of(kind: str) -> str:
    return f"example/{name_of(kind)}-GGUF"


def chances(answer: dict[str, Any]) -> list[float]:
    return [token["logprob"] for token in answer["completion_probabilities"]]


@pytest.mark.parametrize("name", SERVED)
def test_answers_are_those_of_the_processor(name: str, served: dict[str, Served]) -> None:
    with_cards, without = served[name].answers, served[name].without_cards
    assert [answer["content"] for answer in with_cards] == [answer["content"] for answer in without]
    for one, other in zip(with_cards, without, strict=True):
        assert chances(one) == pytest.approx(chances(other), abs=TOLERANCE.get(name, 1e-4))


@pytest.mark.parametrize("name", SERVED)
def test_the_log_and_nvidia_smi_say_what_each_card_holds(name: str, served: dict[str, Served]) -> None:
    buffers = BUFFER.findall(served[name].log)
    for card, used in enumerate(served[name].used):
        held = [float(mib) for number, _, mib in buffers if int(number) == card and float(mib)]
        assert sum(held) - 0.01 * len(held) <= used <= sum(held) + PAGE_MIB * len(held)
    assert {int(number) for number, part, _ in buffers if part == "compute"} == {0, 1, 2, 3}


@pytest.mark.parametrize("name", SERVED)
def test_each_card_holds_what_the_plan_says(name: str, served: dict[str, Served]) -> None:
    """Caches and states to the MiB, and no more weights and buffers than planned."""
    found = {part: [0.0] * 4 for part in ("model", "KV", "RS", "state", "compute")}
    for number, part, mib in BUFFER.findall(served[name].log):
        found[part][int(number)] += float(mib)
    for gpu in served[name].plan["memory"]:
        card = gpu["gpu"]
        kept = sum(found[part][card] for part in ("KV", "RS", "state"))
        assert kept == pytest.approx(gpu["kv_cache_mib"], abs=1)
        assert found["model"][card] == pytest.approx(gpu["weights_mib"], abs=1)
        process = FIGURES.process_bytes("b11434", frozenset(), experts=False, ranks=1)
        runtime_mib = (FIGURES.reserve_bytes(gpu["capacity_mib"] * MIB) + process) / MIB
        assert found["compute"][card] <= gpu["overhead_mib"] - runtime_mib


@pytest.mark.parametrize("name", SERVED)
def test_the_judge_says_beforehand_what_the_fullest_card_then_holds(name: str, served: dict[str, Served]) -> None:
    """To a tenth of a GiB, which is how it says it."""
    lines = [line for line in served[name].run.splitlines() if " the plan" in line]
    (said,) = re.findall(r"takes the plan: [\d.]+ GiB \((.*?)\) on the fullest GPU", "".join(lines)) or lines
    weights, cache, buffers, _ = (float(number) for number in re.findall(r"[\d.]+", said))
    held: dict[str, list[float]] = {}
    for number, part, mib in BUFFER.findall(served[name].log):
        kind = 0 if part == "model" else 2 if part == "compute" else 1
        held.setdefault(number, [0.0] * 3)[kind] += float(mib) / 1024
    assert any((weights, cache, buffers) == pytest.approx(card, abs=0.06) for card in held.values()), (said, held)


def test_what_llama_cpp_refuses_changes_nothing(fleet: CardsFleet, served: dict[str, Served]) -> None:
    *_, last = SERVED
    release = fleet.host.tell("readlink /etc/rigup/services/chat/current")
    asked = fleet.rigup("plan", "--ask", fleet.host.name, "--json", seconds=COLD_SECONDS)
    (said,) = asked.json["hosts"][0]["services"]
    assert (said["asked"], said["refusal"], said["failed"]) == (True, "", "")
    assert said["kv_cache_mib"] > 0 and said["buffers_mib"] > 0

    fleet.serve(last, {"--override-kv": "no-such-kind"})
    (error,) = fleet.apply(expect=1).json["hosts"][0]["errors"]
    assert 'refuses chat: error while handling argument "--override-kv"' in error["message"]
    assert error["hint"].endswith('allow = ["engine-judgement"]')
    assert fleet.host.tell("readlink /etc/rigup/services/chat/current") == release


def test_a_build_that_has_no_judge_is_served_all_the_same(fleet: CardsFleet, served: dict[str, Served]) -> None:
    """As every build is that an earlier rigup compiled."""
    fleet.host.tell(f"rm {layout.BUILDS}/*/bin/{JUDGE}")
    fleet.serve(next(iter(SERVED)), {"--cache-reuse": 256})
    assert "its build has no judge" in fleet.apply().text


def test_a_cache_that_no_card_has_room_for_is_named(fleet: CardsFleet, served: dict[str, Served]) -> None:
    """The plan would refuse it, so that a drop-in of the machine's asks for it."""
    words = fleet.command()
    words[words.index("--ctx-size") + 1] = str(TOO_MANY_TOKENS)
    words[words.index("--tensor-split") + 1] = "1,0,0,0"
    lines = f"[Service]\nExecStart=\nExecStart={shlex.join(words)}\n"
    fleet.host.machine.ssh(f"mkdir -p {DROP_IN.rpartition('/')[0]}; cat > {DROP_IN}", input=lines, check=True)
    fleet.serve(next(iter(SERVED)))
    (error,) = fleet.apply(expect=1).json["hosts"][0]["errors"]
    assert re.search(r"allocating \d+\.\d+ MiB on device 0: cudaMalloc failed: out of memory", error["message"])
