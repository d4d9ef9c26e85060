"""The pinned llama.cpp serves a tiny model of each class of attention, one of them with another that drafts for it.

The engine's log says what the plan said.

From `model add` to an answer on a booted machine. Only the checkpoints are made up (tests/tiny), and the hub a stand-in
of what a published repository is. The build comes from this user's cache, or is compiled.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rigup.project.inventory import toolkit_root
from rigup.units import MIB
from tests.lab.fleet_fixtures import made_fleet
from tests.slow.tiny_fleet import TinyFleet
from tests.tiny.checkpoint import CLASSES, name_of, write_gguf

pytestmark = [pytest.mark.slow, pytest.mark.lab, pytest.mark.rests_on("llama.cpp's package")]
COLD_SECONDS = 2400
SLOTS = 2
# The service whose model, TARGET, has DRAFT to draft for it.
DRAFTED, TARGET, DRAFT = "drafted", "full", "sliding_window"
# Longer than Llama 4's chunk, which is the same in every file.
CONTEXTS = {"chunked_local": 20_480}
# Weights that the log has twice: on a CPU, llama.cpp keeps a second copy of tensors of these types in an order that
# its kernels like (ggml/src/ggml-cpu/repack.cpp), beside the mapped file, whose pages the kernel can drop.
REPACKED = {"compressed_sparse": "experts in MXFP4"}
CACHE = re.compile(r"(?:KV|RS|state) buffer size = +([\d.]+) MiB")
WEIGHTS = re.compile(r"CPU_Mapped model buffer size = +([\d.]+) MiB")
COPY = re.compile(r"CPU_REPACK model buffer size = +([\d.]+) MiB")
# Two decimals of each figure, and tensors that begin at a multiple of 32 bytes.
ROUNDING, PADDING = 0.005, 0.001


@dataclass(frozen=True)
class Served:
    """What is served of one class: its plan, the engine's log, and the first answer."""

    plan: dict[str, Any]
    log: str
    answer: dict[str, Any]


def service_of(kind: str) -> str:
    return kind.replace("_", "-")


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyFleet]:
    """One bare machine, a hub with a repository for each class, and a fleet with the toolkit's lock."""
    root = tmp_path_factory.mktemp("fleet")
    shutil.copy(toolkit_root() / "rigup.lock", root / "rigup.lock")
    for kind in CLASSES:
        write_gguf(root / "served" / repo_of(kind) / f"{name_of(kind)}-F16.gguf", kind)
    with made_fleet(TinyFleet, "classes", root, root / "served", hosts=1) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def served(fleet: TinyFleet) -> dict[str, Served]:
    """By class, after `model add` and `lock`, one `plan` and one `apply` for all of them."""
    flags = {"--verbosity": 4, "--cache-ram": 0}
    services = {
        service_of(kind): {
            "model": name_of(kind),
            "quick_build": True,
            "context": CONTEXTS.get(kind, 4096),
            "concurrency": SLOTS,
            "port": 8000 + number,
            "flags": flags,
        }
        for number, kind in enumerate(CLASSES)
    }
    services[DRAFTED] = {
        **services[service_of(TARGET)],
        "speculative": {"kind": "draft", "model": repo_of(DRAFT)},
        "port": 8000 + len(CLASSES),
    }
    began = time.monotonic()
    fleet.add_and_lock([repo_of(kind) for kind in CLASSES], services)
    plans, locked = fleet.plans(), time.monotonic()
    (result,) = fleet.apply(seconds=COLD_SECONDS).json["hosts"]
    print(f"add, lock and plan {locked - began:.0f} s, apply {time.monotonic() - locked:.0f} s")
    answers = {answer["service"]: answer for answer in result["answers"]}
    return {
        kind: Served(plans[name], fleet.log_of(name), answers[name])
        for kind in (*CLASSES, DRAFTED)
        for name in (service_of(kind),)
    }


def repo_of(kind: str) -> str:
    return f"example/{name_of(kind)}-GGUF"


@pytest.mark.parametrize("kind", [*sorted(CLASSES), DRAFTED])
def test_the_log_says_what_the_plan_says(kind: str, served: dict[str, Served]) -> None:
    plan, log = served[kind].plan, served[kind].log
    assert plan["verdict"] == "ok" and served[kind].answer["tokens_per_second"] > 0
    weights, caches = [sum(map(float, found.findall(log))) for found in (WEIGHTS, CACHE)]
    copied, parts = COPY.findall(log), plan["host_memory_parts"]
    print(f"{kind}: weights {weights:.2f} MiB, caches {caches:.2f} MiB; planned {parts}")
    assert weights == pytest.approx(parts["weights"] / MIB, abs=ROUNDING + PADDING)
    assert caches == pytest.approx(parts["kv_cache"] / MIB, abs=ROUNDING * len(CACHE.findall(log)))
    assert bool(copied) == (kind in REPACKED)


def test_tokens_are_drafted(served: dict[str, Served]) -> None:
    """Weights and caches of both models are in one log, which the plan has counted together."""
    alone, both = served[TARGET].plan["host_memory_parts"], served[DRAFTED].plan["host_memory_parts"]
    assert both["weights"] > alone["weights"] and both["kv_cache"] > alone["kv_cache"]
    assert len(WEIGHTS.findall(served[DRAFTED].log)) == 2
    generated = re.search(r"draft acceptance = +[\d.]+ \( *\d+ accepted / +(\d+) generated\)", served[DRAFTED].log)
    assert generated and int(generated[1]) > 0 and "draft acceptance" not in served[TARGET].log


def test_a_second_apply_changes_nothing(fleet: TinyFleet, served: dict[str, Served]) -> None:
    assert fleet.apply().json["hosts"][0]["state"] == "unchanged"
    rows = fleet.rigup("status", "--json").json["services"]
    assert {row["service"]: (row["health"], row["drift"]) for row in rows} == {
        service_of(kind): ("answers", "none") for kind in served
    }
