"""What a service has said with the greeting counts as facts do, and is not asked for twice."""

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
from rigup.connection import fact_cache, handshake
from rigup.facts import probe_script
from rigup.operations.service import health as generation
from rigup.plan import Plan
from rigup.project.inventory import load_project
from rigup.project.planning import plan_project
from rigup.run import finish
from rigup.run.runner import Run
from tests.serving import serving

Make = Callable[..., Run]
COMPLETION = {"choices": [{"message": {"content": "Paris."}}], "usage": {"completion_tokens": 1}}
UNIT = "rigup-chat.service"  # every process here is taken for one of its own
UNIT_OF = "def unit_of(pid: str) -> str:\n"
PROBE = """
probe() { echo 'os debian-12'; echo 'service chat 1'; echo 'release chat {}'; }
"""


class Service(ThreadingHTTPServer):
    """A service that answers while `well`; counts the completions that were asked of it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.well, self.asked = True, 0


class Handler(BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self._say({})

    def do_POST(self) -> None:
        self.server.asked += 1
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say(COMPLETION)

    def _say(self, body: dict[str, Any]) -> None:
        self.send_response(200 if self.server.well else 500)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture
def service() -> Iterator[Service]:
    with serving(Service()) as running:
        yield running


@pytest.fixture
def apply(local_run: Make, service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Applies a fleet of one host, on which nothing differs, and returns the run; its service is `service`."""
    programs = Path(rigup.programs.__file__).parent
    own = f"import sys; sys.path[0:0] = [{str(programs)!r}]; import listeners; listeners.unit_of = lambda pid: {UNIT!r}"
    program = (sys.executable, "-IS", "-c", f"{own}; import ask; ask.main()")
    for module in (generation, finish):
        monkeypatch.setattr(module, "ASK", program)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(layout, "APPLY_RECORDS", str(tmp_path / "log/applies.jsonl"))
    _, _, nvidia = probe_script.definitions().partition("\nnvidia() {")
    nvidia = nvidia.replace(UNIT_OF, f"{UNIT_OF}    return {UNIT!r}\n")
    shell = f'{PROBE}within() {{ timeout "$@"; }}\nenglish() {{ :; }}\nnvidia() {{{nvidia}'
    monkeypatch.setattr(handshake, "probe_definitions", lambda: shell)

    def run(served_name: str = "chat", services: bool = True, role: Callable[[Path], None] = lambda root: None) -> Run:
        with local_run({"box": role}) as made:
            made.context.connections.services = True
            made.context.plans = {"box": (planned(tmp_path, service.server_port, served_name),) if services else ()}
            made.connect(take_lease=False)
            made.compare(take_lease=True)
            made.execute()
        return made

    return run


def planned(root: Path, port: int, name: str) -> Plan:
    """A plan of a service at this port, called that by whoever asks it."""
    for folder in ("inventories", "group_data"):
        (root / folder).mkdir(exist_ok=True)
    (root / "inventories/lan.py").write_text('box = ["box"]')
    chat = {"model": "SmolLM2-135M-Instruct", "context": 1024, "port": port, "served_name": name}
    (root / "group_data/box.py").write_text(f"rig = {{'gpus': []}}\nservices = {{'chat': {chat!r}}}\n")
    (plan,) = plan_project(load_project(str(root / "inventories/lan.py"), None))
    assert plan.verdict == "ok"
    return plan


def answers(run: Run) -> list[str]:
    result = run.results["box"]
    assert (result.state, result.errors) == ("unchanged", [])
    return [answer.text for answer in result.answers]


def test_a_service_that_answered_the_greeting_is_not_asked_again(apply: Callable[..., Run], service: Service) -> None:
    assert (answers(apply()), service.asked) == (["Paris."], 1)
    assert (answers(apply()), service.asked) == (["Paris."], 2)


def test_one_that_did_not_is_asked_by_itself(
    apply: Callable[..., Run], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply()
    recovers = finish.finish_host

    def later(*given: Any) -> Any:
        service.well = True
        return recovers(*given)

    service.well = False
    monkeypatch.setattr(finish, "finish_host", later)
    assert (answers(apply()), service.asked) == (["Paris."], 3)


def test_another_question_than_last_time_s_is_asked_and_remembered(
    apply: Callable[..., Run], service: Service, tmp_path: Path
) -> None:
    apply()
    apply("renamed")
    assert service.asked == 3  # the old question with the greeting, the new one by itself
    assert [line.split()[0] for line in (tmp_path / "questions").read_text().splitlines()] == ["#ask"]
    apply("renamed")
    assert service.asked == 4


def test_a_service_that_is_gone_is_not_asked_any_more(
    apply: Callable[..., Run], service: Service, tmp_path: Path
) -> None:
    apply()
    apply(services=False)
    apply(services=False)
    assert service.asked == 2
    assert "#ask" not in (tmp_path / "questions").read_text()


def test_an_answer_does_not_outlive_a_fact(
    apply: Callable[..., Run], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply()
    monkeypatch.setattr(fact_cache, "FRESH_SECONDS", 0.0)
    assert (answers(apply()), service.asked) == (["Paris."], 3)


def test_an_answer_from_before_a_change_does_not_count(apply: Callable[..., Run], service: Service) -> None:
    apply()
    run = apply(role=lambda root: server.shell(name="touches", commands=["true"]))
    assert (run.results["box"].state, service.asked) == ("changed", 3)


def test_a_verb_that_wants_no_answer_asks_no_service(
    apply: Callable[..., Run], service: Service, local_run: Make
) -> None:
    apply()
    with local_run({"box": lambda root: None}) as run:
        run.connect(take_lease=False)
    assert service.asked == 1
