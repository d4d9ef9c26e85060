"""Random prompts of an exact length, made before they are needed.

A prompt is a slice of one long random sequence. Two prompts start at different places, so that neither is a prefix of
the other and an engine's prefix cache does not help. Cutting a slice takes microseconds.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

DIFFERENT = 1 << 15

COMMON_TEXT = (
    "the of and to in is that it for was on are as with his they at be this from have or by one had not but what all "
    "were when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made over "
    "did down only way find use may water long little very after words called just where most know"
)
COMMON = tuple(COMMON_TEXT.split())


def sample_text(seed: int) -> str:
    """Text with thousands of distinct tokens for any tokenizer: common words and random letters."""
    chance = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    made = ["".join(chance.choices(letters, k=chance.randint(2, 8))) for _ in range(3000)]
    return " ".join([*COMMON, *made])


@dataclass(frozen=True)
class Form:
    """The request format of one endpoint.

    pieces: the parts of a prompt: token ids, or words that are one token each. extra: tokens that the engine adds.
    usage: whether the engine reports token counts in a stream.
    """

    model: str
    pieces: Sequence[int] | Sequence[str]
    chat: bool = False
    ignore_eos: bool = True
    usage: bool = True
    extra: int = 0

    @property
    def path(self) -> str:
        """The API path that is measured."""
        return "/v1/chat/completions" if self.chat else "/v1/completions"

    @property
    def of_ids(self) -> bool:
        """Whether prompts are written as token ids."""
        return isinstance(self.pieces[0], int)

    def around(self) -> tuple[bytes, bytes]:
        """The request body before and after a prompt; the caller appends the number of tokens to generate."""
        settings: dict[str, Any] = {"model": self.model, "temperature": 0, "stream": True}
        if self.usage:
            settings["stream_options"] = {"include_usage": True}
        if self.ignore_eos:
            settings["ignore_eos"] = True
        head = json.dumps(settings)[:-1].encode()
        if self.chat:
            return head + b', "messages": [{"role": "user", "content": "', b'"}], "max_tokens": '
        return (
            (head + b', "prompt": [', b'], "max_tokens": ')
            if self.of_ids
            else (head + b', "prompt": "', b'", "max_tokens": ')
        )


class Prompts:
    """Request bodies with prompts of `length` tokens; no two prompts are equal."""

    def __init__(self, form: Form, length: int, seed: int) -> None:
        self._form, self._length, self._chance = form, max(1, length - form.extra), random.Random(seed)
        self._before, self._after = form.around()
        self._places: Iterator[int] = iter(())

    def body(self, output_tokens: int) -> bytes:
        """A request for this many answer tokens."""
        place = next(self._places, None)
        if place is None:
            self._write()
            place = next(self._places)
        prompt = self._text[self._starts[place] : self._starts[place + self._length] - 1]
        return b"%s%s%s%d}" % (self._before, prompt, self._after, output_tokens)

    def _write(self) -> None:
        """A new sequence, each piece with one separator after it."""
        chosen = self._chance.choices(self._form.pieces, k=DIFFERENT + self._length)
        written = [str(piece) for piece in chosen]
        self._text = (("," if self._form.of_ids else " ").join(written) + " ").encode()
        self._starts = [0]
        for piece in written:
            self._starts.append(self._starts[-1] + len(piece) + 1)
        self._places = iter(self._chance.sample(range(DIFFERENT), DIFFERENT))
