"""Parses a host's reply to a service request; no other module does."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from rigup.printable import printable

MOST_BYTES = 1 << 20
MOST_TOKENS = 1 << 40
MOST_SECONDS = 1e6
MOST_PER_SECOND = 1e12


Text = Annotated[str, Field(max_length=1 << 17), AfterValidator(printable)]


class Reply(BaseModel):
    """One line of `ask.py`. why: for "starting" and "failed"; the other fields are for "answered".

    seconds: the whole request. tokens_per_second: as the engine reports it.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    state: Literal["answered", "starting", "failed"]
    why: Annotated[str, Field(max_length=2000), AfterValidator(printable)] = ""
    model: Annotated[str, Field(max_length=1000), AfterValidator(printable)] = ""
    answer: Text = ""
    reasoning: Text = ""
    tokens: Annotated[int, Field(ge=0, le=MOST_TOKENS)] = 0
    seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = 0.0
    tokens_per_second: Annotated[float, Field(ge=0, le=MOST_PER_SECOND)] = 0.0

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.state == "answered" and not (self.tokens and self.text):
            raise ValueError("the answer has no text")
        return self

    @property
    def text(self) -> str:
        """The answer, or the reasoning if there is no answer."""
        return self.answer or self.reasoning


def read_reply(line: str) -> Reply:
    """The reply; a failed one with the reason for an invalid line."""
    if len(line) > MOST_BYTES:
        return Reply(state="failed", why="the host's reply is too long")
    try:
        return Reply.model_validate_json(line.encode(errors="replace"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = " ".join(filter(None, (place[:100], first["msg"][:200])))
        return Reply(state="failed", why=f"the host's reply is invalid: {printable(what)}")
