"""compressed-tensors (LLM Compressor, Kimi): groups of modules, each with its own way of storing weights.

Formats: float-quantized (FP8: one scale a matrix, a row, or a block), int-quantized, pack-quantized (integers packed
into 32 bits), nvfp4-pack-quantized, mxfp4-pack-quantized. Source: vLLM 0.33.0 quantization/compressed_tensors/; the
configurations of RedHatAI's and moonshotai's repositories.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.scheme import Exclusions, Scheme, StoredPart, exclusions, groups, number

BITS = (4, 8)
WORD = 32
STRATEGIES = ("tensor", "channel", "group", "block", "tensor_group")
SIZES = (16, 32, 64, 128, 256)
MOST_GROUPS = 64


@dataclass(frozen=True)
class ModuleGroup:
    """Modules stored alike. kind: "float" or "int". size: of a group of weights, None without.

    targets: names and patterns. everything: every linear layer.
    """

    kind: str
    width: int
    strategy: str
    size: int | None
    symmetric: bool
    static_inputs: bool
    targets: Exclusions
    everything: bool

    @property
    def name(self) -> str:
        """Its name in the catalogue's checkpoints."""
        if self.kind == "float" and self.width == 4:
            return "mxfp4" if self.size == 32 else "nvfp4" if self.static_inputs else "nvfp4_a16"
        if self.kind == "float":
            return {"block": "fp8_block128", "tensor": "fp8_tensor"}.get(self.strategy, "fp8_channel")
        return f"int{self.width}_g{self.size}" if self.size else f"int{self.width}_channel"

    def stored(self, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """The weights, their scales, and what else belongs to them."""
        count = groups(columns, self.size or -1)
        if self.kind == "float" and self.width == 4:
            packed = StoredPart(".weight_packed", "U8", (rows, columns // 2))
            if self.size == 32:
                return (packed, StoredPart(".weight_scale", "U8", (rows, count)))
            scale = StoredPart(".weight_scale", "F8_E4M3", (rows, count))
            ends = ("weight", "input") if self.static_inputs else ("weight",)
            return (packed, scale, *(StoredPart(f".{end}_global_scale", "F32", (1,)) for end in ends))
        if self.kind == "int" and self.width == 4:
            packed = StoredPart(".weight_packed", "I32", (rows, -(-columns * self.width // WORD)))
            scale = StoredPart(".weight_scale", "BF16", (rows, count))
            zero = (StoredPart(".weight_zero_point", "I32", (-(-rows * self.width // WORD), count)),)
            return (packed, scale, *(() if self.symmetric else zero), StoredPart(".weight_shape", "I64", (2,)))
        weight = StoredPart(".weight", "F8_E4M3" if self.kind == "float" else "I8", (rows, columns))
        block = (-(-rows // 128), -(-columns // 128))
        shape = {"tensor": (1,), "block": block}.get(self.strategy, (rows, count))
        scale = StoredPart(".weight_scale", "BF16", shape)
        return (weight, scale, *((StoredPart(".input_scale", "BF16", (1,)),) if self.static_inputs else ()))


@dataclass(frozen=True)
class CompressedTensors(Scheme):
    """groups: the first that a module belongs to counts."""

    engine_name = "compressed-tensors"
    groups: tuple[ModuleGroup, ...] = ()

    @property
    def main(self) -> ModuleGroup:
        """The group with the fewest bits, which is where most of the weights are."""
        return min(self.groups, key=lambda group: group.width)

    def group_of(self, module: str) -> ModuleGroup | None:
        """The group of a module; None for one that is not quantised."""
        return next((group for group in self.groups if group.everything or module in group.targets), None)

    @property
    def catalogue(self) -> str:
        """That of the main group."""
        return self.main.name

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """As the module's group stores it."""
        group = self.group_of(module)
        return group.stored(rows, columns) if group else super().quantised(module, rows, columns)

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """Two to a byte of packed floats, eight to a word of packed integers."""
        found = super().weights(name, dtype, elements)
        if name.endswith("_packed"):
            return found * (2 if dtype == "U8" else WORD // self.main.width)
        return found


def read(config: Mapping[str, Any]) -> CompressedTensors | None:
    """The scheme, where the configuration is of it; ModelOpt writes config_groups, too, and is not."""
    if config.get("quant_method") != "compressed-tensors":
        return None
    found = config.get("config_groups")
    if not isinstance(found, dict) or not 0 < len(found) <= MOST_GROUPS:
        raise ValueError("config_groups: must be a table of groups")
    return CompressedTensors(exclusions(config.get("ignore")), tuple(_group(value) for value in found.values()))


def _group(value: Any) -> ModuleGroup:
    weights = value.get("weights") if isinstance(value, dict) else None
    if not isinstance(weights, dict):
        raise ValueError("config_groups: a group has no weights")
    kind, strategy = weights.get("type"), weights.get("strategy", "tensor")
    if kind not in ("float", "int"):
        raise ValueError("config_groups: type: must be float or int")
    if strategy not in STRATEGIES:
        raise ValueError(f"config_groups: strategy: must be one of {', '.join(STRATEGIES)}")
    size = number(weights, "group_size", SIZES) if weights.get("group_size") not in (None, -1) else None
    inputs = value.get("input_activations")
    static = isinstance(inputs, dict) and inputs.get("dynamic") in (False, "local")
    targets = value.get("targets", ["Linear"])
    return ModuleGroup(
        kind,
        number(weights, "num_bits", BITS),
        strategy,
        size,
        weights.get("symmetric") is not False,
        static,
        exclusions(targets),
        isinstance(targets, list) and "Linear" in targets,
    )
