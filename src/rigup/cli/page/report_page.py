"""`rigup report --html`: the redacted sections of a report about one host as a page. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from rigup.cli.page.content import DriftItem, Error, PageOrigin
from rigup.cli.page.document import document
from rigup.cli.page.host_section import memory
from rigup.cli.page.markup import Child, Markup, element
from rigup.cli.page.memory_bar import uses_of
from rigup.cli.page.widgets import differences, errors, facts, listed, scrolled, table, tag
from rigup.facts.bounds import Unreadable, json_of

Sections = dict[str, Any]
RECORD = ("when", "verb", "who", "result", "rigup", "commit")
_UNIT = re.compile(r"^--- (.*)$", re.MULTILINE)


def report_page(host: str, origin: PageOrigin, sections: Sections) -> str:
    """The page. sections: from `rigup report`, by title; empty ones are left out."""
    drawn: list[tuple[str, Child]] = []
    for title, draw in PARTS.items():
        if content := sections.get(title):
            drawn.append((title, draw(content, sections)))
    drawn += [(title, _as_json(content)) for title, content in sections.items() if content and title not in PARTS]
    ids = {title: re.sub(r"\W+", "-", title) for title, _ in drawn}
    links = [element("li", element("a", title.capitalize(), href=f"#{ids[title]}")) for title, _ in drawn]
    parts: list[Child] = [element("nav", element("ul", links), aria_label="Sections")]
    for title, part in drawn:
        heading = element("h2", title.capitalize(), id=ids[title])
        parts.append(element("section", heading, part, aria_labelledby=ids[title]))
    return document(f"{host}: report", origin, parts)


def _errors(found: list[dict[str, Any]], _: Sections) -> Child:
    return errors(Error(one["message"], one["hint"] or "") for one in found)


def _differs(found: dict[str, Any], _: Sections) -> Child:
    drift = [
        DriftItem(f"{one['service']} {one['what']}".strip(), one["message"], one["hint"]) for one in found["drift"]
    ]
    changes = listed(element("code", change) for change in found["changes"])
    return [
        element("p", "State: ", element("strong", found["state"])),
        [element("h3", "Changes that apply would make"), changes] if changes else None,
        [element("h3", "Differences from the plan"), differences(drift)] if drift else None,
        None if changes or drift else element("p", "No differences found.", class_="none"),
    ]


def _plans(found: list[dict[str, Any]], sections: Sections) -> Child:
    return [_plan(plan, sections.get("probe") or {}, f"plan{number}") for number, plan in enumerate(found)]


def _plan(plan: dict[str, Any], probe: dict[str, Any], id_: str) -> Markup:
    verdict = tag("ok", "good", "✓") if plan["verdict"] == "ok" else tag("refused", "bad", "×")  # noqa: RUF001
    refusals = errors(Error(f"{one['message']} [{one['rule']}]", one["hint"]) for one in plan["refusals"])
    parts: list[Child] = [element("h3", plan["service"]["name"], " ", verdict), refusals]
    parts.append(facts(_served(plan)) if plan["engine"] else None)
    names = {gpu["index"]: str(gpu["name"]) for gpu in plan["rig"]["gpus"]}
    if uses := uses_of(plan["memory"] or (), names, probe.get("gpus") or ()):
        parts += [element("h4", "GPU memory"), *memory(uses, id_)]
    if warnings := listed((f"{one['message']} [{one['rule']}]" for one in plan["warnings"] or ()), "notes"):
        parts += [element("h4", "Warnings"), warnings]
    return element("div", parts, _folded("The whole plan", _json_text(plan)), class_="service")


def _served(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and values of the plan; a host that lends its GPUs to another one's llama.cpp has no checkpoint."""
    engine, checkpoint = plan["engine"], plan["checkpoint"]
    if checkpoint:
        yield "serves", f"{checkpoint['repo']} {checkpoint['quant']}"
    yield "with", f"{engine['name']} {engine['version']} ({engine['build']})"
    yield "context", f"{plan['context']:,} tokens"
    yield "KV cache", f"{plan['kv_tokens']:,} tokens, {plan['kv_cache_type']}"


def _probe(probe: dict[str, Any], _: Sections) -> Child:
    nvidia = probe["nvidia"]
    known = (
        ("system", probe["os_name"] or probe["os"]),
        ("kernel", probe["kernel"]),
        ("driver", nvidia["loaded"] or "none"),
        ("host memory", f"{probe['memory_kib'] / 2**20:.1f} GiB"),
        ("processors", str(probe["cpus"])),
    )
    heads = ("GPU", "name", "memory in use", "temperature", "power limit", "notes")
    rows = [
        (
            str(gpu["index"]),
            gpu["name"],
            " of ".join(_with_unit(gpu[key], "MiB") for key in ("memory_used_mib", "memory_total_mib")),
            _with_unit(gpu["temperature_c"], "°C"),
            _with_unit(gpu["power"]["limit_w"], "W"),
            gpu["error"] or ", ".join(gpu["throttled"]) or "-",
        )
        for gpu in probe["gpus"]
    ]
    listed = element("div", table(heads, rows, "GPUs as the probe found them"), class_="folded") if rows else None
    return [facts(known), listed, _folded("The whole probe", _json_text(probe))]


def _journals(text: str, _: Sections) -> Child:
    """One folded part per unit."""
    parts = _UNIT.split(text)[1:]
    pairs = list(zip(parts[::2], parts[1::2], strict=True)) or [("all", text)]
    return [_folded(unit, lines.strip("\n") or "nothing") for unit, lines in pairs]


def _record(content: str | list[Any], _: Sections) -> Child:
    """A record of an apply: a line of JSON, or a list of records."""
    try:
        records = [json_of(content, "record")] if isinstance(content, str) else content
    except Unreadable:
        return element("pre", str(content))
    return [_one_record(record) if isinstance(record, dict) else _as_json(record) for record in records]


def _one_record(record: dict[str, Any]) -> Child:
    known = [(key, str(record[key])) for key in RECORD if record.get(key)]
    return [
        facts(known),
        listed(element("code", str(change)) for change in _list(record.get("changes"))),
        errors(Error(str(message)) for message in _list(record.get("errors"))),
        _folded("The whole record", _json_text(record)),
    ]


def _list(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def _as_json(content: Any) -> Child:
    return element("pre", content if isinstance(content, str) else _json_text(content))


def _flat(content: dict[str, Any], _: Sections) -> Child:
    return facts((key, value if isinstance(value, str) else json.dumps(value)) for key, value in content.items())


def _folded(name: str, text: str) -> Markup:
    return element("details", element("summary", name), scrolled(element("pre", text), name), class_="folded")


def _json_text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False)


def _with_unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:,.0f} {unit}"


# in the order of the page; other sections follow unchanged
PARTS: dict[str, Callable[[Any, Sections], Child]] = {
    "errors": _errors,
    "differs": _differs,
    "plans": _plans,
    "probe": _probe,
    "journals": _journals,
    "last record there": _record,
    "last record here": _record,
    "inventory": lambda content, _: _as_json(content),
    "versions": _flat,
}
