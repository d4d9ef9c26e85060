"""What every class of attention answers, whatever the engine, and what an answer is given for."""

from abc import abstractmethod
from typing import Annotated, NamedTuple

from pydantic import Field

from rigup.layer_range import LayerRange
from rigup.service import EngineName
from rigup.units import Frozen

Count = Annotated[int, Field(ge=1)]
CountOrNone = Annotated[int, Field(ge=0)]

# Block layouts of ggml: q8_0 has 34 bytes for 32 elements, q5_1 24, q4_0 18. vLLM and SGLang keep fp8 without scales.
ELEMENT_BYTES = {"f16": 2.0, "bf16": 2.0, "fp8": 1.0, "q8_0": 34 / 32, "q5_1": 24 / 32, "q4_0": 18 / 32}
MODEL_BYTES = 2.0
"""Bytes of an element that stays in the model's own type (bf16, f16) whatever the KV cache is in."""


class Storage(NamedTuple):
    """What a cache is kept in: the engine, its KV cache type (never "auto"), the ranks that share each layer.

    unscaled: whether fp8 has no scales where the attention's own layout has some.
    """

    engine: EngineName
    kv_cache_type: str
    tensor: int = 1
    unscaled: bool = False

    @property
    def element(self) -> float:
        """Bytes of one element of keys and values."""
        return ELEMENT_BYTES[self.kv_cache_type]


class LayerCache(NamedTuple):
    """One thing that one layer keeps of one sequence on one rank, in bytes.

    token_bytes: of each token, on average where one entry stands for `tokens_per_entry` tokens. window: only the last
    so many tokens are kept, None for all. state_bytes: of the whole sequence, however long it is. page_tokens: kernels
    want a page of so many tokens, or a multiple.
    """

    token_bytes: float = 0.0
    tokens_per_entry: int = 1
    window: int | None = None
    state_bytes: float = 0.0
    page_tokens: int = 16


class Page(NamedTuple):
    """A layer's part of one block of vLLM's cache. tokens: of the block. window: as of `LayerCache`."""

    tokens: int
    bytes: float
    window: int | None = None


class OwnMask(NamedTuple):
    """The view of the attention mask that a layer of llama.cpp takes for itself, each GPU having its own copy.

    bytes: of a token of the step and a cell. made: a GPU makes the mask, the first one, which needs no copy.
    """

    bytes: int = 0
    made: bool = False


class PrefixStates(NamedTuple):
    """Since which release of vLLM, and on cards from which compute capability on, kernels write states of prefixes.

    block_tokens: of which a block must then be a multiple.
    """

    since: str
    capability: tuple[int, int]
    block_tokens: int = 16


class AttentionClass(Frozen):
    """Layers of a model that are equal in what they keep. A subclass has `kind`, a literal with its own default."""

    kind: str
    layers: LayerRange

    @abstractmethod
    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """All that one of the layers keeps of a sequence on one rank; () for nothing."""

    def pages(self, storage: Storage) -> tuple[Page, ...]:
        """What the class itself says of vLLM's pages; () where they follow from `caches`."""
        return ()

    @abstractmethod
    def parameters(self, hidden: int) -> int:
        """Weights of one of the layers' attention without norms, the model being `hidden` wide."""

    @abstractmethod
    def activations(self, tensor: int) -> int:
        """Elements that one token's queries, keys and values take in a step on one of `tensor` ranks."""

    @property
    @abstractmethod
    def cut(self) -> dict[str, int]:
        """What tensor parallelism cuts, e.g. {"attention heads": 48, "KV heads": 8}."""

    @property
    def scores_tokens(self) -> bool:
        """Whether an indexer scores every token of the context to pick some."""
        return False

    @property
    def folds(self) -> bool:
        """Whether it folds a sequence into a state."""
        return False

    def step_bytes(self, copies: int) -> int:
        """Bytes that an indexer's step takes of a GPU in llama.cpp for a token and a cell, beside the attention mask.

        copies: of the step's inputs. A mask of its own, scores and what sorts them.
        """
        return 2 * copies + 12 if self.scores_tokens else 0

    @property
    def folded_width(self) -> int:
        """Elements of a token's queries and outputs in llama.cpp, where they are as wide as what is kept of a token."""
        return 0

    @property
    def own_mask(self) -> OwnMask:
        """That of each layer; nothing where all layers share one."""
        return OwnMask()

    @property
    def step_is_known(self) -> bool:
        """Whether what a step takes beside the cache is known in llama.cpp for steps of any size."""
        return True

    @property
    def writes_prefixes(self) -> PrefixStates | None:
        """Where it writes states of prefixes in vLLM; None for nowhere."""
        return None

    def position_table(self, rows: int, element: int) -> tuple[str, int]:
        """A table of sines and cosines: a name that layers with the same one share, and its bytes.

        element: bytes of one, as the engine keeps them.
        """
        return "", 0

    def divides(self, tensor: int) -> bool:
        """Whether each of `tensor` ranks gets whole ones of all that is cut."""
        return all(count % tensor == 0 for count in self.cut.values())

    def key_value_share(self, tensor: int) -> float:
        """The part of the keys' and values' projections that one of `tensor` ranks holds."""
        return 1 / tensor

    @property
    def divided(self) -> str:
        """What must come out whole on every rank, e.g. "48 attention heads and 8 KV heads"."""
        return " and ".join(f"{count} {name}" for name, count in self.cut.items()) or "nothing"

    @property
    @abstractmethod
    def shape(self) -> str:
        """Its figures for people, e.g. "48 heads, 8 KV heads of 128"."""


def heads_on_rank(heads: int, tensor: int) -> int:
    """Heads that one rank holds. Beyond as many ranks as heads, heads are repeated."""
    return max(1, -(-heads // tensor))
