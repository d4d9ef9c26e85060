"""`rigup chat`: talks to a service through a tunnel: one prompt, or a conversation on a terminal."""

from __future__ import annotations

import argparse
import os
import select
import sys

from gevent.event import Event

from rigup.cli.output import results as summary
from rigup.cli.output.console import Console
from rigup.cli.output.lines import print_json, tell
from rigup.cli.output.typed_words import add_number
from rigup.cli.sessions import unplanned
from rigup.connection.signals import ended_by_signals
from rigup.connection.tunnel import OpenTunnel
from rigup.errors import InputError, Refused
from rigup.evaluation.run import check_endpoint
from rigup.operations.service.endpoints import Endpoint
from rigup.run.hosts_run import HostsRun
from rigup.run.result import exit_code
from rigup.run.services.chat import ChatAnswer, Message, ask
from rigup.run.services.endpoints import endpoints_of, key_of, open_tunnel
from rigup.units import seconds_text

EPILOG = """\
examples:
  rigup chat chat                                   talk to the service "chat"; Ctrl-D ends
  rigup chat chat "What is the capital of France?"
  git diff | rigup chat coder                       read the prompt from standard input
  rigup chat chat "Hello" --max-tokens 50 --json    print the answer with tokens/s as JSON
  rigup chat chat --limit gpu2.lan --system "Answer in French."

on a terminal: Ctrl-C stops an answer, /new begins a new conversation, Ctrl-D ends

exit codes: 0 answered, 1 the service failed, 2 usage error or no host reachable, 130 cancelled
"""
MOST_PROMPT = 1 << 24
LOOK_SECONDS = 0.5
PASTE_SECONDS = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds SERVICE, PROMPT, how to ask, and the arguments of every verb that needs no plan."""
    parser.add_argument("service", metavar="SERVICE", help="talk to this service")
    parser.add_argument(
        "prompt", nargs="?", metavar="PROMPT", help="send this prompt and exit; - reads standard input, as does a pipe"
    )
    parser.add_argument("--system", metavar="TEXT", help="begin with this system message")
    add_number(parser, "--max-tokens", "limit each answer to N tokens (default: the engine's)", None, 1, 1_000_000)
    unplanned.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Asks once, or until Ctrl-D."""
    project = unplanned.project_with(args, [args.service], members=True)
    prompt = _prompt(args)  # standard input is read for a service that exists only
    with unplanned.open_unplanned(args, project, HostsRun) as run, ended_by_signals() as ended:
        run.connect(take_lease=False)
        talk = _open(args, run, ended)
        if talk is None:
            results = list(run.results.values())
            summary.show_failed(results)
            if not any(result.errors for result in results):
                raise Refused(f"{args.service} was never applied to these hosts", "run rigup diff, then rigup apply")
            return exit_code(results)
        with talk.door:
            return talk.go_on() if prompt is None else talk.ask_once(prompt)


def _prompt(args: argparse.Namespace) -> str | None:
    """The only prompt; None for a conversation. Raises InputError for an empty one."""
    text: str | None = args.prompt
    if text == "-" or (text is None and not sys.stdin.isatty()):
        try:
            text = sys.stdin.read(MOST_PROMPT + 1)
            text.encode()  # a locale without UTF-8 lets other bytes through
        except UnicodeError:
            text = "\0"
        if "\0" in text:
            raise InputError("standard input: not text in UTF-8", "send a text")
        if len(text) > MOST_PROMPT:
            raise InputError(f"standard input: more than {MOST_PROMPT:,} characters", "send a shorter prompt")
        if not text.strip():
            raise InputError("standard input: no prompt", f'write one: rigup chat {args.service} "Hello"')
    if text is None and args.json:
        raise InputError("--json needs a prompt", f'add one: rigup chat {args.service} "Hello" --json')
    return text


def _open(args: argparse.Namespace, run: HostsRun, ended: Event) -> Conversation | None:
    """A conversation with the first host whose service can be reached."""
    found = endpoints_of(run, (args.service,))
    for endpoint in found:
        if door := open_tunnel(run, endpoint):
            others = [other.host for other in found if other is not endpoint]
            if others and args.limit is None:
                tell(f"asking {endpoint.host}; --limit chooses among {', '.join(others)}")
            key = key_of(run, endpoint)
            model = endpoint.model or check_endpoint(door.url, key, None, endpoint.where)
            return Conversation(args, endpoint, door, key, model, ended)
    return None


class Conversation:
    """Messages to one endpoint and its answers."""

    def __init__(
        self, args: argparse.Namespace, endpoint: Endpoint, door: OpenTunnel, key: str | None, model: str, ended: Event
    ) -> None:
        self.endpoint, self.door, self.model = endpoint, door, model
        self._args, self._key, self._ended = args, key, ended
        self._begin: list[Message] = [{"role": "system", "content": args.system}] if args.system else []
        self._messages = list(self._begin)
        self._console = Console(highlight=False)
        self._notes = Console(stderr=True, highlight=False)

    def ask_once(self, prompt: str) -> int:
        """Asks, and prints the answer as it comes, or as JSON."""
        answer = self._ask(prompt)
        if self._args.json:
            about = {"schema": 1, "host": self.endpoint.host, "service": self.endpoint.service, "model": self.model}
            print_json(about | answer.as_json())
        return 130 if answer.finish == "cancelled" else 0

    def go_on(self) -> int:
        """Asks what is typed, until the end of input or Ctrl-C at the prompt."""
        self._notes.print(f"{self.model} on {self.endpoint.host}; Ctrl-D ends", style="dim", markup=False)
        while (prompt := self._typed()) is not None:
            if prompt == "/new":
                self._messages = list(self._begin)
                self._notes.print("new conversation", style="dim")
            elif prompt:
                self._ask(prompt)
        print()
        return 0

    def _ask(self, prompt: str) -> ChatAnswer:
        quiet = self._args.json
        self._messages.append({"role": "user", "content": prompt})
        answer = ask(
            self.door.url,
            self._key,
            self.model,
            self._messages,
            (lambda text, thought: None) if quiet else self._show,
            self._ended.is_set,
            self._args.max_tokens,
            self.endpoint.where,
        )
        self.door.check()
        self._ended.clear()
        self._messages.append({"role": "assistant", "content": answer.text})
        if not quiet:
            print(flush=True)
            self._notes.print(pace(answer), style="dim", markup=False)
        return answer

    def _show(self, text: str, thought: bool) -> None:
        """Prints a piece of an answer; reasoning on a terminal only."""
        if not thought:
            print(text, end="", flush=True)
        elif self._console.is_terminal:
            self._console.print(text, style="dim italic", end="", markup=False, soft_wrap=True)

    def _typed(self) -> str | None:
        """The next prompt: what is typed or pasted at once. None at the end."""
        print("> ", end="", flush=True)
        typed = b""
        while not self._ended.is_set():
            ready, _, _ = select.select([sys.stdin.fileno()], [], [], PASTE_SECONDS if typed else LOOK_SECONDS)
            if not ready and typed:
                return typed.decode(errors="replace").strip()
            if not ready:
                self.door.check()
                continue
            chunk = os.read(sys.stdin.fileno(), 1 << 16)
            if not chunk:
                return typed.decode(errors="replace").strip() or None
            typed += chunk
        return None


def pace(answer: ChatAnswer) -> str:
    """How long an answer is and how fast it came, in a line."""
    count = f"{answer.tokens} {'token' if answer.tokens == 1 else 'tokens'}"
    parts = [count if answer.counted else f"about {count}"]
    if answer.tokens_per_second is not None:
        parts.append(f"{answer.tokens_per_second:.1f} tokens/s")
    parts.append(f"first after {seconds_text(answer.first_seconds)}")
    if answer.finish not in ("", "stop"):
        parts.append({"length": "cut off at the token limit"}.get(answer.finish, answer.finish))
    return ", ".join(parts)
