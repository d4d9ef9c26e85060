"""Facts of one host for pyinfra's operations, unmodified: read in batches, and never used once they may be stale.

An answer is valid until anything else is run on the host or sent to it, and no longer than FRESH_SECONDS. It is kept as
the command's output; each fact is parsed from it again.

Most questions of a comparison were already asked in the handshake: the host remembers those of the last run. During
changes, a question is asked together with those of the operations up to the next one that changes something. Both are
forecasts: a wrong one costs a command, and answers are never mixed up.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pyinfra.api.command import StringCommand

from rigup.connection import fact_batch, pyinfra_internals
from rigup.connection.fact_batch import CommandResult, digest
from rigup.connection.pyinfra_internals import CommandOutput
from rigup.errors import HostFailed
from rigup.host import Host
from rigup.operations.primitives.remote import CONNECTION_ERRORS, IN_ENGLISH, words_of

FRESH_SECONDS = 30.0
QUESTION_SECONDS = 300
BATCH_SECONDS = 600

Runs = Callable[..., tuple[bool, CommandOutput]]


class FactReader:
    """Stands between pyinfra's facts and the connector of one host.

    asked: the questions of this run by operation ("" outside of one), each once, in order.
    forecast: returns the questions that are likely to come next.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.asked: dict[str, dict[str, None]] = {}
        self.forecast: Callable[[], Iterable[str]] = tuple
        self._answers: dict[str, tuple[CommandResult, float]] = {}
        self._why = ""
        pyinfra_internals.replace_get_fact(host, self._get_fact)

    def learn(self, answers: dict[str, CommandResult]) -> None:
        """Stores new answers, by digest."""
        now = time.monotonic()
        self._answers.update({name: (answer, now) for name, answer in answers.items()})

    def forget(self) -> None:
        """Clears the cache: the host may have changed."""
        self._answers.clear()

    def questions(self) -> list[str]:
        """Every question so far, each once, in order."""
        return list({command: None for commands in self.asked.values() for command in commands})

    def answer(self, command: StringCommand | str, arguments: dict[str, Any], run: Runs) -> tuple[bool, CommandOutput]:
        """The result of a fact's command: cached, or asked now together with the forecast questions."""
        if isinstance(command, str):
            command = StringCommand(command)
        alone = {"_timeout": QUESTION_SECONDS, "_env": IN_ENGLISH}
        arguments |= {key: arguments.get(key) or value for key, value in alone.items()}
        text = str(command.get_raw_value())
        try:
            found = self._found(text, arguments, run) if _is_plain(command, text, arguments) else None
            status, output = found.returned() if found else run(command, **arguments)
        except CONNECTION_ERRORS as error:  # pyinfra would log it and continue with a default value
            raise HostFailed(words_of(self.host, error), "run the same command again") from None
        if not status:
            said = [line.line for line in output.combined_lines if line.line.strip()]
            self._why = f"{' '.join(text.split())[:60]}: {said[-1].strip() if said else 'no output'}"
        return status, output

    def _get_fact(self, fact: Any, *args: Any, **kwargs: Any) -> Any:
        """Replaces the host's own method. Raises HostFailed where pyinfra would continue with a default value."""
        token, self._why = CURRENT_READER.set(self), "its output cannot be parsed"
        try:
            value, could_be_read = pyinfra_internals.read_fact(self.host, fact, args, kwargs)
        finally:
            CURRENT_READER.reset(token)
        if not could_be_read:
            raise HostFailed(f"{self.host.name}: {fact.__name__} could not be read: {self._why}")
        return value

    def _found(self, text: str, arguments: dict[str, Any], run: Runs) -> CommandResult | None:
        """The answer, if cached or available in a batch; None for a question that must be asked by itself."""
        self.asked.setdefault(pyinfra_internals.being_compared(self.host), {})[text] = None
        if known := self._known(text):
            return known
        others = [other for other in self.forecast() if other != text and not self._known(other)]
        if others:
            batch = {"_sudo": bool(arguments.get("_sudo")), "_stdin": fact_batch.script([text, *others])}
            limited = StringCommand("timeout", str(BATCH_SECONDS), "sh", "-s")
            _, output = run(limited, **batch, _timeout=BATCH_SECONDS + 30)
            self.learn(fact_batch.answers_in(output))
        elif not self._known(text):
            status, output = run(StringCommand(text), **arguments)
            self.learn({digest(text): CommandResult.of(status, output)})
        return self._known(text)

    def _known(self, text: str) -> CommandResult | None:
        """The answer to a question, if still valid."""
        answer, learned = self._answers.get(digest(text), (None, 0.0))
        return answer if time.monotonic() - learned < FRESH_SECONDS else None


CURRENT_READER: ContextVar[FactReader | None] = ContextVar("rigup_asking", default=None)
"""The reader for which a fact is being read in this greenlet."""
READ_ONLY: ContextVar[bool] = ContextVar("rigup_harmless", default=False)
"""Whether this greenlet's commands are marked as not changing any fact."""


@contextmanager
def read_only() -> Iterator[None]:
    """Marks commands as not changing any fact, such as renewing a lease or asking a service."""
    token = READ_ONLY.set(True)
    try:
        yield
    finally:
        READ_ONLY.reset(token)


# a fact takes these from its operation; a question has a time-out of its own, and is not asked twice
_OF_NO_MATTER = ("_sudo", "_timeout", "_retries", "_retry_delay")
_AS_ALWAYS = {"_shell_executable": "sh", "_success_exit_codes": [0], "_env": IN_ENGLISH}


def _is_plain(command: StringCommand, text: str, arguments: dict[str, Any]) -> bool:
    """Whether a command runs like nearly every fact: as root or not, with no other options and no secret in it."""
    said = {key: value for key, value in arguments.items() if value and key not in _OF_NO_MATTER}
    return all(_AS_ALWAYS.get(key) == value for key, value in said.items()) and str(command) == text
