"""The page of a fleet: one file that loads nothing, sound for browsers and screen readers, with any text in it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from rigup.cli.page.content import DriftItem, Error, FleetContent, PageOrigin, ReleaseItem, Version
from rigup.cli.page.document import fleet_page, style_sheet
from tests.unit.cli.page.page_content import HOSTILE, fleet, host, level, result, service, uses
from tests.unit.cli.page.page_reader import Element, read


def many(count: int = 200) -> FleetContent:
    """Hosts in order, and now and then one that is not."""
    hosts = [
        host(f"node{n:03}.lan", "in order" if n % 29 else "drifted", services=(service(results=()),))
        for n in range(count)
    ]
    return fleet(*hosts)


def hostile() -> FleetContent:
    """Every text that a host or a file can bring says something bad."""
    wrong = DriftItem("driver", HOSTILE, HOSTILE)
    run = result("2026-11-21T08:00:00Z", (1, 2), release=HOSTILE)
    run |= {"endpoint": {"engine": HOSTILE, "version": HOSTILE}, "notes": [HOSTILE], "drift": [HOSTILE]}
    bad = service(
        HOSTILE,
        row={"health": HOSTILE, "drift": HOSTILE, "gpu_memory_mib": None},
        serves=HOSTILE,
        engine=HOSTILE,
        facts=((HOSTILE, HOSTILE),),
        memory=(replace(uses(1)[0], name=HOSTILE),),
        drift=(wrong,),
        releases=(ReleaseItem(1, HOSTILE, True, False, (HOSTILE,) * 6),),
        results=(run,),
    )
    said = host(
        HOSTILE,
        "drifted",
        facts=((HOSTILE, HOSTILE),),
        versions=(Version(HOSTILE, HOSTILE, "1"),),
        drift=(wrong,),
        errors=(Error(HOSTILE, HOSTILE),),
        services=(bad,),
    )
    return FleetContent(PageOrigin(HOSTILE, HOSTILE, "1", HOSTILE, HOSTILE, HOSTILE), (replace(said, group=HOSTILE),))


FLEETS: dict[str, Callable[[], FleetContent]] = {
    "each state": fleet,
    "two hundred": many,
    "hostile": hostile,
    "one": lambda: fleet(host()),
}


@pytest.fixture(scope="module", params=FLEETS)
def page(request: pytest.FixtureRequest) -> Element:
    return page_of(request.param)


@cache
def page_of(name: str) -> Element:
    """One of FLEETS, drawn and read."""
    return read(fleet_page(FLEETS[name]()))


def test_it_is_one_page_with_a_title_a_language_and_its_landmarks(page: Element) -> None:
    (html,) = page.all("html")
    assert html.attributes["lang"] == "en"
    assert len(page.all("title")[0].text) > 5
    for tag in ("h1", "main", "header", "footer"):
        assert len(page.all(tag)) == 1, tag
    for section in page.all("section"):
        name = section.attributes.get("aria-label") or section.attributes["aria-labelledby"]
        assert name


def test_ids_are_unique_and_all_that_is_named_exists(page: Element) -> None:
    every = elements(page)
    ids = [one.attributes["id"] for one in every if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    assert not [id_ for id_ in ids if re.search(r"\s", id_)]
    wanted = {word for one in every for word in one.attributes.get("aria-labelledby", "").split()}
    wanted |= {one.attributes["href"][1:] for one in page.all("a")}
    assert wanted <= set(ids)


def test_headings_are_in_order(page: Element) -> None:
    levels = [int(one.tag[1]) for one in elements(page) if re.fullmatch("h[1-6]", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert [(before, after) for before, after in pairwise(levels) if after > before + 1] == []


def test_every_drawing_says_what_it_is(page: Element) -> None:
    for svg in page.all("svg"):
        assert svg.attributes["role"] == "img"
        assert [child.tag for child in svg.children[:2]] == ["title", "desc"]
        assert all(child.text for child in svg.children[:2])
        assert svg.attributes["aria-labelledby"] == " ".join(child.attributes["id"] for child in svg.children[:2])


def test_every_chart_has_its_figures_behind_it(page: Element) -> None:
    for figure in page.all("figure"):
        (chart,) = figure.of_class("chart")
        (table,) = figure.all("table")
        assert table.all("caption")[0].text == chart.all("title")[0].text
        assert len(table.all("tr")) >= 2


def test_every_table_names_its_columns_and_rows(page: Element) -> None:
    for table in page.all("table"):
        assert table.all("caption")[0].text
        heads, *rows = table.all("tr")
        assert all(head.attributes["scope"] == "col" for head in heads.all("th"))
        for row in rows:
            assert len(row.children) == len(heads.children)
            assert [head.attributes["scope"] for head in row.all("th")] == ["row"]


def test_nothing_is_loaded_and_nothing_runs(page: Element) -> None:
    every = elements(page)
    assert not {one.tag for one in every} & {
        "script",
        "img",
        "iframe",
        "object",
        "embed",
        "form",
        "base",
        "input",
        "video",
    }
    assert not [one for one in every for name in one.attributes if name.startswith("on") or name == "style"]
    assert not [one for one in every if "src" in one.attributes]
    addresses = [one.attributes["href"] for one in every if "href" in one.attributes]
    assert all(address.startswith(("#", "data:image/svg+xml,")) for address in addresses)
    assert "url(" not in style_sheet() and "@import" not in style_sheet()


def test_the_policy_allows_this_style_sheet_and_nothing_else(page: Element) -> None:
    (said,) = [one for one in page.all("meta") if one.attributes.get("http-equiv") == "Content-Security-Policy"]
    (style,) = page.all("style")
    digest = base64.b64encode(hashlib.sha256(style.text.encode() + b"\n").digest()).decode()
    assert style.own == [style_sheet()]
    wanted = f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    assert said.attributes["content"] == wanted


def elements(page: Element) -> list[Element]:
    return [one for child in page.children for one in (child, *elements(child))]


def test_what_hosts_say_stays_text() -> None:
    text = fleet_page(hostile())
    assert "<script" not in text and "<svg onload" not in text and "]]>" not in text
    page = read(text)
    assert not [one for one in elements(page) if one.tag in ("script", "x")]
    assert HOSTILE in page.all("h3")[-1].text
    assert HOSTILE in page.of_class("errors")[0].text
    assert HOSTILE in page.of_class("releases")[0].text


def test_what_is_worst_comes_first() -> None:
    page = read(fleet_page(fleet()))
    order = ["gpu4.lan", "gpu3.lan", "gpu2.lan", "gpu1.lan"]
    assert [row.all("th")[0].text for table in page.of_class("overview") for row in table.all("tr")[1:]] == order
    assert [one.all("h3")[0].text for one in page.of_class("host")] == order
    counts = [" ".join(re.findall(r"\w+", one.text)) for one in page.of_class("counts")[0].all("li")]
    assert counts == ["4 hosts", "1 unreachable", "1 no answer", "1 drifted", "1 in order"]


def test_a_service_that_answers_between_crashes_says_how_often_it_was_restarted() -> None:
    crashing = service(row={"health": "answers", "drift": "none", "gpu_memory_mib": None, "restarts": 9})
    page = read(fleet_page(fleet(host(services=(crashing,)))))
    assert "answers, 9 restarts" in page.of_class("overview")[0].text


def test_a_host_that_was_not_reached_is_named_with_the_reason() -> None:
    page = read(fleet_page(fleet()))
    unreachable = page.of_class("host")[0]
    assert "gpu4.lan: connection refused" in unreachable.text
    assert "is it on, and does ssh gpu4.lan work?" in unreachable.text
    assert unreachable.all("svg") == []
    row = page.of_class("overview")[0].all("tr")[1]
    assert row.all("td")[-1].text == "connection refused"


def test_two_hundred_hosts_stay_readable() -> None:
    page = page_of("two hundred")
    wrong, right = page.of_class("overview")
    assert (len(wrong.all("tr")), len(right.all("tr"))) == (8, 194)
    assert "details" not in wrong.above and "details" in right.above
    unfolded = [one for one in page.of_class("host") if "open" in one.children[0].attributes]
    assert len(unfolded) == 7
    assert all("drifted" in one.all("summary")[0].text for one in unfolded)


def test_a_service_that_was_not_measured_says_so_and_has_no_chart() -> None:
    page = read(fleet_page(fleet(host(services=(service(results=()),)))))
    assert page.of_class("chart") == []
    assert page.of_class("none")[0].text.startswith("Not measured yet")


def test_a_sweep_is_drawn_as_rates_and_latencies_with_its_cap() -> None:
    page = read(fleet_page(fleet(host())))
    titles = [chart.all("title")[0].text for chart in page.of_class("chart")]
    assert titles == [
        "Output tokens per second against requests at once, chat on gpu1.lan",
        "TTFT, time to the first token, against requests at once, chat on gpu1.lan",
        "TPOT, time per token after the first, against requests at once, chat on gpu1.lan",
        "ITL, time between two pieces, against requests at once, chat on gpu1.lan",
        "Latency percentiles at 1 at once, 256 tokens in, 100 out, chat on gpu1.lan",
        "Output tokens per second over time, 1 at once; 256 tokens in, 100 out, chat on gpu1.lan",
    ]
    rates = page.of_class("chart")[0]
    assert "From 512 at once the engine ran at most 256 and queued the rest." in rates.all("desc")[0].text
    assert len(rates.of_class("hollow")) == 5
    assert "capped: 256 ran" in rates.text and "6 Nov" in rates.text
    figures = page.all("figure")[0].all("tr")[-1]
    assert [one.text for one in figures.children][::5] == ["1,024", "256 + 768 (capped)"]


def test_a_level_without_an_answer_is_not_a_point() -> None:
    run = result("2026-11-21T08:00:00Z", (1, 2, 4))
    silent = level(8) | {"ttft_ms": None, "tpot_ms": None, "itl_ms": None}
    page = read(fleet_page(fleet(host(services=(service(results=({**run, "levels": [*run["levels"], silent]},)),)))))
    assert [len(chart.all("circle")) for chart in page.of_class("chart")] == [3, 9, 9, 9]
    only = read(fleet_page(fleet(host(services=(service(results=({**run, "levels": [silent]},)),)))))
    assert "No request was answered." in only.text and only.of_class("chart") == []


def test_memory_is_planned_against_measured() -> None:
    page = read(fleet_page(fleet(host())))
    bars = page.of_class("bars")[0].all("li")
    assert len(bars) == 4
    assert " ".join(bars[0].of_class("amounts")[0].text.split()) == "measured 22.4, planned 22.6 of 24.0 GiB (-1.0 %)"


def test_versions_are_held_against_the_lock_in_words() -> None:
    page = read(fleet_page(fleet()))
    drifted = page.of_class("host")[2]
    rows = [[" ".join(cell.text.split()) for cell in row.children] for row in drifted.all("table")[0].all("tr")[1:]]
    assert rows[0] == ["driver", "590.48.01", "580.178.04 differs ≠"]
    assert [one.text for one in drifted.of_class("differences")[0].all("li")[1].all("span")][-1] == (
        "GPU 2 has 350 W; declared: 280 W"
    )


def test_releases_are_newest_first_with_what_they_changed() -> None:
    kept = read(fleet_page(fleet(host()))).of_class("releases")[0]
    heads = [one.all("strong")[0].text for one in kept.children]
    assert heads == ["Release 4", "Release 3", "Release 2"]
    assert "current" in kept.children[0].text and "never answered" in kept.children[2].text
    assert [one.text for one in kept.children[1].all("code")] == ["--parallel 4 -> 8", "+ --flash-attn on"]
    unknown = read(fleet_page(fleet(host(services=(service(releases=None),)))))
    assert "Could not read them from the host." in unknown.text


def test_it_says_when_it_was_made_by_what_and_from_what() -> None:
    foot = " ".join(read(fleet_page(fleet())).all("footer")[0].text.split())
    assert "Created 2026-11-21 20:15:00 UTC by rigup 0.1.0" in foot
    assert f"sha256:{'3f' * 32}" in foot and f"9bdbc17{'0' * 33}" in foot
    bare = replace(fleet(), origin=PageOrigin("homelab", "2026-11-21 20:15:00 UTC", "0.1.0", "", ""))
    assert "no lock" in fleet_page(bare) and "not from a commit" in fleet_page(bare)
