"""HAProxy and the real smg with the rendered files and options: what begins alike meets the same engine, or another."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rigup.cache import cache_folder
from rigup.gateway.cache_aware import smg_command
from rigup.gateway_settings import Gateway, GatewayPlan, Route
from rigup.operations.builds.wheels import fetch_wheel
from rigup.operations.gateway import admin
from rigup.programs import program_file
from tests.gateways import SMG
from tests.lab.fleet import wait_for
from tests.unit.gateway.test_haproxy_running import CHAT, KEY, Engine, ask, backend, running
from tests.unit.local_host import LocalHost

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("haproxy", path="/usr/sbin:/usr/bin") is None, reason="haproxy is not installed"),
    pytest.mark.rests_on("gateways"),
]
LONG = "You are an assistant of a library. " * 20


@dataclass
class Site:
    """A gateway with engines behind it, and the smg that chooses among them."""

    folder: Path
    port: int
    engines: list[Engine]
    smg: subprocess.Popen[bytes]

    def ask(self, beginning: str, question: str = "?", **more: Any) -> int:
        """The status of an answer to a question that begins so."""
        messages = [{"role": "system", "content": beginning}, {"role": "user", "content": question}]
        return ask(self.port, {"model": "big", "messages": messages, **more})[0]

    def asked(self) -> list[int]:
        """How many requests each engine has had since this was asked last."""
        counts = [len(engine.heard) for engine in self.engines]
        for engine in self.engines:
            engine.heard.clear()
        return counts

    def stat(self) -> dict[str, dict[str, str]]:
        """The rows of HAProxy's statistics by full name."""
        host: Any = LocalHost()
        rows = admin.tell(host, "show stat")[0].removeprefix("# ").splitlines()
        found = [dict(zip(rows[0].split(","), row.split(","), strict=False)) for row in rows[1:]]
        return {f"{row['pxname']}/{row['svname']}": row for row in found}

    def tell(self, *commands: str) -> None:
        host: Any = LocalHost()
        assert "".join(admin.tell(host, *commands)) == ""

    def wait_for_smg(self) -> None:
        """Waits until HAProxy has found smg ready; it takes a server for up before it has asked."""
        deadline = time.monotonic() + 20
        while self.stat()["cached-big/smg"]["check_status"] != "L7OK":
            assert time.monotonic() < deadline, (self.folder / "smg.log").read_text()
            time.sleep(0.1)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the locked release, from the package index."""
    name = SMG.wheel("x86_64")
    assert name is not None
    folder = tmp_path_factory.mktemp("smg")
    with zipfile.ZipFile(fetch_wheel(name, SMG.files[name], cache_folder() / "sources")) as wheel:
        wheel.extractall(folder)
    return folder


@contextmanager
def started(program: Path, plan: GatewayPlan, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    words = [sys.executable, "-I", str(program_file("gateway_cache.py")), str(program), *smg_command(plan)]
    with log.open("w") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def two_free_ports() -> int:
    """The first of two ports that follow each other and that the kernel gives to no connection."""
    for port in range(20_000, 30_000, 2):
        with socket.socket() as first, socket.socket() as second, suppress(OSError):
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 1))
            return port
    raise AssertionError("no free ports")


@pytest.fixture
def site(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    words = (sys.executable, "-I", str(program_file("gateway_admin.py")), str(tmp_path / "a.sock"))
    monkeypatch.setattr(admin, "WORDS", words)
    with ExitStack() as stack:
        engines = [Engine(), Engine()]
        for engine in engines:
            stack.callback(engine.end)
        ports = [engine.server_port for engine in engines]
        about: dict[str, Any] = {"kind": "cache_aware", "cache_port": two_free_ports()}
        port = stack.enter_context(running(tmp_path, {"big": ports}, **about))
        routes = (Route(model="big", backends=tuple(backend(port, number) for number, port in enumerate(ports))),)
        plan = GatewayPlan(host="h", group="g", gateway=Gateway(**about), routes=routes)
        smg = stack.enter_context(started(program, plan, tmp_path / "smg.log"))
        found = Site(tmp_path, port, engines, smg)
        found.wait_for_smg()
        yield found


def test_what_begins_alike_meets_the_same_engine(site: Site) -> None:
    beginnings = [f"{name} {LONG}" for name in ("Ada", "Bob", "Eve", "Kim")]
    first = []
    for beginning in beginnings:
        assert site.ask(beginning) == 200
        first.append(site.asked())
    assert {tuple(counts) for counts in first} <= {(1, 0), (0, 1)}
    for _ in range(3):
        for beginning, where in zip(beginnings, first, strict=True):
            assert site.ask(beginning, "and now?") == 200
            assert site.asked() == where


def test_keys_and_models_are_haproxys(site: Site) -> None:
    assert ask(site.port, {"model": "big", "messages": []}, key="wrong")[0] == 401
    assert ask(site.port, {"model": "nobody's", "messages": []})[0] == 404
    assert site.asked() == [0, 0]
    site.engines[0].heard.clear()
    site.ask(LONG)
    heard = [one for engine in site.engines for one in engine.heard]
    assert [one["authorization"] for one in heard] == [f"Bearer {'e' * 32}"]
    assert KEY not in (site.folder / "smg.log").read_text()


def test_a_drained_engine_gets_nothing_at_once_and_is_told_apart(site: Site) -> None:
    site.ask(LONG)
    where = site.asked().index(1)
    server = f"model-big/h{where}.s"
    site.tell(f"set server {server} state drain")
    assert {site.ask(LONG, str(number)) for number in range(5)} == {200}
    assert site.asked()[where] == 0
    site.tell(f"set server {server} state ready")
    assert site.stat()["cached-big/smg"]["status"] == "UP"


def test_an_engine_that_dies_is_left_out(site: Site) -> None:
    site.ask(LONG)
    where = site.asked().index(1)
    site.engines[where].end()
    assert {site.ask(LONG, str(number)) for number in range(8)} == {200}
    assert site.asked()[1 - where] == 8


def test_without_smg_haproxy_chooses(site: Site) -> None:
    failed: list[int] = []
    enough = threading.Event()

    def keep_asking() -> None:
        while not enough.is_set():
            if (status := site.ask(LONG)) != 200:
                failed.append(status)

    asking = threading.Thread(target=keep_asking)
    asking.start()
    try:
        wait_for(lambda: any(engine.heard for engine in site.engines), "answers by smg's choice")
        site.smg.terminate()
        site.smg.wait(30)
        wait_for(lambda: site.stat()["cached-big/smg"]["status"] == "DOWN", "HAProxy to find smg down")
        site.asked()
        wait_for(lambda: any(engine.heard for engine in site.engines), "answers without smg")
    finally:
        enough.set()
        asking.join()
    assert failed == []
    site.asked()
    assert {site.ask(LONG) for _ in range(6)} == {200}
    assert site.asked() == [3, 3]


def test_an_answer_that_breaks_off_is_told_as_an_error(site: Site) -> None:
    """smg adds its own [DONE] after the error, which HAProxy alone does not."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # stands for an engine that dies in the middle of a stream
        def die() -> None:
            link, _ = listener.accept()
            link.recv(65536)
            event = b'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
            head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
            link.sendall(head + b"%x\r\n%s\r\n" % (len(event), event))
            time.sleep(0.3)
            link.close()

        for number in (0, 1):
            name = f"model-big/h{number}.s"
            site.tell(f"set server {name} health up")
        dying = threading.Thread(target=die)
        dying.start()
        host: Any = LocalHost()
        port = listener.getsockname()[1]
        admin.tell(host, *(f"set server model-big/h{number}.s addr 127.0.0.1 port {port}" for number in (0, 1)))
        text = stream(site.port)
        dying.join()
    assert "x-smg-" not in text
    assert '"one"' in text
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    assert "error" in json.loads(events[-1])


def stream(port: int) -> str:
    """All that a client gets of a stream."""
    body = json.dumps({"model": "big", "messages": [{"role": "user", "content": "?"}], "stream": True})
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as link:
        link.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        said = b""
        while part := link.recv(65536):
            said += part
    return said.decode()
