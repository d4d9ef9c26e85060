"""`rigup eval`: the harness here, the endpoints there, and a result for each service."""

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
from rigup.errors import HostFailed, InputError, RigupError, Unreachable
from rigup.facts.probe import Probe
from rigup.fleet.asking import about
from rigup.fleet.evaluation_tunnel import tunnel
from rigup.operations import jobs, remote
from rigup.operations.progress import Progress, report
from rigup.plan import Plan
from rigup.programs.bench_ask import ask_json
from rigup.programs.bench_http import Target, Unusable
from rigup.render.api_key import wants_key
from rigup.verify.evaluation import (
    KEY_VARIABLE,
    SCHEMA,
    Wanted,
    how_far,
    read_output,
    tail,
    unknown_tasks,
)
from rigup.verify.generation import endpoint

POLL_SECONDS = 0.3
STOP_SECONDS = 10.0
ASK_SECONDS = 30
SHOWN_BYTES = 20_000
HUB_HINT = "the questions come from the public hub; --include-path takes tasks of your own, with their files"
HUB_WORDS = ("on the Hub (", "LocalEntryNotFoundError")


def evaluate_service(host: Any, plan: Plan, probe: Probe, python: Path, version: str, wanted: Wanted) -> dict[str, Any]:
    """Evaluates one service of a host through a tunnel. Raises RigupErrors that begin with host and service.

    python, version: of the harness.
    """
    name = plan.service.name
    key = None
    if wants_key(plan.service):
        key = remote.tell(host, "cat", f"{layout.service_folder(name)}/api-key").strip()
    where = f"{host.name}: {name}"
    about_it = about(host.name, plan, probe) | {"model": plan.served_name}
    with tunnel(host, endpoint(plan)) as url:
        check_endpoint(url, key, plan.served_name, where)
        return evaluated(url, key, about_it, python, version, wanted)


def check_endpoint(url: str, key: str | None, model: str | None, where: str) -> str:
    """The model that will be asked: the endpoint's first unless one is named.

    Asked directly: requests with a key in them are nothing for a proxy. Raises Unreachable, InputError for an address,
    a key or a model that is not the right one, HostFailed for what is no endpoint.
    """
    try:
        target = Target.of(url, key)
        status, said = ask_json(target, "/v1/models", seconds=ASK_SECONDS)
    except Unusable as error:
        if error.kind == "input":
            raise InputError(f"--url: {error.message}", error.hint) from None
        raise Unreachable(f"{where}: does not answer", "is it running? rigup status") from None
    if status in (401, 403):
        wrong = "does not accept this API key" if key else "wants an API key"
        raise InputError(f"{where}: {wrong} (HTTP {status})", "--api-key-file, beside --url")
    try:
        models = [str(entry["id"]) for entry in said["data"]] if status == 200 else []
    except (KeyError, TypeError):
        models = []
    if not models:
        raise HostFailed(
            f"{where}: is no OpenAI-compatible endpoint: GET /v1/models says HTTP {status}",
            "the address has no path but /v1",
        )
    if model is not None and model not in models:
        raise InputError(f'{where}: serves no model "{model}"', f"it serves {', '.join(models)}")
    return model or models[0]


def evaluated(
    url: str, key: str | None, about_it: dict[str, Any], python: Path, version: str, wanted: Wanted
) -> dict[str, Any]:
    """Runs the harness against an endpoint that answers; the result. about_it: with `host`, `service` and `model`.

    Raises InputError for tasks that it does not know, HostFailed with its last words where it failed, and Cancelled.
    """
    where = ": ".join(part for part in (about_it["host"], about_it["service"]) if part)
    began, started = time.gmtime(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rigup-eval-") as folder:
        output, log = Path(folder) / "output", Path(folder) / "log"
        words = [str(python), *wanted.words(url, about_it["model"], output)]
        code = _run(words, wanted, _environment(url, key), log, about_it, where)
        said = log.read_text(errors="replace")
        found = read_output(output)
    if code or found is None or not found["rigup_tasks"]:
        raise _refusal(where, code, said, key)
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
    """What the harness finds in its environment: the key, and that it goes to the endpoint directly.

    A proxy stays what it was for all else, as for questions that it fetches. ~/.netrc would take the place of the key.
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
    words: list[str], wanted: Wanted, environment: dict[str, str], log: Path, about_it: dict[str, Any], where: str
) -> int:
    """The harness's exit status. Its files of tasks are looked up where they lie."""
    report(Progress(about_it["host"], "eval", text=f"{about_it['service']} the harness begins".strip()))
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
    told = (0, 0)
    try:
        while process.poll() is None:
            if jobs.cancelled():
                raise jobs.Cancelled(f"{where}: cancelled; of an evaluation that was not ended nothing is kept")
            if (now := how_far(_end_of(log))) != told:
                told = now
                report(Progress(about_it["host"], "eval", *now, "answers", text=str(about_it["service"])))
            gevent.sleep(POLL_SECONDS)
    finally:
        _end(process)
    return int(process.returncode)


def _end_of(log: Path) -> str:
    """The last that was said: it may be much, and is looked at often."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - SHOWN_BYTES))
        return file.read().decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the harness and whatever it has started, if it runs still."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + STOP_SECONDS
        if process.poll() is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        while process.poll() is None and time.monotonic() < deadline:
            gevent.sleep(0.05)


def _refusal(where: str, code: int, said: str, key: str | None) -> RigupError:
    if names := unknown_tasks(said):
        return InputError(f"--tasks: lm_eval knows no {names}", "--include-path takes a folder with tasks of your own")
    last = tail(said, key)
    if code and any(words in said for words in HUB_WORDS):
        return Unreachable(f"{where}: the harness cannot get its questions:\n{last}", HUB_HINT)
    what = f"ended with {code}" if code else "ended without a result"
    return HostFailed(f"{where}: the harness {what}:\n{last}", "these are its last words")
