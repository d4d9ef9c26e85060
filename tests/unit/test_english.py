"""The language of every text: no idioms that a reader stumbles over, and no hint that asks a question.

Names of tests count as texts. `python -m tests.unit.test_english` lists the offenders by file and line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from rigup import errors
from tests.kept_by_content import KeptByContent

ROOT = Path(__file__).parents[2]
CODE = ("src/rigup", "roles", "deploy")
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
UNWANTED = {
    # "there is no ..." and "is no longer ..." are as people write
    r"(?<!\b[Tt]here )\b(is|are|was|were) no (?!(longer|better|worse)\b)[a-z]": '"not a", or "does not exist"',
    r"\banew\b": '"again", or "from scratch"',
    r"\b[Ww]hoever\b": "name the person or program",
}
# Rules of CONTRIBUTING.md quote what they forbid.
QUOTED = re.compile(r'"[^"\n]*"|`[^`\n]*`')
TEST = re.compile(r"\s*def (test_\w+)")
ERRORS = frozenset(
    name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.RigupError)
)


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string of a module; an f-string is one text, with {} where values go."""
    tree = ast.parse(source)
    within = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in within and (text := _text(node)):
            yield node.lineno, text


def hints(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every hint that is written as a string: by name, or the second argument of an error."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            given = [word.value for word in node.keywords if word.arg == "hint"]
            for value in given + (node.args[1:2] if name in ERRORS else []):
                for part in _alternatives(value):
                    yield part.lineno, _text(part)


def paragraphs(source: str) -> Iterator[tuple[int, str]]:
    """First line and text of every paragraph of a page, without its code blocks and quotations."""
    begun, lines, code = 1, [], False
    for number, line in enumerate([*source.splitlines(), ""], 1):
        fence = line.lstrip().startswith("```")
        if fence or code or not line.strip():
            if lines:
                yield begun, QUOTED.sub('""', " ".join(lines))
            begun, lines, code = number + 1, [], code != fence
        else:
            lines.append(line.strip())


def names_of_tests(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of every test of a module, as a text."""
    for number, line in enumerate(source.splitlines(), 1):
        if found := TEST.match(line):
            yield number, found[1].replace("_", " ")


def _of_module(source: bytes) -> list[tuple[int, str]]:
    text = source.decode()
    asked = [
        (line, f"{hint}: a hint is an imperative or a command") for line, hint in hints(text) if hint.endswith("?")
    ]
    return [*_unwanted(literals(text)), *asked]


def _of_page(source: bytes) -> list[tuple[int, str]]:
    return _unwanted(paragraphs(source.decode()))


def _of_tests(source: bytes) -> list[tuple[int, str]]:
    return _unwanted(names_of_tests(source.decode()))


def _unwanted(texts: Iterable[tuple[int, str]]) -> list[tuple[int, str]]:
    """Line, and what stands there with what to write instead."""
    return [
        (line, f"{_around(match)}: {advice}")
        for line, text in texts
        for pattern, advice in UNWANTED.items()
        for match in re.finditer(pattern, " ".join(text.split()))
    ]


_VERSION = Path(__file__).read_text() + " ".join(sorted(ERRORS))
of_module, of_page, of_tests = (KeptByContent(each, _VERSION) for each in (_of_module, _of_page, _of_tests))


def offenders() -> list[str]:
    """`file:line: text, what to write instead`, of every text that should be written otherwise."""
    kinds = (
        ([path for folder in CODE for path in (ROOT / folder).rglob("*.py")], of_module),
        ([path for pattern in PAGES for path in ROOT.glob(pattern)], of_page),
        ((ROOT / "tests").rglob("*.py"), of_tests),
    )
    found = [(path, line, said) for paths, kept in kinds for path in paths for line, said in kept(path.read_bytes())]
    for _, kept in kinds:
        kept.save()
    return [f"{path.relative_to(ROOT)}:{line}: {said}" for path, line, said in sorted(found)]


def test_every_text_is_plain_english() -> None:
    assert offenders() == []


def test_texts_are_found_in_strings_f_strings_docstrings_names_and_pages(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""Made anew."""\nraise InputError(f"{x} is no host", f"did you mean {y}?" if y else "is it on?")\n'
        'Finding(message="m", hint="is it on?")\n'
    )
    assert sorted(literals(module.read_text())) == [
        (1, "Made anew."),
        (2, "did you mean {}?"),
        (2, "is it on?"),
        (2, "{} is no host"),
        (3, "is it on?"),
        (3, "m"),
    ]
    assert sorted(hints(module.read_text())) == [(2, "did you mean {}?"), (2, "is it on?"), (3, "is it on?")]
    module.write_text("def test_one() -> None: ...\nclass Kind:\n    def test_two_is_no_host(self) -> None: ...\n")
    assert list(names_of_tests(module.read_text())) == [(1, "test one"), (3, "test two is no host")]
    page = tmp_path / "page.md"
    page.write_text('# Head\n\nOne is no\nfile, "anew".\n\n```\nanew\n```\nlast\n')
    assert list(paragraphs(page.read_text())) == [(1, "# Head"), (3, 'One is no file, "".'), (9, "last")]


def _alternatives(value: ast.expr) -> Iterator[ast.Constant | ast.JoinedStr]:
    """The strings that an expression can be."""
    if isinstance(value, ast.IfExp):
        yield from _alternatives(value.body)
        yield from _alternatives(value.orelse)
    elif isinstance(value, ast.BoolOp):
        for part in value.values:
            yield from _alternatives(part)
    elif isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str)):
        yield value


def _text(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    return node.value if isinstance(node.value, str) else ""


def _around(match: re.Match[str]) -> str:
    text = match.string
    return text[max(0, match.start() - 30) : match.end() + 20]


if __name__ == "__main__":
    print("\n".join(offenders()))
