"""Facts of one host for pyinfra's operations, unmodified: asked many at a time, and never used once they may be stale.

An answer counts until anything else is run on the host or sent to it, and no longer than FRESH_SECONDS. It is kept as
what the command printed; each fact is made from it anew, as if it had just been read.

What a comparison asks was mostly asked in the greeting: the host remembers the questions of last time. While changes
are carried out, a question is asked together with those of the operations up to the next one that changes something.
Both are a forecast: a wrong one costs a command, and no answer is ever taken for another's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.facts import get_fact
from pyinfra.connectors.util import CommandOutput

from rigup.errors import HostFailed
from rigup.fleet import fact_batch
from rigup.fleet.fact_batch import Answer, digest
from rigup.operations.remote import IN_ENGLISH, LOST

FRESH_SECONDS = 30.0
QUESTION_SECONDS = 300
BATCH_SECONDS = 600

Runs = Callable[..., tuple[bool, CommandOutput]]


class FactReader:
    """Stands between pyinfra's facts and the connector of one host.

    asked: the questions of this run by operation ("" outside of one), each once, in order.
    forecast: gives the questions that are likely to come next.
    """

    def __init__(self, host: Any) -> None:
        self.host = host
        self.asked: dict[str, dict[str, None]] = {}
        self.forecast: Callable[[], Iterable[str]] = tuple
        self._answers: dict[str, tuple[Answer, float]] = {}
        self._why = ""
        host.get_fact = self._get_fact

    def learn(self, answers: dict[str, Answer]) -> None:
        """Takes answers that came just now, by digest."""
        now = time.monotonic()
        self._answers.update({name: (answer, now) for name, answer in answers.items()})

    def forget(self) -> None:
        """The host may have changed: from here on everything is asked again."""
        self._answers.clear()

    def questions(self) -> list[str]:
        """Everything that was asked, each once, in order."""
        return list({command: None for commands in self.asked.values() for command in commands})

    def answer(self, command: StringCommand | str, arguments: dict[str, Any], run: Runs) -> tuple[bool, CommandOutput]:
        """What a fact's command leaves behind: known, or asked now, with what the forecast says is asked next."""
        if isinstance(command, str):
            command = StringCommand(command)
        alone = {"_timeout": QUESTION_SECONDS, "_env": IN_ENGLISH}
        arguments |= {key: arguments.get(key) or value for key, value in alone.items()}
        text = str(command.get_raw_value())
        try:
            found = self._found(text, arguments, run) if _is_plain(command, text, arguments) else None
            status, output = found.returned() if found else run(command, **arguments)
        except LOST as error:  # pyinfra would note it and go on with a default value
            raise HostFailed(
                f"{self.host.name}: connection lost ({type(error).__name__}: {error})".replace(": )", ")"),
                "run the same command again",
            ) from None
        if not status:
            said = [line.line for line in output.combined_lines if line.line.strip()]
            self._why = f"{' '.join(text.split())[:60]}: {said[-1].strip() if said else 'no output'}"
        return status, output

    def _get_fact(self, fact: Any, *args: Any, **kwargs: Any) -> Any:
        """In place of the host's own. Raises HostFailed where pyinfra would go on with a default value."""
        state, token, self._why = self.host.state, _asking.set(self), "what it said makes no sense"
        try:
            value = get_fact(state, self.host, fact, args=args, kwargs=kwargs)
        except PyinfraError:
            if self.host not in state.failed_hosts:
                raise
        finally:
            _asking.reset(token)
        if self.host in state.failed_hosts:
            state.failed_hosts.discard(self.host)
            state.active_hosts.add(self.host)
            raise HostFailed(f"{self.host.name}: {fact.__name__} could not be read: {self._why}")
        return value

    def _found(self, text: str, arguments: dict[str, Any], run: Runs) -> Answer | None:
        """The answer, where it is known or comes in a batch; None for a question that is to be asked by itself."""
        self.asked.setdefault(self.host.current_op_hash or "", {})[text] = None
        if known := self.known(text):
            return known
        others = [other for other in self.forecast() if other != text and not self.known(other)]
        if others:
            batch = {"_sudo": bool(arguments.get("_sudo")), "_stdin": fact_batch.script([text, *others])}
            limited = StringCommand("timeout", str(BATCH_SECONDS), "sh", "-s")
            _, output = run(limited, **batch, _timeout=BATCH_SECONDS + 30)
            self.learn(fact_batch.answers_in(output))
        elif not self.known(text):
            status, output = run(StringCommand(text), **arguments)
            self.learn({digest(text): Answer.of(status, output)})
        return self.known(text)

    def known(self, text: str) -> Answer | None:
        """The answer to a question, as long as it counts."""
        answer, learned = self._answers.get(digest(text), (None, 0.0))
        return answer if time.monotonic() - learned < FRESH_SECONDS else None


_asking: ContextVar[FactReader | None] = ContextVar("rigup_asking", default=None)
_harmless: ContextVar[bool] = ContextVar("rigup_harmless", default=False)


def asking() -> FactReader | None:
    """The reader for which a fact is being read in this greenlet."""
    return _asking.get()


def is_harmless() -> bool:
    """Whether what this greenlet runs was said to change nothing that a fact tells of."""
    return _harmless.get()


@contextmanager
def harmless() -> Iterator[None]:
    """Within it, commands change nothing that a fact tells of: a lease is renewed, a service is asked."""
    token = _harmless.set(True)
    try:
        yield
    finally:
        _harmless.reset(token)


# a fact takes these from its operation; a question has a time-out of its own, and is not asked twice
_OF_NO_MATTER = ("_sudo", "_timeout", "_retries", "_retry_delay")
_AS_ALWAYS = {"_shell_executable": "sh", "_success_exit_codes": [0], "_env": IN_ENGLISH}


def _is_plain(command: StringCommand, text: str, arguments: dict[str, Any]) -> bool:
    """Whether a command is run as nearly every fact is: as root or not, nothing else said, and no secret in it."""
    said = {key: value for key, value in arguments.items() if value and key not in _OF_NO_MATTER}
    return all(_AS_ALWAYS.get(key) == value for key, value in said.items()) and str(command) == text
