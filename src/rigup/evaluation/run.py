"""`rigup eval`: runs the harness on this machine against endpoints on hosts; one result per service."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import gevent

from rigup import layout
from rigup.connection.tunnel import tunnel
from rigup.errors import HostFailed, InputError, RigupError, Unreachable
from rigup.evaluation.harness import (
    KEY_VARIABLE,
    SCHEMA,
    EvaluationRequest,
    how_far,
    read_output,
    tail,
    unknown_tasks,
)
from rigup.facts.probe import Probe
from rigup.host import Host
from rigup.operations.primitives import jobs, remote
from rigup.operations.primitives.progress import Progress, report
from rigup.operations.service.health import endpoint
from rigup.plan import BoundPlan, Plan
from rigup.programs.bench.bench_endpoint import served_models
from rigup.programs.bench.bench_target import EndpointError, Target, ask_json
from rigup.run.service_run import about
from rigup.systemd.api_key import wants_key

POLL_SECONDS = 0.3
STOP_SECONDS = 10.0
ASK_SECONDS = 30
SHOWN_BYTES = 20_000
HUB_HINT = "allow access to the public hub, or use your own tasks with --include-path"
HUB_WORDS = ("on the Hub (", "LocalEntryNotFoundError")


def evaluate_service(
    host: Host, plan: BoundPlan, member: Plan, probe: Probe, python: Path, version: str, wanted: EvaluationRequest
) -> dict[str, Any]:
    """Evaluates one service of a host through a tunnel. Raises RigupErrors that begin with host and service.

    member: the plan of the service in `plan`, which is another one in a swap group only. python, version: of the
    harness.
    """
    unit = plan.service.name
    key = None
    if wants_key(plan.service):
        key = remote.check_output(host, "cat", f"{layout.service_folder(unit)}/api-key").strip()
    where = f"{host.name}: {member.service.name}"
    about_it = about(host.name, plan, member, probe) | {"model": member.served_name}
    with tunnel(host, endpoint(plan), layout.unit_name(unit), where) as door:
        check_endpoint(door.url, key, member.served_name, where)
        return evaluated(door.url, key, about_it, python, version, wanted)


def check_endpoint(url: str, key: str | None, model: str | None, where: str) -> str:
    """Checks the endpoint and returns the model to ask: the endpoint's first unless one is named.

    Sends requests directly, because a proxy must not see the key. Raises Unreachable; InputError for a wrong address,
    key or model; HostFailed if the address is not an OpenAI-compatible endpoint.
    """
    try:
        target = Target.of(url, key)
        status, content = ask_json(target, "/v1/models", seconds=ASK_SECONDS)
    except EndpointError as error:
        if error.kind == "input":
            raise InputError(f"--url: {error.message}", error.hint) from None
        raise Unreachable(f"{where}: not reachable", "check the service with rigup status") from None
    if status in (401, 403):
        wrong = "does not accept this API key" if key else "requires an API key"
        raise InputError(f"{where}: {wrong} (HTTP {status})", "pass the key with --api-key-file")
    models = list(served_models(content)) if status == 200 else []
    if not models:
        raise HostFailed(
            f"{where}: not an OpenAI-compatible endpoint: GET /v1/models returned HTTP {status}",
            "give the base address, without a path or with /v1",
        )
    if model is not None and model not in models:
        raise InputError(f'{where}: model "{model}" is not served', f"choose from: {', '.join(models)}")
    return model or models[0]


def evaluated(
    url: str, key: str | None, about_it: dict[str, Any], python: Path, version: str, wanted: EvaluationRequest
) -> dict[str, Any]:
    """Runs the harness against an endpoint and returns the result. about_it: with `host`, `service` and `model`.

    Raises InputError for unknown tasks, HostFailed with the last lines of output if the harness fails, and Cancelled.
    """
    where = ": ".join(part for part in (about_it["host"], about_it["service"]) if part)
    began, started = time.gmtime(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rigup-eval-") as folder:
        output, log = Path(folder) / "output", Path(folder) / "log"
        words = [str(python), *wanted.words(url, about_it["model"], output)]
        code = _run(words, wanted, _environment(url, key), log, about_it, where)
        printed = log.read_text(errors="replace")
        found = read_output(output)
    if code or found is None or not found["rigup_tasks"]:
        raise _refusal(where, code, printed, key)
    return {
        "schema": SCHEMA,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", began),
        "seconds": round(time.monotonic() - started, 1),
        "harness": found.get("lm_eval_version") or version,
        "conditions": wanted.conditions(),
        "endpoint": about_it,
        "tasks": found["rigup_tasks"],
    }


def _environment(url: str, key: str | None) -> dict[str, str]:
    """The harness's environment: the API key, and a proxy exception for the endpoint.

    Other requests, such as downloads of questions, still use the proxy. NETRC is /dev/null, as ~/.netrc would replace
    the key.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    direct = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").strip()
    if direct != "*":
        direct = f"{direct},{Target.of(url, None).host}".strip(",")
    return {
        **kept,
        "no_proxy": direct,
        "NO_PROXY": direct,
        "NETRC": os.devnull,
        KEY_VARIABLE: key or "none",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _run(
    words: list[str],
    wanted: EvaluationRequest,
    environment: dict[str, str],
    log: Path,
    about_it: dict[str, Any],
    where: str,
) -> int:
    """Runs the harness in the task folder and returns its exit status."""
    report(Progress(about_it["host"], "eval", text=f"{about_it['service']} starting the harness".strip()))
    with log.open("wb") as file:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=wanted.include,
            start_new_session=True,
        )
    reported = (0, 0)
    try:
        while process.poll() is None:
            if jobs.cancelled():
                raise jobs.Cancelled(f"{where}: cancelled; incomplete evaluations are not stored")
            if (now := how_far(_end_of(log))) != reported:
                reported = now
                report(Progress(about_it["host"], "eval", *now, "answers", text=str(about_it["service"])))
            gevent.sleep(POLL_SECONDS)
    finally:
        _end(process)
    return int(process.returncode)


def _end_of(log: Path) -> str:
    """The end of the log, which may be long and is read repeatedly."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - SHOWN_BYTES))
        return file.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stops the harness and its child processes."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_SECONDS
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        while process.poll() is None and time.monotonic() < deadline:
            gevent.sleep(0.05)


def _refusal(where: str, code: int, printed: str, key: str | None) -> RigupError:
    if names := unknown_tasks(printed):
        return InputError(
            f"--tasks: lm_eval does not know {names}", "pass the folder of your own tasks with --include-path"
        )
    last = tail(printed, key)
    if code and any(words in printed for words in HUB_WORDS):
        return Unreachable(f"{where}: the harness cannot download its questions:\n{last}", HUB_HINT)
    what = f"exited with {code}" if code else "ended without a result"
    return HostFailed(f"{where}: the harness {what}:\n{last}", "see the end of its output above")
