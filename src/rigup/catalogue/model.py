"""A model: the shape of an architecture, and figures that follow from the shape alone."""

from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from rigup.attention import Attention
from rigup.layer_range import MOST_LAYERS, check_each_once
from rigup.service import EngineName
from rigup.units import Frozen

Size = Annotated[int, Field(ge=1)]
SizeOrNone = Annotated[int, Field(ge=0)]
Repo = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]


class ParserNames(Frozen):
    """What one engine calls the parsers of a model's output, best first: a release takes the first that it has.

    tool: of tool calls. reasoning: separates the thinking from the answer. reasoning_inline: leaves it in the answer.
    """

    tool: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    reasoning_inline: tuple[str, ...] = ()


class Model(Frozen):
    """One published model. `sources` has the source of every figure, by field name.

    architectures: classes, as in the model's config. gguf_architecture: general.architecture of its GGUF files, ""
    for what llama.cpp's converter makes of `architectures`. Engines are asked for these names.
    parsers: of its tool calls and reasoning, by engine. parsers_assumed: they are those of the other models of its
    class, and nothing says so of it.
    layers, hidden, vocab: as in the model's config. attention: what each layer keeps of a sequence; each layer once.
    residual_streams: how many hyper-connections mix, each `hidden` wide.
    mtp_attention: the same of built-in draft layers, numbered from 0 on as well.
    context: the longest position that the model supports, in tokens.
    experts, experts_per_token, expert_intermediate, shared_experts: the mixture of experts; `experts` 0 is a
    dense model.
    dense_layers, intermediate: feed-forward layers without experts, and their width.
    reference_bits: bits per weight of the maker's own checkpoint; more bits do not add quality.
    license: an SPDX id, or the name that the maker gives it; "" if no source says. commercial: whether it allows
    commercial use, None if no source says. license_note: what a user must know before serving it, "" if nothing.
    sampling: the maker's recommendation. template_flags: what the chat template takes (chat_template_kwargs) and the
    values of each, the default first where a source names it. notes: what to watch for.
    eagle_heads: repositories of EAGLE heads that were trained for it, which a service can draft with.
    """

    name: str
    architectures: tuple[str, ...] = ()
    gguf_architecture: str = ""
    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)]
    hidden: Size
    residual_streams: Size = 1
    attention: tuple[Attention, ...]
    mtp_attention: tuple[Attention, ...] = ()
    vocab: Size
    context: Size
    experts: SizeOrNone = 0
    experts_per_token: SizeOrNone = 0
    expert_intermediate: SizeOrNone = 0
    shared_experts: SizeOrNone = 0
    dense_layers: SizeOrNone = 0
    intermediate: SizeOrNone = 0
    tied_embeddings: bool = False
    parameters: Size
    active_parameters: Size
    reference_bits: Annotated[float, Field(gt=0)] = 16
    license: str = ""
    commercial: bool | None = None
    license_note: str = ""
    parsers: dict[EngineName, ParserNames] = {}
    parsers_assumed: bool = False
    sampling: dict[str, float] = {}
    template_flags: dict[str, tuple[str, ...]] = {}
    eagle_heads: tuple[Repo, ...] = ()
    system_prompt: str = ""
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    @model_validator(mode="after")
    def _has_an_architecture(self) -> Self:
        if not self.architectures and not self.gguf_architecture:
            raise ValueError("architectures or gguf_architecture is missing: engines are asked for them")
        return self

    def __hash__(self) -> int:
        """Hashes the name, which is unique in a catalogue, because the tables of sources are not hashable."""
        return hash(self.name)

    @model_validator(mode="after")
    def _every_layer_once(self) -> Self:
        check_each_once("attention", (entry.layers for entry in self.attention), self.layers)
        check_each_once("mtp_attention", (entry.layers for entry in self.mtp_attention))
        return self

    def other_vocabulary(self, other: "Model", tolerated: int = 0) -> str:
        """How the vocabulary differs from another model's, by more tokens than tolerated; "" where it does not."""
        if abs(self.vocab - other.vocab) <= tolerated:
            return ""
        return f"{self.name} has {self.vocab:,} tokens and {other.name} {other.vocab:,}"

    @property
    def head(self) -> str:
        """Which EAGLE head it is, by its class: "eagle3" or "eagle"; "" for a model that can be served.

        NVIDIA's Eagle vision models have classes for conditional generation, which no head has: the registry of
        vLLM 0.33.0.
        """
        names = (name.lower() for name in (*self.architectures, self.gguf_architecture))
        found = next((name for name in names if "eagle" in name and not name.endswith("forconditionalgeneration")), "")
        return "eagle3" if "eagle3" in found else found and "eagle"

    @property
    def embedding_parameters(self) -> int:
        """Weights of the token embeddings; the output head has as many, unless it is tied to them."""
        return self.vocab * self.hidden

    @cached_property
    def attention_parameters(self) -> float:
        """Weights of the attention of one layer, on average."""
        return sum(entry.parameters(self.hidden) * len(entry.layers) for entry in self.attention) / self.layers

    @property
    def expert_parameters(self) -> int:
        """Weights of one expert: gate, up and down."""
        return 3 * self.hidden * self.expert_intermediate

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def shape(self) -> str:
        """The sizes of its layers, for people. Training a model further or adding tokens leaves them."""
        experts = f"{self.experts} experts of {self.expert_intermediate}" if self.experts else "no experts"
        return (
            f"{self.hidden} wide in {self.residual_streams}, {self.attention_shape}; {experts}, "
            f"{self.experts_per_token} for a token, {self.shared_experts} for all; {self.dense_layers} layers of "
            f"{self.intermediate}"
        )

    @property
    def attention_shape(self) -> str:
        """What the layers keep, for people: "62 layers, 48 heads, 8 KV heads of 128"."""
        if len(self.attention) == 1:
            return f"{self.layers} layers, {self.attention[0].shape}"
        return f"{self.layers} layers: " + "; ".join(
            f"{len(entry.layers)} of {entry.shape}" for entry in self.attention
        )

    def divides(self, tensor: int) -> bool:
        """Whether each of `tensor` ranks gets whole heads of every layer."""
        return all(entry.divides(tensor) for entry in self.attention)
