"""The pages of `rigup status --html` and `rigup report --html` in a real browser: Debian's Chromium, headless.

The fleet is real (booted machines whose GPUs are simulated); the benchmarks that lie in its folder come from a model of
an engine. UPDATE_PICTURES=1 keeps what the browser shows of it in docs/pictures/.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rigup.bench.store import store
from rigup.cli.page.document import fleet_page
from rigup.cli.page.report_page import report_page
from rigup.lab.gpus.simulated import SimulatedGpus
from tests.lab.fleet_fixtures import made_site
from tests.lab.gpu_fleet import NEW, RIG, GpuFleet
from tests.slow.chromium import Browser, browser, installed
from tests.unit.cli.page.page_content import ORIGIN, results
from tests.unit.cli.page.test_document import FLEETS
from tests.unit.cli.page.test_report_page import sections as report_sections
from tests.unit.cli.test_fit_page import page as fit_page

pytestmark = [pytest.mark.slow, pytest.mark.rests_on("the output", "lab")]

PICTURES = Path(__file__).parents[2] / "docs/pictures"
# in pictures machines have short names
LAB = "rig" if os.environ.get("UPDATE_PICTURES") else f"page{os.getpid()}"
WIDTHS = {"desktop": 1280, "phone": 390}
# what is wider than the window and is not within something that scrolls by itself
TOO_WIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, svg, .aside, .skip')
    && e.getBoundingClientRect().right > innerWidth + 0.5).map(e => e.tagName + '.' + e.className)"""

# those of these words that are broken over two lines somewhere
BROKEN = """(words => {{
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = []
    for (let node = walker.nextNode(); node; node = walker.nextNode())
        for (const word of words) {{
            const start = node.data.indexOf(word), range = document.createRange()
            if (start < 0) continue
            range.setStart(node, start); range.setEnd(node, start + word.length)
            if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) found.push(word)
        }}
    return found
}})({words})"""


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    """One browser for all tests."""
    if not installed():
        if os.environ.get("RIGUP_REQUIRE_LAB") == "1":
            pytest.fail("chromium is not installed: apt-get install chromium")
        pytest.skip("chromium is not installed")
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def fleet(labs_can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuFleet]:
    """Two machines with four cards each; the service was applied twice, and was measured."""
    with made_site(tmp_path_factory.mktemp("site"), LAB, hosts=2, rig=RIG) as site:
        made = GpuFleet(*site)
        for context in (4096, 8192):
            describe(made, context)
            made.apply("--reboot")
        for host in made.hosts:
            for run in results():
                release = "1" if run["began"] < "2026-11-16" else "2"
                endpoint = {"engine": "llama.cpp", "version": "b11434"}
                store(made.root, {**run, "host": host.name, "release": release, "endpoint": endpoint})
        yield made
        made.end_runs()


def describe(fleet: GpuFleet, context: int, *more: str) -> None:
    """Writes the fleet: both machines and `more`, serving with this context."""
    rig = {"rig": {"gpus": RIG, "power_limit_w": 280}}
    service = {"model": "SmolLM2-135M-Instruct", "context": context, "concurrency": 128, "kv_cache_type": "f16"}
    fleet.describe_gpus(NEW, **rig, services={"chat": service})
    entries = [*(host.machine.inventory for host in fleet.hosts), *more]
    (fleet.root / "inventories/rehearsal.py").write_text(f"boxes = {entries!r}\n")


def fill(fleet: GpuFleet) -> None:
    """The cards of the machines hold nearly what was planned, since their engine is a stand-in that takes nothing."""
    for host in fleet.hosts:
        cards = SimulatedGpus(host.machine)
        for index, mib in enumerate((15_480, 15_512, 15_466, 14_020)):
            cards.set(index, memory_used_mib=mib, temperature=58 + index)


def sound(tab: Browser, page: Path, width: int, dark: bool = False) -> None:
    """Opens a page; fails where the console has something, something is loaded, or it is wider than the window."""
    tab.open(page, width, dark)
    assert tab.complaints() == []
    assert tab.requests() == [page.resolve().as_uri()]
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.value(TOO_WIDE) == []


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("name", FLEETS)
def test_a_page_of_any_fleet_is_sound(name: str, width: int, tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(fleet_page(FLEETS[name]()))
    sound(tab, page, width)
    assert tab.value("document.querySelectorAll('script').length") == 0


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_fleet_is_legible_on_any_screen(width: int, tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(fleet_page(FLEETS["each state"]()))
    tab.open(page, width)
    assert tab.value(BROKEN.format(words=["580.178.04", "590.48.01", "6.1.0-41-amd64", "chat"])) == []
    rows = "[...document.querySelectorAll('.overview tbody tr')]"
    named = tab.value(f"{rows}.filter(row => row.innerText.includes('chat')).length")
    assert named == sum(bool(host.services) for host in FLEETS["each state"]().hosts)


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_the_gpus_of_a_report_are_whole(width: int, tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report_page("gpu1.lan", ORIGIN, report_sections("8x RTX 3090")))
    sound(tab, page, width)
    found = "document.querySelector('[aria-label*=\"GPUs\"]')"
    assert tab.value(f"{found}.querySelectorAll('tbody tr').length") == 8
    assert tab.value(f"{found}.scrollWidth <= {found}.clientWidth")
    assert tab.value(BROKEN.format(words=["590.48.01", "GeForce", "24,576"])) == []


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_page_of_what_fits_is_sound(width: int, tab: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(fit_page())
    sound(tab, path, width)


def test_the_colours_are_those_of_the_readers_scheme(tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(fleet_page(FLEETS["one"]()))
    grounds = []
    for dark in (False, True):
        tab.open(page, 1280, dark)
        grounds.append(tab.value("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 23, 26)"]


def test_a_script_that_got_in_would_not_run_and_nothing_would_be_loaded(tab: Browser, tmp_path: Path) -> None:
    """The policy, tried on a page into which somebody has written."""
    page = tmp_path / "page.html"
    bad = '<script>document.title = "run"</script><img src="http://127.0.0.1:9/x.png"><p style="color: red">'
    page.write_text(fleet_page(FLEETS["one"]()).replace("<main", bad + "<main"))
    tab.open(page, 1280)
    assert tab.value("document.title") == "homelab: status of 1 host"
    complaints = tab.complaints()
    assert len([said for said in complaints if "Content Security Policy" in said]) == 3
    assert tab.value("getComputedStyle(document.querySelector('body > p')).color") == "rgb(28, 32, 36)"


def test_the_keyboard_goes_from_the_top_to_a_host_and_unfolds_it(tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(fleet_page(FLEETS["two hundred"]()))
    tab.open(page, 1280)
    focused = "document.activeElement.textContent"
    tab.press("Tab")
    assert tab.value("document.activeElement.hash") == "#content"
    while tab.value("document.activeElement.tagName") != "A" or not tab.value(focused).startswith("node"):
        tab.press("Tab")
    assert tab.value(focused) == "node000.lan"
    tab.press("Enter")
    assert tab.value("location.hash") == "#host-node000.lan"
    closed = "[...document.querySelectorAll('.host > details')].find(e => !e.open).querySelector('summary')"
    tab.value(f"{closed}.focus({{preventScroll: true}})")
    assert tab.value("document.activeElement.parentElement.open") is False
    tab.press("Enter")
    assert tab.value("document.activeElement.parentElement.open") is True


def test_it_prints_with_what_was_folded_away(tab: Browser, tmp_path: Path) -> None:
    page, paper = tmp_path / "page.html", tmp_path / "page.pdf"
    page.write_text(fleet_page(FLEETS["one"]()))
    tab.open(page, 1280, dark=True)
    content = tab.paper()
    assert content.startswith(b"%PDF-") and len(content) > 20_000
    paper.write_bytes(content)
    words = ["pdftotext", "-layout", str(paper), "-"]
    text = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert "256 + 768 (capped)" in text and "Release 3" in text


@pytest.mark.lab
def test_the_page_of_a_real_fleet(fleet: GpuFleet, tab: Browser) -> None:
    first, second = fleet.hosts
    fill(fleet)
    override = "/etc/systemd/system/rigup-chat.service.d"
    second.tell(f"mkdir -p {override}; printf '[Service]\\nNice=5\\n' >{override}/mine.conf; systemctl daemon-reload")
    SimulatedGpus(second.machine).throttle(2)
    describe(fleet, 8192, "gpu-away.invalid")
    page = fleet.root / "status.html"
    run = fleet.rigup("status", "--html", "status.html", expect=1)
    assert "status.html: written" in run.text and second.name in run.text

    for width in WIDTHS.values():
        sound(tab, page, width)
    every = "[...document.querySelectorAll('{}')].map(e => e.textContent)"
    names, shown = (tab.value(every.format(what)) for what in (".host h3", ".host"))
    assert names == ["gpu-away.invalid", second.name, first.name]
    away, drifted, right = shown
    assert "does not resolve" in away
    assert "unit overrides" in drifted and f"{override}/mine.conf" in drifted and "throttled" in drifted
    assert "as locked" in right and NEW in right and "capped: 256 ran" in right
    assert "--ctx-size" in right and "Release 2" in right and "Release 1" in right
    assert tab.value("document.querySelectorAll('.host svg.memory').length") == 12

    told = fleet.rigup("report", second.name, "--html", "--output", "report.html", expect=0)
    assert "report.html" in told.text
    for width in WIDTHS.values():
        sound(tab, fleet.root / "report.html", width)
    if os.environ.get("UPDATE_PICTURES"):
        keep_pictures(tab, page)


def keep_pictures(tab: Browser, page: Path) -> None:
    """What docs/status-page.md and the README show, in as few colours as are enough."""
    PICTURES.mkdir(exist_ok=True)
    whole = ("status-light", 1280, False), ("status-dark", 1280, True), ("status-phone", 390, False)
    for name, width, dark in (*whole, ("service", 1280, False)):
        tab.open(page, width, dark)
        # the kernel is that of whoever makes the pictures
        tab.value("document.querySelectorAll('.facts div').forEach(e => /^kernel/.test(e.textContent) && e.remove())")
        if name == "service":
            content = tab.picture(1075, "document.querySelectorAll('.service')[1]")
        else:
            content = tab.picture(2600)
        path = PICTURES / f"{name}.png"
        path.write_bytes(content)
        words = ["pngquant", "--force", "--strip", "--speed", "1", "--output", str(path), "64", str(path)]
        subprocess.run(words, check=True)
