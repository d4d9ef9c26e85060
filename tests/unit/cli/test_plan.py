"""`rigup plan`: exit codes, the JSON contract, and a table that is readable anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rigup.cli.main import main
from rigup.cli.output.memory_bars import WIDTH, bar
from rigup.cli.output.plan import command_lines, show
from rigup.plan import GpuMemory
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from tests.terminal import Terminal

DEMO = {"rig": {"gpus": []}, "services": {"chat": {"model": "SmolLM2-135M-Instruct"}}}
TOO_LARGE = {"rig": {"gpus": "2x RTX 3090"}, "services": {"minimax": {"model": "MiniMax-M2.5", "quant": "Q4_K_M"}}}
FOUR_3090 = {
    "rig": {"gpus": "4x RTX 3090", "host_memory_gib": 64},
    "services": {"minimax": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_M", "kv_cache_type": "q8_0", "context": 65536}},
}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a fleet of groups, each with hosts and data, and makes its folder the current one."""
    monkeypatch.chdir(tmp_path)

    def write(**groups: tuple[list[str], dict[str, Any]]) -> Path:
        (tmp_path / "inventories").mkdir()
        (tmp_path / "group_data").mkdir()
        inventory = tmp_path / "inventories" / "fleet.py"
        inventory.write_text("".join(f"{name} = {hosts!r}\n" for name, (hosts, _) in groups.items()))
        for name, (_, data) in groups.items():
            text = "".join(f"{key} = {value!r}\n" for key, value in data.items())
            (tmp_path / "group_data" / f"{name}.py").write_text(text)
        return inventory

    return write


def shown(inventory: Path, width: int = 80, explain: bool = False, limit: str | None = None, **console: Any) -> str:
    file = Terminal()
    plans = plan_project(load_project(str(inventory), limit))
    console = {"color_system": None, "legacy_windows": False} | console
    show(plans, Console(file=file, width=width, highlight=False, **console), explain=explain)
    return file.getvalue()


def test_everything_fits(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(demo=(["a"], DEMO))
    assert main(["plan"]) == 0
    assert "bin/llama-server" in capsys.readouterr().out


def test_a_refusal_is_exit_code_1_and_says_why(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(demo=(["a"], DEMO), dual=(["b"], TOO_LARGE))
    assert main(["plan"]) == 1
    said = capsys.readouterr().out
    assert "dual / minimax REFUSED  (b)" in said
    assert "[gpu-memory]" in said
    assert said.endswith("\n1 service planned, 1 refused\n")


def test_bad_input_is_exit_code_2(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(demo=(["a"], {**DEMO, "rig": {"gpus": ["RTX 3900"]}}))
    assert main(["plan"]) == 2
    said = capsys.readouterr().err
    assert 'group_data/demo.py: rig.gpus[0]: unknown GPU "RTX 3900"' in said
    assert "Traceback" not in said


def test_json_and_explain_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", "--explain"]) == 2
    assert "plan: --explain: not allowed with argument --json" in capsys.readouterr().err


KEYS = [
    *(
        "host",
        "group",
        "verdict",
        "rig",
        "service",
        "engine",
        "checkpoint",
        "draft",
        "parallel",
        "context",
        "kv_cache_type",
    ),
    *(
        "kv_tokens",
        "memory",
        "host_memory_mib",
        "host_memory_parts",
        "decode_tokens_per_second",
        "decode_with_full_context",
        "command",
        "environment",
        "swap",
        "moe_config",
        "kernels",
    ),
    *("quality", "traded", "speculative", "warnings", "refusals", "alternatives", "nodes", "rank"),
]


def test_json_is_the_contract(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(quad=(["a"], FOUR_3090))
    assert main(["plan", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert list(data) == ["schema", "hosts", "idle", "gateways", "disabled"]
    assert (data["schema"], data["idle"], data["gateways"]) == (1, [], [])
    (host,) = data["hosts"]
    assert list(host) == KEYS
    assert (host["host"], host["group"], host["verdict"]) == ("a", "quad", "ok")
    gpu = {"index": 0, "name": "NVIDIA GeForce RTX 3090", "memory_mib": 24576, "compute_capability": "8.6"}
    assert host["rig"]["gpus"][0] == gpu
    assert host["rig"]["host_memory_gib"] == 64
    assert host["service"] == {"name": "minimax", "port": 8000}
    assert host["engine"] == {"name": "llama.cpp", "version": "b11434", "build": "source"}
    assert host["checkpoint"] == {"repo": "unsloth/MiniMax-M2.5-GGUF", "quant": "UD-IQ2_M", "bytes": 78_000_000_000}
    assert list(host["parallel"]) == ["tensor", "pipeline", "data", "expert"]
    assert (host["context"], host["kv_cache_type"]) == (65536, "q8_0")
    parts = ["gpu", "capacity_mib", "weights_mib", "kv_cache_mib", "overhead_mib", "free_mib"]
    assert [list(entry) for entry in host["memory"]] == [parts] * 4
    assert list(host["decode_tokens_per_second"]) == ["low", "high", "note"]
    assert host["command"][0] == "bin/llama-server"
    assert (host["nodes"], host["rank"]) == ([], 0)
    assert host["environment"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert host["moe_config"] is None
    assert all(list(warning) == ["rule", "message", "source"] for warning in host["warnings"])
    assert host["refusals"] == []


def test_json_of_a_refusal_keeps_only_what_is_known(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(dual=(["a"], TOO_LARGE))
    assert main(["plan", "--json"]) == 1
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    assert list(host) == KEYS
    kept = {key for key in KEYS if host[key] is not None}
    assert kept == {"host", "group", "verdict", "rig", "service", "refusals", "alternatives", "nodes", "rank"}
    assert [list(refusal) for refusal in host["refusals"]] == [["rule", "message", "hint", "source"]]


def test_json_of_a_card_that_uses_the_memory_of_its_host(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(spark=(["a"], {**DEMO, "rig": {"gpus": "1x GB10", "host_memory_gib": 119}}))
    main(["plan", "--json"])
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    assert [gpu["memory_mib"] for gpu in host["rig"]["gpus"]] == [None]


def test_json_names_hosts_that_serve_nothing_apart(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(demo=(["a"], DEMO), quiet=(["b", "c"], {**DEMO, "services": {}}))
    assert main(["plan", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [list(host) for host in data["hosts"]] == [KEYS]
    assert data["idle"] == [{"host": "b", "group": "quiet"}, {"host": "c", "group": "quiet"}]
    assert main(["plan", "--json", "--limit", "a"]) == 0
    assert json.loads(capsys.readouterr().out)["idle"] == []


def test_equal_hosts_of_a_group_are_shown_once(fleet: Any) -> None:
    hosts = [f"gpu{number}" for number in range(5)]
    said = shown(fleet(quad=(hosts, FOUR_3090)))
    assert said.count("serves ") == 1
    assert "(5 hosts: gpu0, gpu1, gpu2, ...)" in said
    assert said.endswith("5 services planned, none refused\n")


TWO_HOSTS = {
    "rig": {"gpus": "2x RTX 3090", "host_memory_gib": 64, "hosts_per_service": 2},
    "services": {"minimax": {"model": "MiniMax-M2.5", "quant": "UD-IQ2_XXS", "engine": "llama.cpp", "context": 8192}},
}


def test_hosts_that_serve_together_are_one_service(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = fleet(pair=(["a", "b", "c", "d"], TWO_HOSTS))
    said = shown(inventory)
    assert "pair / minimax  (2 times 2 hosts: a + b, c + d)" in said
    assert "llama.cpp b11434 (source), layers over 2 hosts, 2 GPUs each" in said
    assert "8.5 GiB on a, 0.3 GiB on b" in said
    assert "bin/ggml-rpc-server --host b --port 18000" in said
    assert said.endswith("\n2 services planned, none refused\n")
    assert main(["plan", "--json", "--limit", "d"]) == 0
    (host,) = json.loads(capsys.readouterr().out)["hosts"]
    assert list(host) == KEYS
    assert (host["host"], host["nodes"], host["rank"], host["checkpoint"]) == ("d", ["c", "d"], 1, None)
    assert host["command"] == ["bin/ggml-rpc-server", "--host", "d", "--port", "18000"]
    assert [row["gpu"] for row in host["memory"]] == [0, 1]
    assert "serves " not in shown(inventory, limit="d")


def test_eighty_columns_hold_everything_but_what_must_not_be_broken(fleet: Any) -> None:
    said = shown(fleet(quad=(["a"], FOUR_3090), dual=(["b"], TOO_LARGE)))
    too_long = [line for line in said.splitlines() if len(line) > 80]
    # The path of the weights is one word of a command that people copy.
    assert [line.split()[0] for line in too_long] == ["--model"]
    assert all(line == line.rstrip() for line in said.splitlines())


def test_there_is_no_colour_where_nobody_asked(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fleet(dual=(["a"], TOO_LARGE))
    main(["plan"])
    assert "\x1b" not in capsys.readouterr().out


def test_no_color_is_obeyed_on_a_terminal(fleet: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory = fleet(dual=(["a"], TOO_LARGE))
    coloured = shown(inventory, force_terminal=True, color_system="standard")
    assert "\x1b[31m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[31m" not in shown(inventory, force_terminal=True, color_system="standard")


def test_explain_prints_figures_with_their_sources(fleet: Any) -> None:
    inventory = fleet(quad=(["a"], FOUR_3090))
    without_driver(inventory)
    assert "based on:" not in shown(inventory)
    said = shown(inventory, width=200, explain=True)
    assert "based on:" in said
    assert "nvidia-smi rows in public logs" in said
    assert "rule driver-floor" in said


def without_driver(inventory: Path) -> None:
    """Gives a fleet a lock of its own that pins no driver."""
    (inventory.parents[1] / "rigup.lock").write_text("schema = 1\n")


def test_a_driver_is_asked_for_only_where_the_lock_pins_none(fleet: Any) -> None:
    inventory = fleet(quad=(["a"], FOUR_3090))
    assert "[driver-floor]" not in shown(inventory)
    without_driver(inventory)
    assert "needs NVIDIA driver 580 or later (CUDA 13.0) [driver-floor]" in shown(inventory)


def test_a_driver_branch_past_its_end_is_warned_of(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    inventory = fleet(quad=(["a"], FOUR_3090))
    lock = inventory.parents[1] / "rigup.lock"
    lock.write_text('schema = 1\n[driver]\nversion = "610.57.04"\nbranch = "610"\n')
    assert main(["plan"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "branch 610 (new feature) ended in August 2026" in said
    assert "run rigup lock --upgrade driver=580 (long-term support, supported until June 2028)" in said
    lock.write_text('schema = 1\n[driver]\nversion = "580.178.04"\nbranch = "580"\n')
    main(["plan"])
    assert "driver branch" not in capsys.readouterr().out


def test_silenced_rules_are_shown(fleet: Any) -> None:
    service = {**FOUR_3090["services"]["minimax"], "allow": ["driver-floor"]}
    inventory = fleet(quad=(["a"], {**FOUR_3090, "services": {"minimax": service}}))
    without_driver(inventory)
    said = shown(inventory)
    assert "silenced: driver-floor" in said
    assert "warning: needs NVIDIA driver" not in said


@pytest.mark.parametrize("parts", [(0, 0, 0, 24576), (24576, 0, 0, 0), (18000, 3000, 2000, 1576), (1, 1, 1, 24573)])
@pytest.mark.parametrize("ascii_only", [True, False])
def test_a_bar_has_the_same_length_whatever_is_in_it(parts: tuple[int, int, int, int], ascii_only: bool) -> None:
    weights, kv, overhead, free = parts
    memory = GpuMemory(
        gpu=0, capacity_mib=24576, weights_mib=weights, kv_cache_mib=kv, overhead_mib=overhead, free_mib=free
    )
    text = bar(memory, ascii_only).plain
    assert len(text) == WIDTH
    assert not ascii_only or text.isascii()


def test_an_option_stays_with_its_value() -> None:
    words = ["bin/x", "--host", "127.0.0.1", "--jinja", "--port", "8000"]
    assert command_lines(words, 30) == ["bin/x --host 127.0.0.1 \\", "  --jinja --port 8000"]
    assert " ".join(line.rstrip("\\").strip() for line in command_lines(words, 10)) == " ".join(words)


def test_a_preference_is_shown_without_being_kept(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    eight = {"rig": {"gpus": "8x RTX 3090", "host_memory_gib": 128}, "services": {"chat": {"model": "MiniMax-M2.5"}}}
    fleet(eight=(["a"], eight))
    assert main(["plan"]) == 0
    usual = capsys.readouterr().out
    assert "AWQ-INT4-g32" in usual and "quality  near" in usual
    assert "traded   Q5_K_M on llama.cpp has 0.9 bits " in usual
    assert main(["plan", "--prefer", "quality"]) == 0
    assert "UD-Q5_K_XL (" in (said := capsys.readouterr().out) or "Q5_K_M (" in said
    assert main(["plan"]) == 0
    assert capsys.readouterr().out == usual


def test_a_service_keeps_its_preference(fleet: Any, capsys: pytest.CaptureFixture[str]) -> None:
    service = {"model": "MiniMax-M2.5", "prefer": "quality"}
    fleet(eight=(["a"], {"rig": {"gpus": "8x RTX 3090", "host_memory_gib": 128}, "services": {"chat": service}}))
    assert main(["plan"]) == 0
    assert "Q5_K_M (" in capsys.readouterr().out


def test_a_summary_for_a_pull_request_says_what_changes_for_whom(
    fleet: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fleet(demo=(["a", "b"], DEMO), quad=(["q"], FOUR_3090))
    assert main(["plan", "--json"]) == 0
    before = tmp_path / "before.json"
    before.write_text(capsys.readouterr().out)
    assert main(["plan", "--format", "markdown", "--before", str(before)]) == 0
    assert "### Changes\n\nNothing changes.\n" in capsys.readouterr().out
    other = {"services": {"chat": {**DEMO["services"]["chat"], "port": 8001, "environment": {"TOKENS": "private"}}}}
    (tmp_path / "group_data/demo.py").write_text(f"rig = {DEMO['rig']!r}\nservices = {other['services']!r}\n")
    (tmp_path / "group_data/quad.py").write_text(f"rig = {TOO_LARGE['rig']!r}\nservices = {TOO_LARGE['services']!r}\n")
    assert main(["plan", "--format", "markdown", "--before", str(before)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("## rigup plan: 2 planned, 1 refused\n")
    assert "- **chat**: command line: `8000` → `8001` (a, b)\n" in said
    assert "- **chat**: environment variables (a, b)\n" in said and "private" not in said
    assert "- **minimax**: verdict: ok → refused (q)\n" in said
    assert "| **quad / minimax** | q | **refused** |" in said
    assert "### Refused\n\n- **minimax** (q): unsloth/MiniMax-M2.5-GGUF Q4\\_K\\_M on llama.cpp" in said


@pytest.mark.parametrize("text", ["", "[]", '{"hosts": [{}]}', '{"hosts": 1}'])
def test_a_file_that_is_not_a_plan_is_refused(
    text: str, fleet: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fleet(demo=(["a"], DEMO))
    (tmp_path / "x.json").write_text(text)
    assert main(["plan", "--format", "markdown", "--before", "x.json"]) == 2
    assert capsys.readouterr().err == (
        "rigup: --before: x.json: not an output of rigup plan --json\nhint: rigup plan --json > FILE\n"
    )
    assert main(["plan", "--before", "x.json"]) == 2
    assert "--before requires --format markdown" in capsys.readouterr().err
