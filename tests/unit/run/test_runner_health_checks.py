"""A run asks each service once at its end, whether it has changed anything or not."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyinfra.operations import server

import rigup.programs
from rigup import layout
from rigup.connection import handshake
from rigup.operations.service import health
from rigup.plan import Plan
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.run import finish
from rigup.run.runner import Run
from tests.serving import serving

Make = Callable[..., Run]
COMPLETION = {"choices": [{"message": {"content": "Paris."}}], "usage": {"completion_tokens": 1}}
UNIT = "rigup-chat.service"  # every process here is taken for one of its own
PROBE = """
probe() { echo 'os debian-12'; echo 'service chat 1'; echo 'release chat {}'; }
nvidia() { :; }
"""


class Service(ThreadingHTTPServer):
    """A service that counts the completions that were asked of it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.asked = 200, 0


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self._say(200, {})

    def do_POST(self) -> None:
        self.server.asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(self.server.status, COMPLETION)

    def _say(self, status: int, body: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(Service()) as running:
        yield running


@pytest.fixture
def run(local_run: Make, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Looks at a fleet of one host, which serves `service`, and applies it; returns the run."""
    programs = Path(rigup.programs.__file__).parent
    own = f"import sys; sys.path[0:0] = [{str(programs)!r}]; import listeners; listeners.unit_of = lambda pid: {UNIT!r}"
    running = "import ask; ask.unit_state = lambda unit: ('active', 0)"  # it is not a unit here
    program = (sys.executable, "-IS", "-c", f"{own}; {running}; ask.main()")
    for module in (health, finish):
        monkeypatch.setattr(module, "ASK", program)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(layout, "APPLY_RECORDS", str(tmp_path / "log/applies.jsonl"))

    def run(role: Callable[[Path], None] = lambda root: None, execute: bool = True) -> Run:
        with local_run({"box": role}) as made:
            monkeypatch.setattr(handshake, "probe_definitions", lambda: PROBE)
            made.context.plans = {"box": (planned(tmp_path, service.server_port),)}
            made.connect(take_lease=False)
            made.compare(take_lease=execute)
            if execute:
                made.execute()
        return made

    return run


def planned(root: Path, port: int) -> Plan:
    """A plan of a service at this port."""
    for folder in ("inventories", "group_data"):
        (root / folder).mkdir(exist_ok=True)
    (root / "inventories/lan.py").write_text('box = ["box"]')
    chat = {"model": "SmolLM2-135M-Instruct", "context": 1024, "port": port}
    (root / "group_data/box.py").write_text(f"rig = {{'gpus': []}}\nservices = {{'chat': {chat!r}}}\n")
    (plan,) = plan_project(load_project(str(root / "inventories/lan.py"), None))
    assert plan.verdict == "ok"
    return plan


def change(root: Path) -> None:
    server.shell(name="touches", commands=["true"])


@pytest.mark.parametrize(("role", "state"), [(lambda root: None, "unchanged"), (change, "changed")])
def test_each_run_asks_once(
    run: Callable[..., Run], service: Service, role: Callable[[Path], None], state: str
) -> None:
    for count in (1, 2):
        result = run(role).results["box"]
        assert (result.state, result.errors, [answer.text for answer in result.answers]) == (state, [], ["Paris."])
        assert service.asked == count


@pytest.mark.parametrize("role", [lambda root: None, change], ids=["unchanged", "changed"])
def test_a_service_that_answers_no_more_fails_its_host(
    run: Callable[..., Run], service: Service, role: Callable[[Path], None]
) -> None:
    run(role)
    service.status = 500
    result = run(role).results["box"]
    (error,) = result.errors
    assert result.state == "failed"
    assert error.message.startswith("box: chat: health check failed: HTTP 500")


def test_comparing_asks_no_service(run: Callable[..., Run], service: Service) -> None:
    run()
    run(execute=False)
    assert service.asked == 1
