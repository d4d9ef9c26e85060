"""Raw values into nouns: what is understood, and the exact message for everything that is not."""

from __future__ import annotations

from typing import Any

import pytest

from rigup.errors import InputError
from rigup.node import Network
from rigup.planner.inputs.names import resolve
from rigup.planner.inputs.rig_and_services import read_rig, read_services
from rigup.rig import Rig
from tests.unit.planner.asking import catalogue
from tests.unit.planner.inputs.texts import (
    ADDRESSES,
    KIND,
    LIST,
    NAME_LIST,
    NO_ADDRESS,
    NUMBER,
    ONE_OF,
    RANGE,
    SWITCH,
    TABLE,
    WHOLE,
)

FILE = "group_data/quad_3090.py"
MODEL = {"model": "MiniMax-M2.5"}


def rig(data: object) -> Rig:
    return read_rig(data, FILE, catalogue())


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        ("4x RTX 3090", ["NVIDIA GeForce RTX 3090"] * 4),
        ("2 x rtx 4090", ["NVIDIA GeForce RTX 4090"] * 2),
        ("B200", ["NVIDIA B200"]),
        (["H200", "2x RTX 3090"], ["NVIDIA H200", "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090"]),
        (("B200", "B200"), ["NVIDIA B200"] * 2),
        ([], []),
        ("none", []),
    ],
)
def test_gpus_are_named_as_people_name_them(gpus: object, names: list[str]) -> None:
    assert [gpu.name for gpu in rig({"gpus": gpus}).gpus] == names


def test_a_rig_keeps_what_it_is_told() -> None:
    read = rig({"gpus": "RTX 3090", "host_memory_gib": 64, "os": "debian-12"})
    assert (read.host_memory_gib, read.os) == (64, "debian-12")


def test_a_rig_may_be_several_hosts() -> None:
    read = rig({"gpus": "1x GB10", "hosts_per_service": 2, "network": {"subnet": "192.168.100.0/24"}})
    assert (read.hosts_per_service, read.network) == (2, Network(private=True, subnet="192.168.100.0/24"))
    assert rig({"gpus": []}).hosts_per_service == 1


EXAMPLE = 'write it like rig = {"gpus": "4x RTX 3090"}'
BAD_RIGS: dict[str, tuple[object, str, str]] = {
    "not a table": ("4x RTX 3090", f'rig: {TABLE}, not "4x RTX 3090"', EXAMPLE),
    "no gpus": ({}, "rig.gpus: missing", EXAMPLE + ", or [] for a machine without GPUs"),
    "unknown key": ({"gpu": "B200"}, "rig.gpu: unknown key", 'try "gpus"'),
    "key like no other": (
        {"gpus": [], "zzz": 1},
        "rig.zzz: unknown key",
        "choose from: gpus, host_memory, host_memory_gib, hosts_per_service, network, os, power_limit_w",
    ),
    "no host for a service": (
        {"gpus": [], "hosts_per_service": 0},
        "rig.hosts_per_service: must be at least 1, not 0",
        RANGE,
    ),
    "a network in words": (
        {"gpus": [], "network": "10.0.0.0/8"},
        f'rig.network: {TABLE}, not "10.0.0.0/8"',
        KIND,
    ),
    "an unknown key of the network": (
        {"gpus": [], "network": {"privat": True}},
        "rig.network.privat: unknown key",
        'try "private"',
    ),
    "an address for a subnet": (
        {"gpus": [], "network": {"subnet": "192.168.100.1/24"}},
        'rig.network.subnet: "192.168.100.1/24" is not a network',
        'write it like "192.168.100.0/24"',
    ),
    "a subnet of IPv6": (
        {"gpus": [], "network": {"subnet": "fd00::/64"}},
        'rig.network.subnet: "fd00::/64" is not an IPv4 network, which engines across hosts need',
        'write it like "192.168.100.0/24"',
    ),
    "unknown GPU": (
        {"gpus": ["RTX 3090", "RTX 3090", "RTX 3900"]},
        'rig.gpus[2]: unknown GPU "RTX 3900"',
        'try "RTX 3090"',
    ),
    "unknown GPU in text": ({"gpus": "4x RTX 3900"}, 'rig.gpus: unknown GPU "RTX 3900"', 'try "RTX 3090"'),
    "GPU like no other": (
        {"gpus": "Voodoo"},
        'rig.gpus: unknown GPU "Voodoo"',
        "name a known GPU, or add this one to catalogue/gpus/",
    ),
    "ambiguous GPU": (
        {"gpus": "2x H100"},
        'rig.gpus: "H100" is ambiguous',
        'write one of "H100 80GB HBM3", "H100 PCIe"',
    ),
    "number for gpus": (
        {"gpus": 4},
        f"rig.gpus: {NAME_LIST}, not 4",
        EXAMPLE,
    ),
    "number in gpus": ({"gpus": ["B200", 1]}, "rig.gpus[1]: must be a GPU's name, not 1", EXAMPLE),
    "no GPU counted": (
        {"gpus": "0x B200"},
        'rig.gpus: "0x B200" asks for no GPU',
        "write [] for a machine without GPUs",
    ),
    "too many": ({"gpus": "65x B200"}, "rig.gpus: 65 GPUs are more than one host can have", "write at most 64"),
    "too many in all": (
        {"gpus": ["40x B200", "40x B200"]},
        "rig.gpus: 80 GPUs are more than one host can have",
        "write at most 64",
    ),
    "memory as text": (
        {"gpus": [], "host_memory_gib": "64"},
        f'rig.host_memory_gib: {NUMBER}, not "64"',
        KIND,
    ),
    "no memory": (
        {"gpus": [], "host_memory_gib": 0},
        "rig.host_memory_gib: must be more than 0, not 0",
        RANGE,
    ),
    "memory for a city": (
        {"gpus": [], "host_memory_gib": 1e9},
        "rig.host_memory_gib: must be at most 65536, not 1000000000.0",
        RANGE,
    ),
    "memory is a set": (
        {"gpus": [], "host_memory_gib": {64}},
        "rig.host_memory_gib: {64} is not a plain value",
        "use text, numbers, True, False, lists and tables",
    ),
    "other system": (
        {"gpus": [], "os": "debian-11"},
        'rig.os: "debian-11" is not supported',
        "use one of: debian-12, debian-13, ubuntu-22.04, ubuntu-24.04, ubuntu-26.04",
    ),
    "system is a number": ({"gpus": [], "os": 12}, "rig.os: must be text, not 12", KIND),
}


@pytest.mark.parametrize("case", BAD_RIGS)
def test_a_bad_rig(case: str) -> None:
    data, message, hint = BAD_RIGS[case]
    with pytest.raises(InputError) as caught:
        rig(data)
    assert (caught.value.message, caught.value.hint) == (f"{FILE}: {message}", hint)


def test_a_service_needs_a_model_only() -> None:
    (service,) = read_services({"chat": MODEL}, FILE)
    assert (service.name, service.model, service.port, service.concurrency) == ("chat", "MiniMax-M2.5", 8000, 1)


def test_everything_that_can_be_said_is_read() -> None:
    said = {
        "checkpoint": "mconcat/MiniMax-M2.5-NVFP4",
        "engine": "vllm",
        "version": "0.33.0",
        "build": "wheel",
        "context": 4096,
        "kv_cache_type": "fp8",
        "concurrency": 64,
        "tensor_parallel": 1,
        "pipeline_parallel": 3,
        "data_parallel": 1,
        "expert_parallel": False,
        "offload": "none",
        "gpus": [0, 1, 2],
        "listen": "127.0.0.1",
        "port": 8000,
        "api_key_file": "secrets/minimax.key",
        "served_name": "minimax-m2.5",
        "tools": True,
        "reasoning": True,
        "sampling": {"temperature": 0.7},
        "flags": {"--enforce-eager": True, "--max-num-seqs": 64, "--served-model-name": ["a", "b"]},
        "environment": {"A": "b"},
        "allow": ["rule-id"],
    }
    (service,) = read_services({"minimax": said}, FILE, rig({"gpus": "3x RTX 3090"}))
    assert {key: service.model_dump()[key] for key in said} == {**said, "gpus": (0, 1, 2), "allow": ("rule-id",)}


def test_services_keep_their_order() -> None:
    names = ["zeta", "alpha", "mid"]
    services = read_services({name: {**MODEL, "port": 8000 + n} for n, name in enumerate(names)}, FILE)
    assert [service.name for service in services] == names


S = "services.chat"
LOCK_OR_ADD = "rigup lock, or rigup model add"
THERE = "choose from GPUs 0 to 3"
NO_PATH = "not an absolute path of letters, digits and _ + @ = . - without .."
BAD_SERVICES: dict[str, tuple[Any, str, str]] = {
    "unknown key": ({**MODEL, "contxt": 1}, f"{S}.contxt: unknown key", 'try "context"'),
    "named twice": (
        {**MODEL, "name": "x"},
        f"{S}.name: unknown key",
        'leave it out: the service is already called "chat"',
    ),
    "nothing to serve": (
        {"port": 1},
        f'{S}: neither "model" nor "checkpoint" is set',
        'write it like services = {"chat": {"model": "MiniMax-M2.5"}}',
    ),
    "speculative of another kind": (
        {**MODEL, "speculative": "medusa"},
        f'{S}.speculative.kind: {ONE_OF} mtp, eagle, draft, not "medusa"',
        "choose from: draft, eagle, mtp",
    ),
    "speculative is a number": (
        {**MODEL, "speculative": 3},
        f"{S}.speculative: must be text or a table, not 3",
        'write "mtp", or a table like {"kind": "draft", "model": "Qwen/Qwen3-0.6B", "tokens": 3}',
    ),
    "speculative of no kind": (
        {**MODEL, "speculative": {"tokens": 3}},
        f"{S}.speculative.kind: missing",
        'write "mtp", or a table like {"kind": "draft", "model": "Qwen/Qwen3-0.6B", "tokens": 3}',
    ),
    "speculative with another key": (
        {**MODEL, "speculative": {"kind": "mtp", "token": 3}},
        f"{S}.speculative.token: unknown key",
        'try "tokens"',
    ),
    "a draft model without a name": (
        {**MODEL, "speculative": "draft"},
        f"{S}.speculative.model: missing",
        'write "mtp", or a table like {"kind": "draft", "model": "Qwen/Qwen3-0.6B", "tokens": 3}',
    ),
    "a model beside MTP layers": (
        {**MODEL, "speculative": {"kind": "mtp", "model": "SmolLM2-135M-Instruct"}},
        f"{S}.speculative.model: MTP layers are in the checkpoint itself",
        "leave it out",
    ),
    "a draft model that nobody knows": (
        {**MODEL, "speculative": {"kind": "draft", "model": "SmolLM2-135M-Instruc"}},
        f'{S}.speculative.model: unknown model "SmolLM2-135M-Instruc"',
        'try "SmolLM2-135M-Instruct"',
    ),
    "a draft model that was not read yet": (
        {**MODEL, "speculative": {"kind": "eagle", "model": "org/head"}},
        f"{S}.speculative.model: org/head is not in the catalogue yet",
        f"read it from the hub: {LOCK_OR_ADD} org/head",
    ),
    "a quantisation that the draft model lacks": (
        {**MODEL, "speculative": {"kind": "draft", "model": "SmolLM2-135M-Instruct", "quant": "Q9"}},
        f'{S}.speculative.quant: unknown quantisation "Q9" of SmolLM2-135M-Instruct',
        "choose from: Q4_1",
    ),
    "too many drafts": (
        {**MODEL, "speculative": {"kind": "mtp", "tokens": 17}},
        f"{S}.speculative.tokens: must be at most 16, not 17",
        RANGE,
    ),
    "drafts in words": (
        {**MODEL, "speculative": {"kind": "mtp", "tokens": "3"}},
        f'{S}.speculative.tokens: {WHOLE}, not "3"',
        KIND,
    ),
    "model is a number": ({"model": 25}, f"{S}.model: must be text, not 25", KIND),
    "unknown model": (
        {"model": "MiniMax-M2.4"},
        f'{S}.model: unknown model "MiniMax-M2.4"',
        'try "MiniMax-M2.7"',
    ),
    "an EAGLE head as the model": (
        {"model": "lightseekorg/kimi-k2.6-eagle3-mla"},
        f"{S}.model: kimi-k2.6-eagle3-mla is an EAGLE head, which only drafts tokens for another model",
        'serve the model that it was trained for with "speculative": '
        '{"kind": "eagle", "model": "kimi-k2.6-eagle3-mla"}',
    ),
    "an EAGLE head as the checkpoint": (
        {"checkpoint": "lmsys/EAGLE3-gpt-oss-120b-bf16"},
        f"{S}.checkpoint: EAGLE3-gpt-oss-120b is an EAGLE head, which only drafts tokens for another model",
        'serve the model that it was trained for with "speculative": {"kind": "eagle", "model": "EAGLE3-gpt-oss-120b"}',
    ),
    "a model that is nearly an EAGLE head": (
        {"model": "EAGLE3-gpt-oss-120"},
        f'{S}.model: unknown model "EAGLE3-gpt-oss-120"',
        'try "gpt-oss-120b"',
    ),
    "a draft model that is nearly an EAGLE head": (
        {**MODEL, "speculative": {"kind": "eagle", "model": "EAGLE3-gpt-oss-120"}},
        f'{S}.speculative.model: unknown model "EAGLE3-gpt-oss-120"',
        'try "EAGLE3-gpt-oss-120b"',
    ),
    "unknown checkpoint": (
        {"checkpoint": "lukealonso/MiniMax-M2.5-NVFP"},
        f'{S}.checkpoint: unknown checkpoint "lukealonso/MiniMax-M2.5-NVFP"',
        'try "lukealonso/MiniMax-M2.5-NVFP4"; or add your own: ten lines in catalogue/checkpoints/',
    ),
    "a path that climbs": (
        {"checkpoint": "/models/../etc/x.gguf"},
        f'{S}.checkpoint: "/models/../etc/x.gguf" is {NO_PATH}',
        "rename the file, or correct the name",
    ),
    "a path with a line break": (
        {"checkpoint": "/models/x\nUser=root.gguf"},
        f'{S}.checkpoint: "/models/x User=root.gguf" is {NO_PATH}',
        "rename the file, or correct the name",
    ),
    "a path that nobody read": (
        {"checkpoint": "/models/x.gguf"},
        f"{S}.checkpoint: /models/x.gguf is not in the catalogue yet",
        "read it from the host: rigup lock",
    ),
    "not a name of Ollama's": (
        {"checkpoint": "ollama:Qwen3 8B"},
        f"""{S}.checkpoint: "ollama:Qwen3 8B" is not a name in Ollama's registry, like "ollama:qwen3:8b\"""",
        "rename the file, or correct the name",
    ),
    "a name of Ollama's that nobody read": (
        {"checkpoint": "ollama:library/qwen3"},
        f"{S}.checkpoint: ollama:qwen3:latest is not in the catalogue yet",
        f"read it from Ollama's registry: {LOCK_OR_ADD} ollama:qwen3:latest",
    ),
    "model against checkpoint": (
        {"model": "MiniMax-M2.1", "checkpoint": "mconcat/MiniMax-M2.5-NVFP4"},
        f"{S}.checkpoint: mconcat/MiniMax-M2.5-NVFP4 holds MiniMax-M2.5, not MiniMax-M2.1",
        "name the model or the checkpoint, not both",
    ),
    "unknown quant": (
        {**MODEL, "quant": "Q4_K_X"},
        f'{S}.quant: unknown quantisation "Q4_K_X" of MiniMax-M2.5',
        'try "Q4_K_M"',
    ),
    "unknown engine": (
        {**MODEL, "engine": "vlm"},
        f'{S}.engine: {ONE_OF} vllm, sglang, llama.cpp, not "vlm"',
        'try "vllm"',
    ),
    "unknown version": (
        {**MODEL, "version": "9.9"},
        f'{S}.version: no engine has a version "9.9"',
        "name the engine too",
    ),
    "version is a number": ({**MODEL, "version": 0.33}, f"{S}.version: must be text, not 0.33", KIND),
    "unknown build": (
        {**MODEL, "build": "docker"},
        f'{S}.build: {ONE_OF} wheel, source, image, not "docker"',
        "choose from: image, source, wheel",
    ),
    "no context": ({**MODEL, "context": 0}, f"{S}.context: must be at least 1, not 0", RANGE),
    "context as text": ({**MODEL, "context": "64k"}, f'{S}.context: {WHOLE}, not "64k"', KIND),
    "context is half": ({**MODEL, "context": 4096.5}, f"{S}.context: {WHOLE}, not 4096.5", KIND),
    "context is true": ({**MODEL, "context": True}, f"{S}.context: {WHOLE}, not True", KIND),
    "context without end": (
        {**MODEL, "context": 10**9},
        f"{S}.context: must be at most 16777216, not 1000000000",
        RANGE,
    ),
    "unknown KV type": (
        {**MODEL, "kv_cache_type": "q8"},
        f'{S}.kv_cache_type: {ONE_OF} auto, f16, bf16, fp8, q8_0, q5_1, q4_0, not "q8"',
        'try "q8_0"',
    ),
    "nobody at once": ({**MODEL, "concurrency": 0}, f"{S}.concurrency: must be at least 1, not 0", RANGE),
    "tensor of none": ({**MODEL, "tensor_parallel": 0}, f"{S}.tensor_parallel: must be at least 1, not 0", RANGE),
    "pipeline as text": (
        {**MODEL, "pipeline_parallel": "3"},
        f'{S}.pipeline_parallel: {WHOLE}, not "3"',
        KIND,
    ),
    "data below zero": ({**MODEL, "data_parallel": -1}, f"{S}.data_parallel: must be at least 1, not -1", RANGE),
    "expert as text": (
        {**MODEL, "expert_parallel": "yes"},
        f'{S}.expert_parallel: {SWITCH}, not "yes"',
        KIND,
    ),
    "unknown offload": (
        {**MODEL, "offload": "cpu"},
        f'{S}.offload: {ONE_OF} auto, none, experts, not "cpu"',
        "choose from: auto, experts, none",
    ),
    "gpus as a number": ({**MODEL, "gpus": 2}, f"{S}.gpus: {LIST}, not 2", KIND),
    "gpu is half": ({**MODEL, "gpus": [0.5]}, f"{S}.gpus[0]: 0.5 cannot be used here", "use whole number or text"),
    "gpu that is not there": ({**MODEL, "gpus": [0, 4]}, f"{S}.gpus[1]: there is no GPU 4", THERE),
    "more gpus than there are": (
        {**MODEL, "gpus": [0, 1, 2, 3, 4]},
        f"{S}.gpus: 5 GPUs are more than this rig has",
        THERE,
    ),
    "gpu twice": ({**MODEL, "gpus": [1, 1]}, f"{S}.gpus: a GPU is listed twice", "list each GPU once"),
    "no such UUID": (
        {**MODEL, "gpus": ["GPU-1", "two"]},
        f'{S}.gpus[1]: "two" is not a UUID like the others',
        "use indices or UUIDs, not both",
    ),
    "listen in words": ({**MODEL, "listen": "all"}, f'{S}.listen: "all" {NO_ADDRESS}', ADDRESSES),
    "listen is a number": ({**MODEL, "listen": 0}, f"{S}.listen: must be text, not 0", KIND),
    "port out of range": ({**MODEL, "port": 70000}, f"{S}.port: must be at most 65535, not 70000", RANGE),
    "port zero": ({**MODEL, "port": 0}, f"{S}.port: must be at least 1, not 0", RANGE),
    "drain below zero": ({**MODEL, "drain_timeout": -1}, f"{S}.drain_timeout: must be at least 0, not -1", RANGE),
    "drain without end": (
        {**MODEL, "drain_timeout": 3601},
        f"{S}.drain_timeout: must be at most 3600, not 3601",
        RANGE,
    ),
    "an answer that is a number": (
        {**MODEL, "expected_answer": 42},
        f"{S}.expected_answer: must be text, not 42",
        KIND,
    ),
    "drain as text": ({**MODEL, "drain_timeout": "2m"}, f'{S}.drain_timeout: {WHOLE}, not "2m"', KIND),
    "half a drain": ({**MODEL, "drain_timeout": 0.5}, f"{S}.drain_timeout: {WHOLE}, not 0.5", KIND),
    "a quick build as text": (
        {**MODEL, "quick_build": "yes"},
        f'{S}.quick_build: {SWITCH}, not "yes"',
        KIND,
    ),
    "tools as text": ({**MODEL, "tools": "on"}, f'{S}.tools: {SWITCH}, not "on"', KIND),
    "sampling as text": ({**MODEL, "sampling": "hot"}, f'{S}.sampling: {TABLE}, not "hot"', KIND),
    "sampling of text": (
        {**MODEL, "sampling": {"temperature": "hot"}},
        f'{S}.sampling.temperature: {NUMBER}, not "hot"',
        KIND,
    ),
    "flags as a list": ({**MODEL, "flags": ["--x"]}, f"{S}.flags: {TABLE}, not ['--x']", KIND),
    "one flag in two spellings": (
        {**MODEL, "flags": {"--max-num-seqs": 8, "--max_num_seqs": 16}},
        f'{S}.flags: "--max_num_seqs" and "--max-num-seqs" are the same option',
        "leave one of them out",
    ),
    "environment of numbers": ({**MODEL, "environment": {"A": 1}}, f"{S}.environment.A: must be text, not 1", KIND),
    "allow as text": ({**MODEL, "allow": "fp8-block"}, f'{S}.allow: {LIST}, not "fp8-block"', KIND),
}


def looked_up(services: object, gpus: object) -> None:
    """Reads services and looks up what they name."""
    for service in read_services(services, FILE):
        resolve(service, rig({"gpus": gpus}), catalogue(), FILE)


@pytest.mark.parametrize("case", BAD_SERVICES)
def test_a_bad_service(case: str) -> None:
    data, message, hint = BAD_SERVICES[case]
    with pytest.raises(InputError) as caught:
        looked_up({"chat": data}, "4x RTX 3090")
    assert (caught.value.message, caught.value.hint) == (f"{FILE}: {message}", hint)


def test_flags_are_spelled_as_the_engines_list_them() -> None:
    flags = {"--max_num_seqs": 16, "--compilation_config.cudagraph_mode": "NONE", "-ub": 1024, "-o_o": True}
    (read,) = read_services({"chat": {**MODEL, "flags": flags}}, FILE)
    assert read.flags == {
        "--max-num-seqs": 16,
        "--compilation-config.cudagraph_mode": "NONE",
        "-ub": 1024,
        "-o_o": True,
    }


BAD_TABLES: dict[str, tuple[object, str]] = {
    "not a table": ([MODEL], f"services: {TABLE}, not [{{'model': 'MiniMax-M2.5'}}]"),
    "service is text": ({"chat": "MiniMax"}, f'services.chat: {TABLE}, not "MiniMax"'),
    "name is a number": ({1: MODEL}, "services: 1 is not a valid service name"),
    "name with a space": ({"my chat": MODEL}, 'services: "my chat" is not a valid service name'),
    "name too long": ({"a" * 32: MODEL}, f'services: "{"a" * 32}" is not a valid service name'),
    "name of apt's unit": ({"apt": MODEL}, 'services: "apt" is not a valid service name'),
    "name of the power unit": ({"power-limit": MODEL}, 'services: "power-limit" is not a valid service name'),
    "name of a job": ({"build-box": MODEL}, 'services: "build-box" is not a valid service name'),
    "port taken": ({"a": MODEL, "b": MODEL}, "services.b.port: 8000 is taken by a"),
}


def test_a_host_may_serve_nothing() -> None:
    assert read_services({}, FILE) == ()


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_services(case: str) -> None:
    data, message = BAD_TABLES[case]
    with pytest.raises(InputError) as caught:
        read_services(data, FILE)
    assert caught.value.message == f"{FILE}: {message}"
    assert caught.value.hint


def test_uuids_do_for_equal_gpus_and_not_for_unequal_ones() -> None:
    services = {"chat": {**MODEL, "gpus": ["GPU-1", "GPU-2"]}}
    looked_up(services, "4x RTX 3090")
    with pytest.raises(InputError, match="unequal GPUs"):
        looked_up(services, ["RTX 3090", "RTX 4090"])


def test_a_rig_without_gpus_has_none_to_name() -> None:
    with pytest.raises(InputError) as caught:
        looked_up({"chat": {**MODEL, "gpus": [0]}}, [])
    assert caught.value.message.startswith(f"{FILE}: services.chat.gpus: 1 GPUs ")
    assert caught.value.hint.startswith("leave it out")


ON_HOSTS: dict[str, tuple[dict[str, dict[str, object]], str, str]] = {
    "beyond the last port": (
        {"a": {**MODEL, "port": 60000}},
        "services.a.join_port: missing, and the default, port 60000 plus 10,000, is not a valid port",
        "set a port that is free on every host",
    ),
    "the port of an API": (
        {"a": {**MODEL, "join_port": 8001}, "b": {**MODEL, "port": 8001}},
        "services.a.join_port: 8001 is taken by the API of b",
        "choose another port",
    ),
    "the same twice": (
        {"a": {**MODEL, "join_port": 7000}, "b": {**MODEL, "port": 8001, "join_port": 7000}},
        "services.b.join_port: 7000 is taken by traffic between the hosts of a",
        "choose another port",
    ),
    "where the head listens": (
        {"a": {**MODEL, "join_port": 28000}},
        "services.a.port: 8000 makes the head listen on 28000 for the other hosts, but that is taken by traffic "
        "between the hosts of a",
        "choose another port for one of them",
    ),
    "where the head of another listens": (
        {"a": {**MODEL, "port": 20000}, "b": {**MODEL, "port": 60000, "join_port": 9999}},
        "services.b.port: 60000 makes the head listen on 40000 for the other hosts, but that is taken by the head of a",
        "choose another port for one of them",
    ),
}


@pytest.mark.parametrize("case", ON_HOSTS)
def test_ports_between_the_hosts_of_a_service(case: str) -> None:
    data, message, hint = ON_HOSTS[case]
    with pytest.raises(InputError) as caught:
        read_services(data, FILE, rig({"gpus": [], "hosts_per_service": 2}))
    assert (caught.value.message, caught.value.hint) == (f"{FILE}: {message}", hint)
    if "join_port" not in data["a"]:
        assert read_services(data, FILE, rig({"gpus": []}))
