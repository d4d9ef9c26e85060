"""The pages name what exists: links and their headings, files of this repository, verbs and options of rigup."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from rigup.cli.main import VERBS, build_parser
from rigup.gateway_settings import Certificate, Gateway, GatewayClient
from rigup.rig import RigInput
from rigup.service import Service

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "rigup"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Folders whose files a page names from the top; inventories/ and group_data/ are mostly those of a reader.
FOLDERS = ("src", "roles", "deploy", "tests", "benchmarks", "docs", "bin", ".ci")
# Files of an engine, of a build on a host, and one that a reader makes.
ELSEWHERE = {
    "benchmarks/kernels/benchmark_moe.py",
    "src/llama-arch.cpp",
    "bin/llama-server",
    "tests/recorded_probes/4x_rtx_3090.json",
}
COMMAND = re.compile(r"rigup ([a-z][a-z-]*)\b((?: +[^\s`|;#]+)*)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(page: Path) -> Iterator[str]:
    """Every line of a code block, and every text between backticks."""
    fenced = False
    for line in page.read_text().splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced:
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


def headings(page: Path) -> set[str]:
    """What a link to a part of the page may name: its headings as GitHub writes them, and its own anchors."""
    text = page.read_text()
    found = [line.lstrip("# ").lower() for line in text.splitlines() if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", head).strip().replace(" ", "-") for head in found} | set(
        re.findall(r'<a id="([^"]+)">', text)
    )


def lost_links(page: Path) -> list[str]:
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    lost = []
    for target in found:
        file, _, part = target.partition("#")
        if "://" not in target:
            path = (page.parent / file).resolve() if file else page
            if not path.exists() or (part and path.suffix == ".md" and part not in headings(path)):
                lost.append(target)
    return lost


def lost_paths(page: Path) -> list[str]:
    """Files and folders of the repository that do not exist; a module may be named from src/rigup on."""
    lost = []
    for text in code(page):
        for word in re.findall(r"(?<![\w./<-])[\w.][\w./*-]*/[\w./*-]*", text):
            top = word.split("/")[0]
            own = top in FOLDERS or ((PACKAGE / top).is_dir() and word.endswith(".py"))
            if own and word not in ELSEWHERE and not (any(ROOT.glob(word)) or any(PACKAGE.glob(word))):
                lost.append(word)
    return lost


def parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a parser's verbs."""
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def options(parser: argparse.ArgumentParser) -> set[str]:
    """All options of a verb, and of its own verbs."""
    return set(parser._option_string_actions).union(*(options(inner) for inner in parsers(parser).values()))


OPTIONS = {verb: options(parser) for verb, parser in parsers(build_parser()).items()}


def lost_options(page: Path) -> list[str]:
    """Verbs and options of commands that rigup does not have."""
    lost = []
    for text in code(page):
        for verb, words in COMMAND.findall(re.sub(r"\$\([^)]*\)", "", text)):
            if verb not in VERBS:
                lost.append(f"rigup {verb}")
            else:
                given = set(re.findall(r"(?<!\S)--?[a-z][a-z-]*", words))
                lost += [f"rigup {verb} {option}" for option in sorted(given - OPTIONS[verb])]
    rows = re.findall(r"^\| (`--[^|]*) \|", page.read_text(), re.MULTILINE)
    return lost + sorted(set(re.findall(r"--[a-z-]+", " ".join(rows))).difference(*OPTIONS.values()))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_page_names_only_what_exists(page: Path) -> None:
    assert {"links": lost_links(page), "paths": lost_paths(page), "options": lost_options(page)} == {
        "links": [],
        "paths": [],
        "options": [],
    }


def test_the_site_has_every_page() -> None:
    named = re.findall(r"[\w./-]+\.md", (ROOT / "docs-site/mkdocs.yml").read_text())
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert len(named) == len(set(named))
    assert {page for page in pages if not page.startswith(("decisions/", "measurements/"))} == {
        page for page in named if not page.startswith("reference/")
    }


def test_readme_has_every_verb_and_the_index_every_page() -> None:
    table = (ROOT / "README.md").read_text().partition("| command |")[2].partition("\n\n")[0]
    assert {verb for verb in VERBS if not re.search(rf"`(rigup )?{verb}`", table)} == set()
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs" / "index.md").read_text()))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}


@pytest.mark.parametrize(("part", "model"), [("rig", RigInput), ("services", Service)])
def test_every_key_of_an_inventory_is_explained(part: str, model: type[BaseModel]) -> None:
    """The name of a service is the key of its entry."""
    text = (ROOT / "docs" / "inventory.md").read_text().partition(f"## `{part}`\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    assert set(re.findall(r"`([a-z_]+)`", " ".join(cells))) == model.model_fields.keys() - {"name"}


def test_every_key_of_a_gateway_is_explained() -> None:
    text = (ROOT / "docs" / "gateway.md").read_text()
    cells = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
    assert set(re.findall(r"`([a-z_]+)`", " ".join(cells))) == set(Gateway.model_fields)
    inner = {*GatewayClient.model_fields, *Certificate.model_fields}
    assert {key for key in inner if f"`{key}`" not in text} == set()


def test_what_does_not_exist_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A page, with `code`\n\n[good](#a-page-with-code) [lost](#gone) [lost](gone.md) [away](https://a.example/b)\n\n"
        "`connection/gone.py`, `connection/lease.py`, `tests/gone/`, `tests/unit/*.py`, `/run/gone.py`\n\n"
        "```\n$ rigup plan --limit a --gone=1   # --not-read\n$ rigup fly\n```\n"
        "| `--limit`, `--lost` | `--elsewhere` |\n"
    )
    assert lost_links(page) == ["#gone", "gone.md"]
    assert lost_paths(page) == ["connection/gone.py", "tests/gone/"]
    assert lost_options(page) == ["rigup plan --gone", "rigup fly", "--lost"]
