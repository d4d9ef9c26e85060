"""Fetching the key, by a real shell: the engine gets it, no command line shows it, without it nothing starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from rigup.systemd.api_key import wrapped

KEY = "sk-test_0123456789"


def run(engine: str, tmp_path: Path, key: str | None) -> subprocess.CompletedProcess[str]:
    credentials, runtime = tmp_path / "credentials", tmp_path / "runtime"
    credentials.mkdir()
    runtime.mkdir()
    if key is not None:
        (credentials / "api-key").write_text(key)
    # Stands for the engine: prints its arguments, its environment and what it would read.
    script = tmp_path / "engine"
    script.write_text('#!/bin/sh\necho "args: $*"\nenv\ncat "$RUNTIME_DIRECTORY"/* 2>/dev/null\ntrue\n')
    script.chmod(0o755)
    environment = {**os.environ, "CREDENTIALS_DIRECTORY": str(credentials), "RUNTIME_DIRECTORY": str(runtime)}
    words = wrapped(engine, (str(script), "serve", "--port", "8000"))
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)


def test_vllm_finds_the_key_in_its_variable(tmp_path: Path) -> None:
    said = run("vllm", tmp_path, KEY + "\n")
    assert "args: serve --port 8000\n" in said.stdout
    assert f"VLLM_API_KEY={KEY}\n" in said.stdout


def test_sglang_finds_the_key_in_a_private_file(tmp_path: Path) -> None:
    said = run("sglang", tmp_path, KEY + "\n")
    assert "args: serve --port 8000\n" in said.stdout
    assert said.stdout.endswith(f'api-key: "{KEY}"\n')
    assert (tmp_path / "runtime" / "api-key.yaml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("key", [None, "", "\n"])
def test_nothing_starts_without_a_key(engine: str, key: str | None, tmp_path: Path) -> None:
    said = run(engine, tmp_path, key)
    assert said.returncode != 0
    assert "args:" not in said.stdout


def test_llama_cpp_reads_the_file_itself() -> None:
    assert wrapped("llama.cpp", ("bin/llama-server",)) == ("bin/llama-server",)
