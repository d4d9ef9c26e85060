"""Waits for a service to be healthy, then sends it a question, because /health does not test the model."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import gevent

from rigup import layout
from rigup.errors import HostFailed, HostLost, RigupError
from rigup.facts.manifest import listening
from rigup.host import Host, state_of
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.answer import Answer, Answers
from rigup.operations.service.held import changed_since
from rigup.operations.service.reply import Reply, read_reply
from rigup.plan import Plan
from rigup.systemd.api_key import wants_key
from rigup.systemd.release import EXPECTED_KEY, MEMBERS_KEY
from rigup.units import seconds_text

QUESTION = "What is the capital of France? Answer in one sentence."
ASK = ("python3", "-EsS", f"{layout.PROGRAMS}/ask.py")  # the standard library and the programs in the same folder
ANSWER_SECONDS = 300
GREETING_TOKENS = 256  # a model that thinks first names the answer within so many; others end by themselves
JUDGED_TOKENS = 64  # enough to see that an answer without an expected word does nothing but repeat itself
RELEASE_SECONDS = 1800.0
LOST_SECONDS = 60.0
"""How long a host that has stopped responding is tried again: sshd was silent for as long before, and the next apply
goes on with the check."""
_ROUND = {"wait_s": 5, "timeout_s": ANSWER_SECONDS}

GONE = "check that the host is on, then run the same command again"


class NotReady(HostFailed):
    """Raised when a service does not become healthy in time."""


Expected = Mapping[str, Mapping[str, str]]
"""By the name of a model: its service, and the word that its answer must contain, or "", as `ask.py` explains."""


def ask_service(
    host: Host,
    plan: Plan,
    expected: Expected | None = None,
    wait_s: float | None = None,
    timeout_s: int = ANSWER_SECONDS,
    given_up: Callable[[], str] = str,
    least: int = 1,
) -> Answer:
    """Asks the plan's service on this host. Raises NotReady after `wait_s` (default: the plan's), HostFailed before.

    expected: what its release expects, see `expected_of`. timeout_s: for the answer itself. given_up: returns why
    waiting is pointless, "" while it is not. least: see `request_of`.
    """
    request = request_of(plan, expected, least) | {"timeout_s": timeout_s}
    return _ask(host, plan.service.name, request, plan.start_timeout_s if wait_s is None else wait_s, given_up)


def ask_after_start(host: Host, plan: Plan, given_up: Callable[[], str] = str) -> Answer:
    """Asks a service that was started. Raises like `ask_service`, and also if the answer is not the expected one.

    Of a swap group each model is loaded and asked, the first one last, so that it is resident afterwards.
    """
    expected = {
        each.served_name: {"service": each.service.name, "answer": word}
        for each in plan.members or (plan,)
        if (word := each.service.expected_answer) is not None
    }
    for member in (*plan.members[1:], *plan.members[:1]):
        request = _of_member(plan, member, expected, GREETING_TOKENS)
        answer = _ask(host, plan.service.name, request, plan.start_timeout_s, given_up, member.service.name)
        said = f"{member.service.name}: loaded and answered in {seconds_text(answer.seconds)}"
        report(Progress(host.name, "log", text=said))
    if plan.members:
        return answer
    return ask_service(host, plan, expected, given_up=given_up, least=GREETING_TOKENS)


def load_member(host: Host, plan: Plan, member: Plan) -> None:
    """Has the model of a service that takes turns loaded, so that nothing after it waits for that. Raises HostFailed.

    plan: of its whole group.
    """
    report(Progress(host.name, "service", text=f"loading {member.service.name}"))
    _ask(host, member.service.name, _of_member(plan, member, {}), plan.start_timeout_s)


def _of_member(plan: Plan, member: Plan, expected: Expected, least: int = 1) -> dict[str, Any]:
    """The request for `ask.py` about one model of a swap group, whichever is resident."""
    asked = {"model": member.served_name, "swaps": False, "timeout_s": ANSWER_SECONDS + member.start_timeout_s}
    return request_of(plan, expected, least) | asked


def expected_of(service: str, manifest: Mapping[str, Any]) -> Expected:
    """What a release expects of the answers of its models.

    Nothing for one that an earlier rigup made, or whose service expects nothing.
    """
    named = {one["model"]: (name, one) for name, one in (manifest.get(MEMBERS_KEY) or {}).items()}
    alone = {address_and_model(manifest.get("command") or ())[1]: (service, manifest)}
    return {
        model: {"service": name, "answer": answer}
        for model, (name, of) in (named or alone).items()
        if (answer := of.get(EXPECTED_KEY)) is not None
    }


def _tokens(expected: Expected | None, least: int) -> int:
    """How many tokens an answer needs, to be judged."""
    words = [one["answer"] for one in (expected or {}).values()]
    return max(least, GREETING_TOKENS if any(words) else JUDGED_TOKENS if words else 0)


def request_of(plan: Plan, expected: Expected | None = None, least: int = 1) -> dict[str, Any]:
    """The request for `ask.py` about the plan's service; of a swap group, about the model that is resident.

    expected: see `expected_of`. least: tokens of the answer where nothing is; more are asked for where that needs more.
    """
    name = plan.service.name
    return {
        "url": endpoint(plan),
        "health": plan.health_path,
        "model": plan.served_name,
        "question": QUESTION,
        "max_tokens": _tokens(expected, least),
        "expected": expected or {},
        "key_file": layout.api_key_file(name) if wants_key(plan.service) else None,
        **_ROUND,
        "unit": layout.unit_name(name),
        "swaps": bool(plan.members),
    }


def ask_release(
    host: Host,
    manifest: Mapping[str, Any],
    service: str,
    wait_s: float = RELEASE_SECONDS,
    given_up: Callable[[], str] = str,
) -> Answer:
    """Sends a question to the address and model name in the argv of a release, which must answer as it expects.

    Raises like `ask_service`.

    The router of a swap group is healthy before its model is loaded, so that the answer may take as long as the start.
    """
    command = manifest.get("command") or ()
    address, name = address_and_model(command)
    expected = expected_of(service, manifest)
    timeout_s = max(ANSWER_SECONDS, int(wait_s)) if "--models-preset" in command else ANSWER_SECONDS
    key_file = layout.api_key_file(service)
    request = {
        "url": address,
        "health": "/health",
        "model": name,
        "question": QUESTION,
        "max_tokens": _tokens(expected, 48),
        "expected": expected,
        "key_file": key_file if remote.run(host, "test", "-f", key_file).ok else None,
        **_ROUND,
        "timeout_s": timeout_s,
        "unit": layout.unit_name(service),
    }
    return _ask(host, service, request, wait_s, given_up)


def _ask(
    host: Host,
    name: str,
    request: dict[str, Any],
    wait_s: float,
    given_up: Callable[[], str] = str,
    member: str = "",
) -> Answer:
    """member: of a swap group, the service that is asked, for messages."""
    began, lost_since = time.monotonic(), None
    while True:
        jobs.check_cancelled(f"{host.name}: {name}: cancelled during the health check")
        try:
            reply, lost_since = _ask_once(host, request), None
        except remote.CONNECTION_ERRORS:  # a model may load for many minutes: tolerate a lost connection
            lost_since = lost_since or time.monotonic()
            if time.monotonic() - lost_since > LOST_SECONDS:
                raise HostLost(
                    f"{host.name}: {name}: the host has stopped responding during the health check", GONE
                ) from None
            reply = Reply(state="starting", why="connection lost, reconnecting")
            remote.reconnect(host)
        if reply.state == "answered":
            return keep_answer(host, name, reply)
        if reply.state == "failed":
            raise _changed(host, name, f"{host.name}: {member or name}: health check failed: {reply.why}")
        if why := given_up():
            raise HostFailed(f"{host.name}: {name}: health check failed: {why}")
        if (waited := time.monotonic() - began) > wait_s:
            late = f"{host.name}: {name} did not become healthy within {waited:.0f} s: {reply.why}"
            raise _changed(host, name, late, NotReady)
        report(Progress(host.name, "service", text=f"waiting for {name}: {reply.why}"))
        gevent.sleep(0.2)


def of_lost_host(host: Host, error: BaseException, state: str) -> HostLost | None:
    """The error to raise in place of one that means that the host is gone, so that nothing can be put back there.

    state: what is left there. None if the host responds.
    """
    if isinstance(error, HostLost) or not (isinstance(error, RigupError) or remote.reconnect(host)):
        return HostLost(f"{remote.words_of(host, error)}; {state}", GONE)
    return None


def _changed(host: Host, name: str, problem: str, kind: type[HostFailed] = HostFailed) -> HostFailed:
    """The error, with what has changed since the release last answered, if it has, and the way back."""
    since, hint = changed_since(host, name)
    return kind(f"{problem}; {since}", hint) if since else kind(problem)


def keep_answer(host: Host, service: str, reply: Reply) -> Answer:
    """Stores the answer in a reply of `ask.py` for the report on this run, and returns it."""
    answer = Answer(host.name, service, reply.text, reply.tokens, reply.seconds, reply.tokens_per_second, reply.model)
    state_of(host, Answers).by_service[service] = answer
    return answer


def _ask_once(host: Host, request: dict[str, Any]) -> Reply:
    output = remote.run(host, *ASK, stdin=json.dumps(request), timeout=request["timeout_s"] + 60)
    for line in reversed(output.stdout.splitlines()):
        if line.startswith("{"):
            return read_reply(line)
    return Reply(state="failed", why=output.last_line[:300])


def endpoint(plan: Plan) -> str:
    """The service's address on its own host."""
    return local_address(plan.service.listen, plan.service.port)


def address_and_model(command: Sequence[str]) -> tuple[str, str]:
    """The address and the model's name in the command line of an engine; "" for a name that it does not give."""
    given = dict(pairwise(command))
    name = given.get("--alias") or given.get("--served-model-name") or ""
    return local_address(*listening(command)), name


def local_address(listen: str, port: int, tls: bool = False) -> str:
    """The URL at which the host itself reaches a service that listens there."""
    any_address = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104  connected to, not bound
    address = any_address.get(listen, f"[{listen}]" if ":" in listen else listen)
    return f"{'https' if tls else 'http'}://{address}:{port}"
