"""The proxy of logins becomes that of units: its variables alone, in any form that /etc/environment has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rigup.layout import RUNTIME
from rigup.operations.primitives import proxy


def noted(folder: Path, environment: str | None) -> tuple[list[str], list[str]]:
    """What a unit gets, and what a script that exports it has; everything is in this folder."""
    source, runtime = folder / "environment", folder / "run"
    if environment is not None:
        source.write_text(environment)
    text = proxy.EXPORT.replace(proxy.SOURCE, str(source)).replace(RUNTIME, str(runtime))
    words = ["env", "-i", "PATH=/usr/bin:/bin", "sh", "-euc", f"{text}\nenv"]
    there = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    file = runtime / Path(proxy.FILE).name
    assert file.stat().st_mode & 0o777 == 0o600, "it may hold a password"
    return file.read_text().splitlines(), sorted(line for line in there if "proxy" in line.split("=")[0].lower())


@pytest.mark.parametrize(
    ("line", "variable"),
    [
        ("http_proxy=http://proxy:3128", "http_proxy=http://proxy:3128"),
        ('https_proxy="http://u:p%40x@proxy:3128/"', "https_proxy=http://u:p%40x@proxy:3128/"),
        ("export NO_PROXY='localhost,.lan'", "NO_PROXY=localhost,.lan"),
        ("all_proxy=socks5h://proxy:1080   ", "all_proxy=socks5h://proxy:1080"),
    ],
)
def test_each_form_of_a_variable(tmp_path: Path, line: str, variable: str) -> None:
    assert noted(tmp_path, f"PATH=/odd\n{line}\n") == ([variable], [variable])


@pytest.mark.parametrize(
    "environment",
    [None, "", "PATH=/odd\nLD_LIBRARY_PATH=/x\n", "http_proxyx=1\n", "# http_proxy=x\n", 'http_proxy=a"b\n'],
)
def test_nothing_else_is_handed_on(tmp_path: Path, environment: str | None) -> None:
    assert noted(tmp_path, environment) == ([], [])
