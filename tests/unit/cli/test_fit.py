"""`rigup fit`: tables of 80 columns, the JSON contract, filters, exit codes, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rigup.catalogue.catalogue import load_catalogue
from rigup.cli.main import main
from tests.terminal import Terminal, describe, plain

MODELS = [model.name for model in load_catalogue().served]
FOUR = ["fit", "4x RTX 3090", "--host-memory", "128"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a fleet, so that only what a test writes counts."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line and returns its exit code, output and errors."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(words)
        return code, *capsys.readouterr()

    return run


def write_fleet(folder: Path, **rigs: dict[str, Any]) -> None:
    (folder / "inventories").mkdir()
    (folder / "group_data").mkdir()
    lines = [f"{name} = ['{name.replace('_', '-')}.lan']" for name in rigs]
    (folder / "inventories" / "fleet.py").write_text("\n".join(lines) + "\n")
    for name, rig in rigs.items():
        (folder / "group_data" / f"{name}.py").write_text(f"rig = {rig!r}\nservices = {{}}\n")


def first_words(table: str) -> list[str]:
    """The models of a table, in order: its lines' first words that are models."""
    return [line.split()[0] for line in table.splitlines() if line.split() and line.split()[0] in MODELS]


@pytest.mark.parametrize(
    "words",
    [
        FOUR,
        [*FOUR, "--all"],
        [*FOUR, "--commercial"],
        ["fit", "1x RTX PRO 6000 Blackwell Workstation Edition, 2x RTX 3090", "--host-memory", "128", "--all"],
        ["fit", "--model", "NVIDIA-Nemotron-3-Ultra-550B-A55B", "--all", "--host-memory", "512"],
    ],
    ids=" ".join,
)
def test_eighty_columns_hold_it(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    describe(monkeypatch, 80)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert main(words) == 0
    out = plain(sys.stdout.getvalue())  # type: ignore[attr-defined]
    assert "context" in out and [line for line in out.splitlines() if len(line) > 80 or line != line.rstrip()] == []


def test_the_best_comes_first_and_what_does_not_fit_is_counted(said: Any) -> None:
    _, out, _ = said(*FOUR)
    listed = first_words(out)
    assert listed[0] == "gpt-oss-20b"
    assert listed.index("Qwen3.6-27B") < listed.index("Qwen3.5-122B-A10B") < listed.index("MiniMax-M2.5")
    assert "Kimi-K2.6" not in out
    last = out.splitlines()[-1]
    lacking = len(MODELS) - len(listed)
    assert last == f"{len(listed)} of {len(MODELS)} models listed, {lacking} do not fit: list them with --all"
    assert "* keeps weights in host memory" in out


def test_all_adds_what_does_not_fit_with_the_reason(said: Any) -> None:
    _, out, _ = said(*FOUR, "--all")
    assert "\nQwen3-Coder-480B-A35B-Instruct: weights " in out
    assert len(first_words(out.replace(": ", " "))) == len(MODELS)


def test_sorting_and_filters(said: Any) -> None:
    _, out, _ = said("fit", "2x RTX 3090", "--sort", "context", "--min-context", "150000", "--json")
    (table,) = json.loads(out)["rigs"]
    contexts = [row["context"] for row in table["models"]]
    assert contexts == sorted(contexts, reverse=True) and min(contexts) >= 150_000
    assert table["filtered"] > 0
    _, out, _ = said("fit", "2x RTX 3090", "--sort", "speed", "--min-speed", "30.5", "--json")
    speeds = [row["decode_tokens_per_second"] for row in json.loads(out)["rigs"][0]["models"]]
    assert speeds and all(speed["low"] >= 30.5 for speed in speeds)
    middles = [speed["low"] + speed["high"] for speed in speeds]
    assert middles == sorted(middles, reverse=True)


def test_commercial_lists_only_known_licenses(said: Any) -> None:
    code, out, _ = said(*FOUR, "--commercial")
    assert code == 0
    assert "MiniMax-M2.5" in first_words(out)
    assert "gpt-oss-20b" in first_words(out) and "MiniMax-M2.7" not in first_words(out)
    _, out, _ = said("fit", "16x B200", "--commercial")
    assert "Muse-Spark-Open-816B-A42B" not in first_words(out)
    assert "not known to allow commercial use)" in " ".join(out.split())


def test_a_model_is_described(said: Any) -> None:
    _, out, _ = said("fit", "--model", "Kimi-K2.6")
    lines = " ".join(out.split())
    assert lines.startswith(
        "Kimi-K2.6: Modified MIT sampling: temperature 1, top_p 0.95 chat_template_kwargs: thinking:"
    )
    assert "must be named on the screen" in lines
    _, out, _ = said("fit", "--model", "MiniMax-M2.7")
    assert out.startswith("MiniMax-M2.7: other (non-commercial), not for commercial use")
    _, out, _ = said("fit", "--model", "Muse-Spark-Open-816B-A42B")
    assert out.startswith("Muse-Spark-Open-816B-A42B: license not known")


def test_json_is_the_contract(said: Any) -> None:
    code, out, _ = said(*FOUR, "--json", "--all")
    data = json.loads(out)
    assert code == 0 and list(data) == ["schema", "rigs"] and data["schema"] == 1
    (table,) = data["rigs"]
    assert list(table) == ["groups", "rig", "models", "do_not_fit", "filtered"]
    assert table["groups"] == [] and table["rig"] == "4x NVIDIA GeForce RTX 3090, 128 GiB host memory"
    rows = {row["model"]: row for row in table["models"]}
    assert sorted(rows) == sorted(MODELS)
    assert sum(not row["fits"] for row in rows.values()) == table["do_not_fit"]
    short = ["model", "fits", "reason", "license", "commercial"]
    assert list(rows["Kimi-K2.6"]) == short and rows["Kimi-K2.6"]["reason"]
    row = rows["gpt-oss-120b"]
    assert list(row) == [
        *(*short, "quality", "checkpoint", "engine", "parallel", "gpus_used", "context", "kv_cache_type"),
        *("decode_tokens_per_second", "weights_in_host_memory"),
    ]
    assert (row["quality"], row["checkpoint"]["quant"], row["engine"]["name"]) == ("lossless", "MXFP4", "vllm")
    assert (row["parallel"]["tensor"], row["gpus_used"], row["weights_in_host_memory"]) == (4, 4, False)


def test_rigs_of_an_inventory_with_equal_ones_together(said: Any, elsewhere: Path) -> None:
    one = {"gpus": "1x RTX 3090"}
    write_fleet(elsewhere, first=one, second=one, third={"gpus": "2x RTX 5090", "host_memory_gib": 64})
    _, out, _ = said("fit")
    assert "first, second: 1x NVIDIA GeForce RTX 3090\n" in out
    assert "third: 2x NVIDIA GeForce RTX 5090, 64 GiB host memory\n" in out
    _, out, _ = said("fit", "inventories/fleet.py", "--limit", "third", "--json")
    assert [table["groups"] for table in json.loads(out)["rigs"]] == [["third"]]


def test_the_rigs_of_a_model(said: Any, elsewhere: Path) -> None:
    write_fleet(elsewhere, small={"gpus": "1x RTX 3090"}, large={"gpus": "8x H200"})
    code, out, _ = said("fit", "--model", "glm-5.2", "inventories/fleet.py")
    assert code == 0
    assert out.startswith("GLM-5.2: ")
    assert "\nlarge " in out and "\nsmall: weights " in out
    assert "\n4x B200 " in out and "\n8x H100 PCIe " in out and "1x B200" not in out
    assert "GPUs do not hold it, up to 8 of them: list them with --all" in out
    _, out, _ = said("fit", "--model", "GLM-5.2", "--json")
    data = json.loads(out)
    assert list(data) == ["schema", "model", "rigs", "least"] and data["rigs"] == []
    assert {row["gpus"] for row in data["least"] if row["fits"]} == {4, 8}
    counts = [row["gpus"] for row in data["least"]]
    assert counts == sorted(counts)


def test_hosts_that_serve_together_are_one_rig(said: Any, elsewhere: Path) -> None:
    write_fleet(elsewhere, pair={"gpus": "1x GB10", "host_memory_gib": 119, "hosts_per_service": 2})
    _, out, _ = said("fit")
    assert out.startswith("pair: 2 hosts, each 1x NVIDIA GB10, 119 GiB host memory\n")
    assert " TP2 " in out


def test_exit_code_1_where_nothing_fits(said: Any) -> None:
    code, out, _ = said("fit", "1x RTX 3090", "--min-speed", "100000")
    assert code == 1 and f"\n0 of {len(MODELS)} models listed, " in out
    assert said("fit", "--model", "Kimi-K2.6", "--min-context", "9000000")[0] == 1


REFUSED = [
    (["8x RTX 3900"], 'INVENTORY_OR_RIG: rig.gpus: unknown GPU "RTX 3900"', 'try "RTX 3090"'),
    (["1x RTX 3090, 1x RTX 4080x"], 'INVENTORY_OR_RIG: rig.gpus[1]: unknown GPU "RTX 4080x"', None),
    (["0x RTX 3090"], 'INVENTORY_OR_RIG: rig.gpus: "0x RTX 3090" ', None),
    (["RTX PRO 6000"], 'INVENTORY_OR_RIG: rig.gpus: "RTX PRO 6000" is ambiguous', None),
    (["x" * 5000], 'INVENTORY_OR_RIG: rig.gpus: unknown GPU "xxx', None),
    (["nowhere.py"], "nowhere.py: ", None),
    (
        [],
        "inventories/: no inventory found",
        'describe the first host: rigup init USER@HOST, or name a rig: rigup fit "4x RTX 3090"',
    ),
    (["--model", "EAGLE3-gpt-oss-120B"], "--model: EAGLE3-gpt-oss-120b ", None),
    (["--model", "GLM-5.1"], '--model: unknown model "GLM-5.1"', 'try "GLM-5.3"'),
    (["1x RTX 3090", "--host-memory", "much"], '--host-memory: "much" ', None),
    (["1x RTX 3090", "--host-memory", "0"], "--host-memory: 0 is not between 0 and 65,536 GiB", None),
    (["--host-memory", "64"], "--host-memory: the rigs of an inventory have their own", None),
    (["1x RTX 3090", "--min-context", "-1"], "--min-context: -1 is not between 0 and", None),
    (["1x RTX 3090", "--min-context", "100k"], '--min-context: "100k" ', None),
    (["1x RTX 3090", "--min-speed", "-2"], "--min-speed: -2 is below 0", "omit it to list every speed"),
    (["1x RTX 3090", "--limit", "a"], "--limit: selects from an inventory, and none is named", None),
]


@pytest.mark.parametrize(("words", "message", "hint"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_input_is_one_message_and_one_hint(said: Any, words: list[str], message: str, hint: str | None) -> None:
    code, out, err = said("fit", *words)
    lines = err.splitlines()
    assert (code, out, len(lines)) == (2, "", 2)
    assert lines[0].startswith(f"rigup: {message}")
    assert lines[1].startswith("hint: ") and (hint is None or lines[1] == f"hint: {hint}")


def test_several_inventories_are_named(said: Any, elsewhere: Path) -> None:
    write_fleet(elsewhere, one={"gpus": "1x RTX 3090"})
    (elsewhere / "inventories" / "other.py").write_text("two = ['b.lan']\n")
    code, _, err = said("fit")
    assert code == 2
    assert "more than one inventory (inventories/fleet.py, inventories/other.py)" in err
