"""What a host says, whatever it says: a typed result or one error, in bounded time and memory, and nothing falls over.

What is read is then shown and compared as the verbs do it, since a wrong type does its harm there.
"""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rigup.cli import log
from rigup.cli.output.console import Console
from rigup.cli.output.status_rows import row, set_states
from rigup.cli.page.collect import _facts, _releases, _versions
from rigup.cli.page.report_page import _probe, _record
from rigup.cli.releases import _json, show
from rigup.cli.status import table
from rigup.errors import RigupError
from rigup.facts import apply_records, engine_memory, network
from rigup.facts.bounds import Unreadable
from rigup.facts.manifest import read_manifest
from rigup.facts.probe import Probe, ProbedGpu, parse
from rigup.facts.probe_parsing import MOST_LINES
from rigup.operations.primitives.units import UnitStates
from rigup.operations.service.gpu_binding import bind
from rigup.operations.service.history import newest, parse_kept
from rigup.operations.service.releases import CurrentRelease
from rigup.plan import Parallel
from rigup.preflight.checks import preflight
from rigup.report.redaction import Redactor, secrets_within
from rigup.run.drift import drift_of
from rigup.run.drift_probe import read_check
from rigup.run.measured_memory import rows
from rigup.run.prune import read_leftovers, removals
from rigup.run.result import HostResult
from tests.hostile import HOSTILE, mangled, numbers, read_safely, texts, values
from tests.unit.preflight.test_checks import PLAN

MANIFEST = {
    "build": "llama.cpp-b1-abc",
    "checkpoint": {"repo": "a/b", "quant": "Q4", "revision": "0123456789abcdef"},
    "command": ["bin/llama-server", "--api-key", "x", "--ctx-size=8192"],
    "environment": {"CUDA_VISIBLE_DEVICES": "GPU-1"},
    "gpus": [[0, "GPU-1"]],
    "set": {"id": "x", "nodes": [{"host": "a", "address": "10.0.0.1", "interface": "eth0", "rdma_devices": ["m"]}]},
}
GPU = {
    "gpu": 0,
    "name": "NVIDIA GeForce RTX 3090",
    "uuid": "GPU-1",
    "bus": "00000000:01:00.0",
    "memory_total_mib": 24576,
    "memory_used_mib": 10,
    "memory_reserved_mib": 300,
    "compute_capability": "8.6",
    "temperature_c": 40,
    "power_limit_w": 350.0,
    "persistence": True,
    "throttled": ["power"],
    "nvlinks": 4,
    "fabric": "completed",
}
NVML = [
    {"system": {"driver": "580.95.05", "cuda": "13.0"}},
    GPU,
    {"gpu": 1, "error": "GPU is lost"},
    {"pair": [0, 1], "path": "node", "peer": True, "nvlink": None},
    {"error": "no driver"},
]
WORDS = {
    "clock": "1800000000",
    "cpus": "8",
    "memory_kib": "131072000",
    "disk": "/opt yes 100 50 /",
    "numa": "0 1024 0-7",
    "port": "8000 0.0.0.0 rigup-chat.service|llama",
    "kernel_installed": "6.1.0-10-amd64",
    "headers": "6.1.0-9-amd64",
    "incoming": "/var/lib/x 12",
    "kept_wheels": "yes",
    "built_for": 'b {"cuda": "13.0", "compute_capabilities": ["8.6"]}',
    "service": "chat 3",
    "systemd": "NRestarts=3",
    "package": "ii |nvidia-driver|580",
    "apt": 'A::B "x";',
    "driver": "NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue",
    "library": "libnvidia-ml.so.580",
    "pci": "0000:01:00.0 0x030000 0x2204 0",
    "card": "0000:01:00.0 GPU-1 NVIDIA",
}
SLOW = settings(suppress_health_check=list(HealthCheck))
json_texts = st.one_of(values.map(json.dumps), texts)


def documents(value: Any) -> st.SearchStrategy[str]:
    return st.one_of(mangled(value).map(json.dumps), json_texts)


lines = st.one_of(
    st.sampled_from([f"{key} {rest}" for key, rest in WORDS.items()]),
    st.tuples(st.sampled_from(list(WORDS)), texts).map(" ".join),
    st.sampled_from(NVML).flatmap(mangled).map(lambda said: f"nvml {said!r}"),
    documents(MANIFEST).map(lambda text: f"release chat {text}"),
    texts,
)


@SLOW
@given(st.lists(lines, max_size=12))
def test_a_probe(said: list[str]) -> None:
    probe = read_safely(lambda: parse(["os debian-12", "init systemd", *said]), raises=Unreadable)
    if probe is not None:
        read_safely(lambda: used(probe))


def used(probe: Probe) -> None:
    """A probe as the verbs use it."""
    assert isinstance(probe, Probe) and all(
        isinstance(gpu, ProbedGpu) and isinstance(gpu.name, str) for gpu in probe.gpus
    )
    (plan,) = bind((PLAN,), probe)
    drift = drift_of(probe, (plan,), {"chat": MANIFEST})
    preflight(probe, (plan,), 0.0)
    result = HostResult("gpu1", probe=probe)
    found = [row(result, plan, drift) | {"memory": rows(plan, probe, ())}]
    set_states([result], found)
    console = Console(file=io.StringIO(), width=120)
    console.print(table(found))
    json.dumps(found), json.dumps(probe.as_json(), allow_nan=False)
    list(_facts(probe)), list(_versions(probe, (plan,)))
    _probe(Redactor(secrets_within(probe.releases)).value(probe.as_json()), {})


@SLOW
@given(st.lists(st.tuples(st.sampled_from(["3", "x", "9" * 5000, "²"]), documents(MANIFEST)), max_size=5), texts)
def test_kept_releases(said: list[tuple[str, str]], other: str) -> None:
    text = "\n".join(f"release chat {number} 1800000000 current answered {number} - {of}" for number, of in said)
    kept = read_safely(lambda: parse_kept(f"{text}\n{other}\nrelease {other}"), raises=Unreadable)
    for releases in (kept or {}).values():
        assert all(isinstance(release.number, int) and isinstance(release.manifest, dict) for release in releases)
        assert not any(release.damage and release.answered for release in releases)
        show("gpu1", {"chat": releases}, Console(file=io.StringIO()))
        json.dumps(_json(releases)), _releases(releases), newest(releases)


@SLOW
@given(documents(MANIFEST))
def test_a_manifest(text: str) -> None:
    found = read_safely(lambda: read_manifest(text, "/etc/x/release.json"), "/etc/x/release.json", raises=Unreadable)
    assert found is None or isinstance(found, dict)


LINKS = [
    {
        "ifname": "eth0",
        "flags": ["UP", "LOWER_UP"],
        "operstate": "UP",
        "mtu": 1500,
        "addr_info": [{"local": "10.0.0.1", "prefixlen": 24}],
    }
]
network_lines = st.one_of(
    st.tuples(st.sampled_from(["ssh", "addresses", "speed", "rdma", "gid", "behind"]), texts).map(" ".join),
    st.sampled_from(["ssh 1 2 3 4", "rdma mlx5_0 1 Ethernet 4: ACTIVE", "rdma mlx5_0 2 x y z", "behind mlx5_0 e x"]),
)


@SLOW
@given(documents(LINKS), st.lists(network_lines, max_size=5))
def test_a_network(listed: str, said: list[str]) -> None:
    found = read_safely(lambda: network.parse([f"addresses {listed}", *said]), raises=Unreadable)
    if found is not None:
        assert all(isinstance(each.mtu, int) and isinstance(each.name, str) for each in found.interfaces)
        found.rdma_devices("eth0"), found.holder("10.0.0.1"), str(found)


RECORD: dict[str, Any] = {
    **dict.fromkeys(("host", "when", "who", "verb", "result", "rigup", "lock", "commit"), "x"),
    **{"schema": 1, "seconds": 1.0, "services": {"a": "b"}, "changes": ["a"], "errors": ["b"]},
    "memory": {"chat": {"gpus": [{"measured_mib": 1, "planned_mib": 2}]}},
}


@SLOW
@given(st.lists(documents(RECORD), max_size=4))
def test_records_of_applies(said: list[str]) -> None:
    found = read_safely(lambda: apply_records.parse("\n".join(said)))
    for record in found:
        log.show(record, Console(file=io.StringIO()))
    for text in said:
        _record(text, {})


LEFT: dict[str, Any] = {
    **{"builds": {"b": {"bytes": 1, "image": ""}}, "unfinished": {"/x": 1}, "packages": 0, "weights": {"/w": 2}},
    "caches": {},
    **{"incoming": {}, "needed_builds": ["c"], "needed_weights": [], "running": [], "jobs": ["rigup-build-x"]},
}


@SLOW
@given(documents(LEFT))
def test_what_is_left_over(text: str) -> None:
    found = read_safely(lambda: read_leftovers(text), "leftovers", raises=Unreadable)
    assert found is None or all(isinstance(one.text, str) for one in removals(found, [], []))


@SLOW
@given(documents({"missing": ["a"], "bad": ["b"]}))
def test_a_check_of_weights(text: str) -> None:
    found = read_safely(lambda: read_check(text, "gpu1: x"), "gpu1: x", raises=RigupError)
    assert found is None or all(isinstance(name, str) for name in found.missing + found.bad)


MEMORY = (
    "Model loading took {} GiB",
    "#tokens: {}, K size: {} GB, V size: {} GB",
    "GPU KV cache size: {} tokens",
    "CUDA{} model buffer size = {} MiB",
    "llama_kv_cache: size = 1 ( {} cells, 3 layers, 1/{} seqs)",
    "(Worker_TP{} pid=7) Available KV cache memory: {} GiB",
)
figures = st.one_of(numbers.map(lambda number: str(number) if abs(number) < 10**99 else "9" * 5000), texts)


@SLOW
@given(st.lists(st.tuples(st.sampled_from(MEMORY), figures), max_size=6))
def test_memory_in_an_engines_log(said: list[tuple[str, str]]) -> None:
    log_lines = [form.replace("{}", figure) for form, figure in said]
    found = read_safely(lambda: engine_memory.read_log(log_lines, Parallel(), 2))
    assert all(part.weights_mib is None or 0 <= part.weights_mib < 1e13 for part in found)


@SLOW
@given(st.lists(texts, max_size=6))
def test_units_and_current_releases(said: list[str]) -> None:
    read_safely(lambda: UnitStates().process(["Id=a", *said]))
    read_safely(lambda: CurrentRelease().process(said))


@pytest.mark.parametrize(
    "said",
    [
        [f"nvml {GPU | {'gpu': number}!r}" for number in range(10_000)],
        ["x"] * (MOST_LINES + 1),
        [f"service chat{number} 1" for number in range(1001)],
        ["nvml " + "[" * 100_000],
        ["nvml " + "-" * 16_000 + "1"],
        [f"nvml {GPU | {'name': ['x']}!r}"],
        [f"nvml {GPU | {'memory_used_mib': 10**30}!r}"],
        [f"nvml {GPU | {'power_limit_w': float('1e300')}!r}"],
        ["nvml [1]"],
    ],
    ids=["GPUs", "lines", "services", "nested", "signs", "name", "memory", "power", "list"],
)
def test_what_nvml_cannot_have_said_is_one_error(said: list[str]) -> None:
    assert read_safely(lambda: parse(said), "", raises=Unreadable) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "expected an object, found a list"),
        ("", "empty"),
        ("{", "not JSON: Expecting property name enclosed in double quotes at character 1"),
        ('{"command": [1]}', "command.0: expected a string, found a number"),
        ('{"command": ["serve", "--port", "8000; id"]}', 'command: --port: "8000; id" is not a port'),
        ('{"command": ["serve", "--host", "::1; id"]}', 'command: --host: "::1; id" is not an IP address'),
        ('{"x": Infinity}', "Infinity is not a number"),
        ('{"x": 1e999}', "the number 1e999 is too large"),
        ("[" * 100_000, "nested deeper than 24 levels"),
        (f'{{"x": "{"y" * 2_000_000}"}}', "longer than 1,048,576 characters"),
        (json.dumps([0] * 60_000), "more than 50,000 values"),
    ],
)
def test_a_damaged_release_is_said_with_its_path(text: str, problem: str) -> None:
    path = "/etc/rigup/services/chat/current/release.json"
    assert parse([f"release chat {text}"]).damaged == {"chat": f"{path}: {problem}"}
    with pytest.raises(Unreadable, match=r"^document: "):
        read_manifest(text, "document")


def test_texts_of_a_probe_are_printable() -> None:
    probe = parse([f"os_name {HOSTILE.splitlines()[0]}", f"nvml {GPU | {'name': HOSTILE}!r}"])
    assert "\x1b" not in probe.os_name + probe.gpus[0].name and "before" in probe.gpus[0].name
