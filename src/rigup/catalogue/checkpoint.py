"""A checkpoint: one published, quantised set of files of a model, with the facts that planning needs."""

from typing import Annotated, Literal, Self

from pydantic import Field

from rigup.catalogue.versions import VersionText
from rigup.service import EngineName, Location, NamedCacheType
from rigup.tensor_bytes import TensorBytes
from rigup.units import Frozen

Scheme = Annotated[
    str,
    Field(
        pattern=r"^(gguf|bf16|nvfp4(_a16)?|mxfp4|mxfp8|fp8_(tensor|channel|block[0-9]+)|int[2348]_(channel|g[0-9]+))$"
    ),
]
Scope = Literal["all", "linear", "experts"]


class CheckpointEntry(Frozen):
    """One checkpoint of the catalogue. `sources` has the source of every figure, by field name.

    model: the name of the catalogue's Model. quant: the name of the quantisation among users and on hubs.
    method: the quant_method of its configuration, "" if it was not read.
    mistral_class: the class that engines make of the params.json of a checkpoint in Mistral's own format: they are
    asked for it instead of the model's. "" for any other format.
    scheme: how the weights are stored. expert_scheme: how the experts are, where that differs.
    scope: what is quantised: "all" (GGUF), "linear" (every linear layer except router and head) or "experts" (the rest
    stays in bf16).
    bytes: the size of all files; `bytes_exact` says whether it was read or computed.
    location: where its files are, if not in `repo` on the hub: see `rigup.service.location_of`.
    tensors: where these bytes lie, read from the files' headers; None where only the shapes of the model tell.
    experts: how many experts a layer keeps if some were pruned, otherwise None; `parameters` counts the remaining ones.
    entry: the file to pass to the engine, "" for the folder.
    embedding_bits, head_bits, attention_bits: bits per weight of these tensors in a GGUF; attention_bits None means the
    average of the layers.
    template_tools: whether its chat template takes tools; None if none was read.
    kv_cache_type: the type of KV cache that its configuration names, "auto" if it names none; None if it was not read.
    context: tokens that its configuration allows, where that is less than the model's; None elsewhere.
    minimum_versions: the oldest version that is recommended of each engine that loads it; other engines cannot. None:
    every engine that has the architecture and reads the format.
    """

    repo: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    model: str
    quant: str
    scheme: Scheme
    expert_scheme: Scheme | None = None
    method: str = ""
    mistral_class: Annotated[str, Field(pattern=r"^[A-Za-z0-9]*$", max_length=100)] = ""
    scope: Scope = "all"
    bytes: Annotated[int, Field(ge=1)]
    bytes_exact: bool = False
    tensors: TensorBytes | None = None
    experts: Annotated[int, Field(ge=1)] | None = None
    parameters: Annotated[int, Field(ge=1)] | None = None
    shards: Annotated[int, Field(ge=1)] | None = None
    entry: str = ""
    revision_seen: str | None = None
    location: Location = ""
    embedding_bits: Annotated[float, Field(gt=0)] = 16
    head_bits: Annotated[float, Field(gt=0)] = 16
    attention_bits: Annotated[float, Field(gt=0)] | None = None
    template_tools: bool | None = None
    kv_cache_type: NamedCacheType | None = None
    context: Annotated[int, Field(ge=1)] | None = None
    minimum_versions: dict[EngineName, VersionText] | None = None
    engine_flags: dict[EngineName, dict[str, str]] = {}
    license: str | None = None
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = {}

    def __hash__(self) -> int:
        """Hashes the name, which is unique in a catalogue, because the tables of sources are not hashable."""
        return hash((self.repo, self.quant, self.bytes))

    def measured(self, size: int, tensors: TensorBytes | None, where: str) -> Self:
        """The same with the real size of its files, and where the bytes lie if their headers were read.

        Otherwise a table that was computed keeps its shares: it may say more than there is.
        """
        sources = {**self.sources, "bytes": f"{where}: sizes of the weight files"}
        if tensors is not None:
            sources["tensors"] = f"{where}: headers of the weight files"
        elif self.tensors is not None and size != self.bytes:
            tensors = self.tensors.scaled(size * self.tensors.total // self.bytes)
            sources["tensors"] = f"{self.sources.get('tensors', 'catalogue')}; in proportion to the real size"
        update = {"bytes": size, "bytes_exact": True, "tensors": tensors or self.tensors, "sources": sources}
        return self.model_copy(update=update)

    @property
    def is_read(self) -> bool:
        """Whether its size and where its bytes lie were read from its own files."""
        return self.bytes_exact and self.tensors is not None

    @property
    def pruned(self) -> bool:
        """Whether experts were removed, so that it has fewer weights than the model was trained with."""
        return self.experts is not None

    @property
    def weight_format(self) -> str:
        """The format, in the engines' names: bf16, fp8, mxfp8, nvfp4, int4 or gguf."""
        return self.scheme.partition("_")[0]

    @property
    def label(self) -> str:
        """The name in messages: repository and quantisation."""
        return f"{self.repo} {self.quant}"
