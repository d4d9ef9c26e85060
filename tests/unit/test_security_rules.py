"""Ruff's security rules are on for all that is shipped, and each exception says why it is one."""

from __future__ import annotations

import re
import tomllib

from tests.unit.test_import_direction import FILES, ROOT

LINT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]


def test_each_exception_in_the_code_has_its_reason() -> None:
    exceptions = [
        (name, line.strip())
        for name, path in FILES.items()
        for line in path.read_text().splitlines()
        if re.search(r"# noqa: .*\bS\d", line)
    ]
    assert len(exceptions) > 5
    assert [found for found in exceptions if not re.search(r"# noqa: [A-Z0-9, ]*S\d+  \w", found[1])] == []


def test_each_exception_in_the_settings_has_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text().splitlines()
    assert "S" in LINT["select"]
    for rule in (rule for rule in LINT["ignore"] if rule.startswith("S")):
        assert any(re.search(rf'"{rule}", # \w', line) for line in text)
    for files, rules in LINT["per-file-ignores"].items():
        if any(rule.startswith("S") for rule in rules):
            (index,) = (number for number, line in enumerate(text) if line.startswith(f'"{files}" ='))
            above = text[index - 1]
            assert above.startswith(("# ", '"')), files


def test_nothing_that_is_shipped_is_left_out() -> None:
    assert not [files for files, rules in LINT["per-file-ignores"].items() if "S" in rules and "src" in files]
    assert not {"exclude", "extend-exclude"} & LINT.keys()
