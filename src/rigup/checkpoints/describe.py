"""Everything that `rigup model add` finds out about a checkpoint: its model and its entry for the catalogue."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rigup.catalogue.checkpoint import CheckpointEntry
from rigup.catalogue.model import Model
from rigup.checkpoints.byte_source import ByteSource
from rigup.checkpoints.class_defaults import left_out, with_class_defaults
from rigup.checkpoints.config import LARGEST, Config, built, read_config
from rigup.checkpoints.facts import Extras, Origin, is_tied, longest_context, model_of
from rigup.checkpoints.gguf_config import gguf_config
from rigup.checkpoints.gguf_header import GgufHeader, read_gguf_header
from rigup.checkpoints.maker import read_extras
from rigup.checkpoints.mistral_format import HEAD, check_tokenizer, mistral_class, mistral_params, transformers_names
from rigup.checkpoints.part_sums import CheckpointSums, sums_of, tensor_bytes
from rigup.checkpoints.repository import Repository
from rigup.checkpoints.safetensors_header import read_safetensors_header
from rigup.checkpoints.stored_names import model_name
from rigup.checkpoints.template import gguf_templates, repository_templates, takes_tools
from rigup.checkpoints.tensor import Tensor
from rigup.errors import InputError
from rigup.quantisation import read_scheme
from rigup.quantisation.gguf import Gguf
from rigup.quantisation.kv_cache import named_cache_type
from rigup.quantisation.scheme import Scheme
from rigup.service import NamedCacheType
from rigup.sources.bounded_http import time_limit
from rigup.sources.gguf_files import gguf_files, gguf_quants
from rigup.sources.safetensors_files import MISTRAL, TRANSFORMERS, SafetensorsFormat, safetensors_files

CONFIG = TRANSFORMERS.config
QUANTISATION = "hf_quant_config.json"
LARGEST_INDEX = 2**26
MOST_TENSORS = 2_000_000
READERS = 8
HEADERS_S = 900.0
T = TypeVar("T")


@dataclass(frozen=True)
class Described:
    """A checkpoint's entry and its model. known: whether the catalogue has the model already.

    context: tokens that engines serve with its own configuration; None where that does not tell.
    """

    model: Model
    checkpoint: CheckpointEntry
    known: bool
    bytes_read: int
    context: int | None


def describe(
    repository: Repository,
    quant: str | None,
    models: Mapping[str, Model],
    name: str | None = None,
    mistral: bool | None = None,
) -> Described:
    """Reads configuration and headers. quant: which GGUF of several. name: of the model, where it is not the
    repository's without what says how it is stored. models: those of the catalogue, which are kept as they are.
    mistral: whether weights in Mistral's own format are read; None for what `mistral_params` chooses.

    Raises InputError for what is missing or cannot be right, and Unreachable.
    """
    counted = _Counted(repository)
    if quant is None and any(path.endswith(".safetensors") for path in repository.files):
        contents = _safetensors(counted.repository, mistral)
    else:
        contents = _gguf(counted.repository, quant)
    extras = read_extras(repository)
    if contents.mistral_class:  # its tokenizer has the template
        extras = replace(extras, notes=())
    name = name or contents.model
    model = model_of(name, contents.config, contents.sums, contents.origin, contents.weights, extras, models)
    checkpoint = _checkpoint(repository, contents, model.name, extras)
    own = None if checkpoint.scheme == "gguf" else longest_context(contents.config.text_model)
    same = next((known for key, known in models.items() if key.lower() == model.name.lower()), None)
    if same is not None:
        _check_same(repository, model, same)
        pruned = same.experts and model.experts < same.experts
        fewer = {"experts": model.experts, "parameters": model.parameters} if pruned else {}
        checkpoint = checkpoint.model_copy(update={"model": same.name, "context": _less(own, same.context), **fewer})
    return Described(same or model, checkpoint, same is not None, counted.bytes, own)


def _less(own: int | None, context: int) -> int | None:
    """What a checkpoint's own configuration allows, where that is less than its model has."""
    return own if own is not None and own < context else None


def read_contents(repository: Repository, quant: str | None, model: Model, mistral: bool) -> dict[str, Any]:
    """What a lock keeps of what a checkpoint's own files say: fields of `rigup.lock.LockedCheckpoint`.

    model: that it should be. mistral: whether it is in Mistral's own format.
    Raises InputError as `describe` does, and for another number of layers.
    """
    described = describe(repository, quant, {}, mistral=mistral)
    found = described.checkpoint
    count = len(found.tensors.by_layer) if found.tensors else 0
    if count != model.layers:
        raise InputError(
            f"{repository.where}: {count} layers, not {model.layers}", "correct the model in the catalogue"
        )
    return {
        "read_tensors": found.tensors,
        "template_tools": found.template_tools,
        "kv_cache_type": found.kv_cache_type,
        "context": _less(described.context, model.context),
    }


@dataclass(frozen=True)
class _Contents:
    """What the files of a checkpoint say. paths: of the weights. model: what its name would be.

    mistral_class: as in the catalogue's checkpoint.
    """

    paths: Sequence[str]
    model: str
    quant: str
    scheme: Scheme
    config: Config
    origin: Origin
    sums: CheckpointSums
    templates: Sequence[str]
    mistral_class: str = ""
    kv_cache_type: NamedCacheType | None = None

    @property
    def weights(self) -> str:
        """The weight files, for sources."""
        return self.paths[0] if len(self.paths) == 1 else f"{len(self.paths)} files"


class _Counted:
    """A repository that counts the bytes read of weight files."""

    def __init__(self, repository: Repository) -> None:
        self.bytes = 0
        self.repository = replace(repository, source=self._source)
        self._of = repository.source

    def _source(self, path: str) -> ByteSource:
        source = self._of(path)

        def fetch(start: int, count: int) -> bytes:
            content = source.fetch(start, count)
            self.bytes += len(content)
            return content

        return replace(source, fetch=fetch)


def _check_same(repository: Repository, model: Model, known: Model) -> None:
    """Raises InputError where a checkpoint is of another model than its name says."""
    for key in ("layers", "hidden", "vocab"):
        ours, theirs = getattr(model, key), getattr(known, key)
        if ours != theirs:
            raise InputError(
                f"{repository.where}: {key} is {ours:,}, but {known.name} of the catalogue has {theirs:,}",
                "name the right model: --model NAME",
            )


def _safetensors(repository: Repository, mistral: bool | None) -> _Contents:
    params = mistral_params(repository, mistral)
    stored = TRANSFORMERS if params is None else MISTRAL
    paths = [path for path in _weights_and_more(repository, stored) if path.endswith(".safetensors")]
    content = repository.small(CONFIG, LARGEST)
    written = None if content is None else read_config(content, f"{repository.where}: {CONFIG}")
    tensors = [tensor for header in _each(repository, paths, read_safetensors_header) for tensor in header]
    _check_count(repository, tensors)
    head = any(tensor.name == HEAD for tensor in tensors)
    if params is not None:
        config, origin = transformers_names(params, written, head), Origin(repository.label, stored.config)
        if not head:
            check_tokenizer(repository)
    elif written is not None:
        config, origin = with_class_defaults(written), Origin(repository.label, CONFIG, left_out(written))
    else:
        raise InputError(
            f"{repository.where}: weights without a {CONFIG}",
            "choose a repository that has both: weights and config.json",
        )
    scheme, kv_cache_type = _quantisation(repository, config)
    return _Contents(
        paths,
        model_name(repository.name),
        quant_name(scheme),
        scheme,
        config,
        origin,
        sums_of(repository.where, tensors, config.text_model.layers, scheme, is_tied(config)),
        () if params else repository_templates(repository),
        mistral_class(params, head) if params else "",
        kv_cache_type,
    )


def _weights_and_more(repository: Repository, stored: SafetensorsFormat) -> tuple[str, ...]:
    index = repository.small(stored.index, LARGEST_INDEX)
    return safetensors_files(repository.where, repository.files, index, stored)


def _quantisation(repository: Repository, config: Config) -> tuple[Scheme, NamedCacheType | None]:
    """The scheme, and the KV cache that is named with it, None without quantisation.

    As the configuration says it, the language model's part of it, or a file beside it.
    """
    text, where = config.text_model.data, config.where
    said = config.data.get("quantization_config") or text.get("quantization_config")
    beside: Any = None
    if (content := repository.small(QUANTISATION, LARGEST)) is not None:
        beside = read_config(content, f"{repository.where}: {QUANTISATION}").data.get("quantization")
    if not said and content is not None:
        said, where = beside, f"{repository.where}: {QUANTISATION}"
    if said is not None and not isinstance(said, dict):
        raise InputError(f"{where}: quantization_config: must be a table", "choose another checkpoint of the model")
    if said and (experts := text.get("expert_dtype")) is not None:
        said = {**said, "expert_dtype": experts}
    scheme = read_scheme(said, f"{where}: quantization_config")
    named = named_cache_type(each for each in (said, beside) if isinstance(each, dict))
    return scheme, named if said else None


def _gguf(repository: Repository, quant: str | None) -> _Contents:
    paths = gguf_files(repository.where, quant or _only_quant(repository), "", repository.files)
    quant = gguf_quants(paths)[0]
    headers = _each(repository, paths, read_gguf_header)
    first = headers[0]
    tensors = [tensor for header in headers for tensor in header.tensors]
    _check_count(repository, tensors)
    _check_split(repository, first, paths, len(tensors))
    from_file = gguf_config(replace(first, tensors=tuple(tensors)), f"{repository.where}: {paths[0]}")
    content = repository.small(CONFIG, LARGEST)
    # A config.json of the repository says more than the file: state types, draft layers.
    beside = read_config(content, f"{repository.where}: {CONFIG}") if content is not None else None
    if beside is None or not beside.text_model.has("hidden_size"):
        config, origin = from_file, Origin(repository.label, f"{paths[0]}: metadata")
    else:
        config, origin = with_class_defaults(beside), Origin(repository.label, CONFIG, left_out(beside))
    return _Contents(
        paths,
        _gguf_model(repository, first, quant),
        quant,
        Gguf(),
        config,
        origin,
        sums_of(repository.where, tensors, from_file.layers, Gguf(), tied=False),
        gguf_templates(first.metadata),
    )


def _checkpoint(repository: Repository, contents: _Contents, model: str, extras: Extras) -> CheckpointEntry:
    """The entry of the catalogue. Raises InputError for a name that a catalogue cannot have."""
    scheme, sums, origin = contents.scheme.catalogue, contents.sums, contents.origin
    by_format = {"mistral_class": f"{origin.config}, as vLLM reads it"} if contents.mistral_class else {}
    fields: dict[str, Any] = {
        "repo": repository.name,
        "model": model,
        "quant": contents.quant,
        "scheme": scheme,
        "expert_scheme": contents.scheme.of_experts,
        "method": "" if scheme == "gguf" else contents.scheme.engine_name,
        "mistral_class": contents.mistral_class,
        "scope": "all" if scheme in ("gguf", "bf16") else "experts" if sums.experts_only else "linear",
        "bytes": sum(repository.files[path] for path in contents.paths),
        "bytes_exact": True,
        "tensors": tensor_bytes(sums),
        "shards": len(contents.paths),
        "entry": contents.paths[0] if scheme == "gguf" else "",
        "revision_seen": repository.revision,
        "location": repository.location,
        "template_tools": takes_tools(contents.templates),
        "kv_cache_type": contents.kv_cache_type,
        "license": extras.license or None,
        "notes": extras.notes,
        "sources": {
            "bytes": f"{origin.label}: sizes of {contents.weights}",
            "tensors": origin.headers(contents.weights),
            **by_format,
        },
    }
    where = f"{repository.name} {contents.quant}"
    return built(CheckpointEntry, fields, where, "rename it, or choose another one")


def _each(repository: Repository, paths: Sequence[str], read: Callable[[ByteSource], T]) -> list[T]:
    """What is read of each file, some of them at once, within a time limit for all."""
    with time_limit(HEADERS_S), ThreadPoolExecutor(READERS) as pool:
        waiting = [pool.submit(contextvars.copy_context().run, read, repository.source(path)) for path in paths]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _check_count(repository: Repository, tensors: Sequence[Tensor]) -> None:
    if len(tensors) > MOST_TENSORS:
        raise InputError(f"{repository.where}: more than {MOST_TENSORS:,} tensors", "choose another checkpoint")
    names: set[str] = set()
    for tensor in tensors:
        if tensor.name in names:
            raise InputError(f"{repository.where}: {tensor.name[:80]} is in two files", "choose another checkpoint")
        names.add(tensor.name)


def _check_split(repository: Repository, first: GgufHeader, paths: Sequence[str], count: int) -> None:
    """Raises InputError where the first shard names another count of tensors than all shards have."""
    said = first.metadata.get("split.tensors.count")
    if len(paths) > 1 and said is not None and said != count:
        raise InputError(
            f"{repository.where}: {paths[0]}: split.tensors.count is {said}, but the shards have {count:,} tensors",
            "choose another revision: this one is damaged",
        )


def _only_quant(repository: Repository) -> str:
    quants = gguf_quants(repository.files)
    if len(quants) == 1:
        return quants[0]
    if quants:
        raise InputError(
            f"{repository.where}: {len(quants)} quantisations; name one",
            f"rigup model add {repository.name}:{quants[0]}; choose from: {', '.join(quants[:30])}",
        )
    if CONFIG in repository.files:
        raise InputError(
            f"{repository.where}: a {CONFIG} without weights", "choose a repository with safetensors or GGUF"
        )
    raise InputError(
        f"{repository.where}: neither safetensors nor GGUF weights", "choose a repository with safetensors or GGUF"
    )


def _gguf_model(repository: Repository, header: GgufHeader, quant: str) -> str:
    """The name of a GGUF's model: of a file by itself, its name without the quantisation; from Ollama, what it says."""
    said = header.metadata.get("general.name")
    named = re.sub(r"[^A-Za-z0-9_.-]+", "-", said[:100]).strip("-.") if isinstance(said, str) else ""
    if repository.location.startswith("ollama:") and named:
        return model_name(named)
    if repository.location:
        return model_name(re.sub(rf"[-._]{re.escape(quant)}$", "", repository.name, flags=re.IGNORECASE))
    return model_name(repository.name)


def quant_name(scheme: Scheme) -> str:
    """What users call the quantisation: BF16, FP8, NVFP4, GPTQ-INT4-g128."""
    kind, _, rest = scheme.catalogue.partition("_")
    group = f"-{rest}" if rest.startswith("g") and rest[1:].isdigit() else ""
    method = {"gptq": "GPTQ-", "awq": "AWQ-", "auto-round": "AutoRound-"}.get(scheme.engine_name, "")
    return f"{method}{kind.upper()}{group}"
