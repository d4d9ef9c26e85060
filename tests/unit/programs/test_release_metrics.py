"""What release_metrics.py says of a host's services and of its last apply."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from rigup.programs import release_metrics

MANIFEST: dict[str, Any] = {
    "build": "vllm-0.33.0-abc",
    "checkpoint": {"repo": 'org/a"b\\c', "quant": "FP8", "revision": "0123456789abcdef"},
    "command": [],
}
RECORD = {
    "schema": 1,
    "when": "2026-11-21 20:15:00 UTC",
    "rigup": "0.1.0",
    "lock": "l",
    "commit": "c",
    "result": "changed",
}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two services, one of which has no release, and a record whose last line was cut short."""
    release = tmp_path / "services/chat/releases/7"
    release.mkdir(parents=True)
    (release / "release.json").write_text(json.dumps(MANIFEST))
    os.utime(release / "release.json", (1_700_000_000, 1_700_000_000))
    (release / "answered").touch()
    (tmp_path / "services/chat/current").symlink_to("releases/7")
    (tmp_path / "services/empty").mkdir()
    (tmp_path / "services/empty/current").symlink_to("releases/1")
    (tmp_path / "applies.jsonl").write_text(json.dumps(RECORD) + '\n{"schema": 1, "wh')
    monkeypatch.setattr(release_metrics, "_state", lambda name: {"ActiveState": "active", "NRestarts": "2"})
    return tmp_path


def written(host: Path) -> str:
    file = host / "rigup.prom"
    release_metrics.main(str(file), str(host / "services"), str(host / "applies.jsonl"))
    assert [path.name for path in host.iterdir() if path.name.startswith("rigup.prom")] == ["rigup.prom"]
    return file.read_text()


def test_the_release_of_each_service_and_the_last_whole_record(host: Path) -> None:
    samples = [line for line in written(host).splitlines() if not line.startswith("#")]
    assert samples == [
        'rigup_release_info{service="chat",release="7",repo="org/a\\"b\\\\c",quant="FP8",build="vllm-0.33.0-abc",'
        'revision="0123456789ab"} 1',
        'rigup_release_timestamp_seconds{service="chat"} 1700000000',
        'rigup_release_answered{service="chat"} 1',
        'rigup_service_active{service="chat"} 1',
        'rigup_service_stopped{service="chat"} 0',
        'rigup_service_restarts{service="chat"} 2',
        'rigup_apply_info{rigup="0.1.0",lock="l",commit="c",result="changed"} 1',
        "rigup_apply_timestamp_seconds 1795292100",
    ]


def test_of_services_that_take_turns_each_has_its_checkpoint_in_the_release_of_the_first(host: Path) -> None:
    other = {**MANIFEST["checkpoint"], "quant": "Q4_1"}
    members = {"chat": {"checkpoint": MANIFEST["checkpoint"]}, "coder": {"checkpoint": other}}
    (host / "services/chat/releases/7/release.json").write_text(json.dumps(MANIFEST | {"members": members}))
    lines = [line for line in written(host).splitlines() if line.startswith("rigup_release_info{")]
    assert [('release="7"' in line, line.partition("quant=")[2][:6].strip('",')) for line in lines] == [
        (True, "FP8"),
        (True, "Q4_1"),
    ]
    assert [line.split('"')[1] for line in lines] == ["chat", "coder"]
    assert written(host).count("rigup_service_active{") == 1


def test_each_metric_is_explained_once_and_its_samples_are_together(host: Path) -> None:
    (host / "services/more").symlink_to("chat")
    lines = written(host).splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert names == list(dict.fromkeys(names))
    assert names == [name for name in release_metrics.HELP if not name.startswith("rigup_gateway_")]
    at = [lines.index(f"# TYPE {name} gauge") for name in names]
    for begin, end in zip(at, [*at[1:], len(lines)], strict=True):
        samples = [line for line in lines[begin + 1 : end] if not line.startswith("#")]
        assert samples and all(sample.startswith(lines[begin].split()[2]) for sample in samples)


def test_a_service_that_systemd_cannot_be_asked_of_and_a_host_without_a_record(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_metrics, "_state", lambda name: {})
    (host / "applies.jsonl").unlink()
    assert "rigup_service_active" not in written(host) and "rigup_apply" not in written(host)
    assert 'rigup_release_answered{service="chat"} 1' in written(host)


@pytest.mark.parametrize("damaged", ["[1]", "7", '{"checkpoint": [1]}', '{"members": {"a": 1}}', "[" * 20_000, "\x00"])
def test_a_damaged_release_or_record_costs_nothing_else(host: Path, damaged: str) -> None:
    other = host / "services/broken/releases/1"
    other.mkdir(parents=True)
    (other / "release.json").write_text(damaged)
    (host / "services/broken/current").symlink_to("releases/1")
    (host / "applies.jsonl").write_text("\n".join([json.dumps(RECORD), damaged, '{"when": [1]}', '"when"']))
    said = written(host)
    assert 'service="broken"' not in said
    assert 'rigup_release_info{service="chat"' in said and "rigup_apply_info{" in said


USED = "# table: usage\n0x1: key=team-a/org/m:1 use=0 exp=0 http_req_cnt=5 http_fail_cnt=x\n"
ENDS = "Status: Used\nnotBefore: Nov 23 12:00:00 2026 GMT\nnotAfter: Jan  2 00:00:00 2030 GMT\n"


@pytest.mark.parametrize(
    ("said", "samples"),
    [
        (
            {"show table usage": USED},
            [("rigup_gateway_requests_total", {"client": "team-a", "model": "org/m:1"}, 5.0)],
        ),
        ({"show ssl cert": ENDS}, [("rigup_gateway_certificate_end_timestamp_seconds", {}, 1893542400)]),
        ({"show ssl cert": "notAfter: soon\n", "show table usage": "Unknown table\nkey= http_req_cnt=1"}, []),
    ],
    ids=["usage", "certificate", "nonsense"],
)
def test_what_a_gateway_says_of_itself(
    tmp_path: Path, said: dict[str, str], samples: list[tuple[str, dict[str, str], float]]
) -> None:
    path = str(tmp_path / "admin.sock")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()

        def answer() -> None:
            for _ in range(2):
                link, _ = listening.accept()
                with link:
                    command = link.recv(100).decode()
                    link.sendall(next((text for key, text in said.items() if command.startswith(key)), "").encode())

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        assert list(release_metrics.gateway(path)) == samples
        thread.join(60)
    assert list(release_metrics.gateway(path)) == []
