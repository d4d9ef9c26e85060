"""A report as a page: the same sections as the text, drawn where that helps, and sound as a page."""

from __future__ import annotations

from typing import Any

from rigup.cli.output.plan_json import plan_as_json
from rigup.cli.page.report_page import report_page
from rigup.report.redaction import Redactor
from tests.unit.cli.page.page_content import HOSTILE, ORIGIN
from tests.unit.cli.page.page_reader import Element, read
from tests.unit.cli.page.test_document import elements
from tests.unit.cli.test_status import having, planned, result_of
from tests.unit.planner import across_hosts
from tests.unit.planner.asking import FP8, refused

JOURNAL = f"--- rigup-chat.service\nActiveState=active\nstarted with hf_abcdefghijklmnopqrst\n--- kernel\n{HOSTILE}\n"


def sections(gpus: str = "RTX 3090") -> dict[str, Any]:
    plan = planned(gpus)
    probe = result_of(plan, having("590.48.01")).probe
    assert probe is not None
    return {
        "versions": {"rigup": "0.1.0", "lock": "3f3f"},
        "inventory": {"rig": {"gpus": HOSTILE}, "services": {"chat": {"api_key": "in-the-clear"}}},
        "plans": [plan_as_json(plan), plan_as_json(refused("RTX 3090", {"checkpoint": FP8, "engine": "vllm"}))],
        "last record here": [{"when": "2026-11-21 20:15:00 UTC", "errors": [HOSTILE]}],
        "errors": [{"message": f"gpu1: {HOSTILE}", "hint": None}],
        "differs": {
            "state": "differs",
            "changes": ["driver: packages"],
            "drift": [{"what": "driver", "service": "", "message": "590.48.01, lock 580.178.04", "hint": "reboot"}],
        },
        "probe": probe.as_json(),
        "last record there": '{"schema": 1, "verb": "apply", "changes": ["service: release of chat"]}',
        "journals": JOURNAL,
        "something new": [1, 2],
    }


def page(said: dict[str, Any]) -> Element:
    return read(report_page("gpu1.lan", ORIGIN, Redactor(["in-the-clear"]).value(said)))


def test_all_sections_are_there_and_can_be_gone_to() -> None:
    found = page(sections())
    titles = [one.text for one in found.all("h2")]
    assert titles == [
        "Errors",
        "Differs",
        "Plans",
        "Probe",
        "Journals",
        "Last record there",
        "Last record here",
        "Inventory",
        "Versions",
        "Something new",
    ]
    links = [one.attributes["href"][1:] for one in found.all("nav")[0].all("a")]
    assert links == [one.attributes["id"] for one in found.all("h2")]
    ids = [one.attributes["id"] for one in elements(found) if "id" in one.attributes]
    assert len(ids) == len(set(ids))


def test_what_a_reader_looks_for_is_drawn() -> None:
    found = page(sections())
    assert "590.48.01, lock 580.178.04" in found.of_class("differences")[0].text
    assert len(found.of_class("memory")) == 1
    assert "measured" in found.of_class("amounts")[0].text
    verdicts = [one.of_class("tag")[0].own for one in found.of_class("service")]
    assert verdicts == [["ok"], ["refused"]]
    assert {"rigup-chat.service", "kernel"} <= {one.text for one in found.all("summary")}


def test_a_record_says_what_was_applied_and_one_that_was_cut_is_shown_as_it_is() -> None:
    found = page(sections())
    there, here = (
        next(one for one in found.all("section") if one.attributes["aria-labelledby"] == id_)
        for id_ in ("last-record-there", "last-record-here")
    )
    assert [one.text for one in (*there.all("dd"), *there.all("code"))] == ["apply", "service: release of chat"]
    assert here.of_class("errors")[0].text == HOSTILE and here.all("dd")[0].text == "2026-11-21 20:15:00 UTC"
    cut = page({"last record there": '{"schema": 1, "ver'})
    assert cut.all("pre")[0].text == '{"schema": 1, "ver'


def test_secrets_are_out_and_what_a_host_says_is_text() -> None:
    text = report_page("gpu1.lan", ORIGIN, Redactor(["in-the-clear"]).value(sections()))
    assert "in-the-clear" not in text and "hf_abcdefghijklmnopqrst" not in text
    assert "<script" not in text
    assert [one.tag for one in elements(read(text)) if one.tag == "script"] == []


def test_a_host_that_lends_its_gpus_to_llama_cpp_has_no_checkpoint() -> None:
    service = {"model": "MiniMax-M2.5", "quant": "UD-IQ2_XXS", "engine": "llama.cpp", "context": 8192}
    plans = across_hosts.planned("4x RTX 3090", 2, service)
    head, other = (page({"plans": [plan_as_json(plan)]}).all("dt") for plan in plans)
    assert [one.text for one in head] == ["serves", "with", "context", "KV cache"]
    assert [one.text for one in other] == ["with", "context", "KV cache"]


def test_a_host_that_did_not_answer_leaves_the_reason_and_the_plan() -> None:
    whole = sections()
    said = {key: whole[key] for key in ("versions", "inventory", "plans")}
    found = page(said | {"errors": [{"message": "gpu1: connection refused", "hint": "is it on?"}]})
    assert "gpu1: connection refused" in found.of_class("errors")[0].text
    assert "is it on?" in found.text
    assert "measured: unknown" in found.of_class("amounts")[0].text
