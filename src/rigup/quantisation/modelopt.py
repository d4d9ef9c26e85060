"""What NVIDIA's ModelOpt writes, into quantization_config or hf_quant_config.json: NVFP4, FP8, MXFP8, or a mix.

NVFP4: two weights a byte, an FP8 scale for each 16 of them, a float32 scale for the matrix and one for its inputs. FP8:
one scale for the matrix and one for its inputs. MXFP8: an exponent for each 32. Sources: vLLM 0.33.0
quantization/modelopt.py; the configurations of nvidia's repositories.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rigup.quantisation.scheme import Scheme, StoredPart, exclusions, groups

MIXED = "MIXED_PRECISION"
KINDS = {
    "NVFP4": "nvfp4",
    "W4A16_NVFP4": "nvfp4_a16",
    "W4A8_NVFP4_FP8": "nvfp4",
    "FP8": "fp8",
    "FP8_PER_CHANNEL_PER_TOKEN": "fp8",
    "FP8_PB_WO": "fp8",
    "MXFP8": "mxfp8",
}
NVFP4_GROUP = 16
MXFP8_GROUP = 32
MOST_LAYERS = 500_000


@dataclass(frozen=True)
class Modelopt(Scheme):
    """kind: that of every quantised module, or of most of them. layers: kinds by module where they differ."""

    engine_name = "modelopt"
    kind: str = "nvfp4"
    layers: Mapping[str, str] | None = None

    @property
    def catalogue(self) -> str:
        """nvfp4, nvfp4_a16 (whose inputs stay 16 bits wide), fp8_tensor or mxfp8."""
        return "fp8_tensor" if self.kind == "fp8" else self.kind

    def leaves(self, module: str) -> bool:
        """Also modules of a mix that it does not name."""
        return super().leaves(module) or self.kind_of(module) is None

    def kind_of(self, module: str) -> str | None:
        """How a module is quantised, unless it is excluded; None where it is not."""
        if self.layers is None:
            return self.kind
        parts = module.split(".")
        names = (".".join(parts[:count]) for count in range(len(parts), 0, -1))
        return next((self.layers[name] for name in names if name in self.layers), None)

    def quantised(self, module: str, rows: int, columns: int) -> tuple[StoredPart, ...]:
        """The weights, their scales, and that of the inputs."""
        kind = self.kind_of(module)
        if kind == "mxfp8":
            return (
                StoredPart(".weight", "F8_E4M3", (rows, columns)),
                StoredPart(".weight_scale", "U8", (rows, groups(columns, MXFP8_GROUP))),
            )
        inputs = StoredPart(".input_scale", "F32", ())
        if kind == "fp8":
            return (
                StoredPart(".weight", "F8_E4M3", (rows, columns)),
                StoredPart(".weight_scale", "F32", ()),
                inputs,
            )
        return (
            StoredPart(".weight", "U8", (rows, columns // 2)),
            StoredPart(".weight_scale", "F8_E4M3", (rows, groups(columns, NVFP4_GROUP))),
            StoredPart(".weight_scale_2", "F32", ()),
            *((inputs,) if kind == "nvfp4" else ()),
        )

    def weights(self, name: str, dtype: str, elements: int) -> int:
        """Two to a byte of NVFP4."""
        return super().weights(name, dtype, elements) * (2 if dtype == "U8" else 1)


def read(config: Mapping[str, Any]) -> Modelopt | None:
    """The scheme, where the configuration is of it. FP8's own form with NVFP4 experts (DeepSeek V4) counts, too."""
    algorithm = config.get("quant_algo")
    if algorithm is None:
        return None
    excluded = exclusions(config.get("exclude_modules", config.get("ignore")))
    if algorithm != MIXED:
        return Modelopt(excluded, "nvfp4_a16" if _leaves_inputs(algorithm, config) else _kind(algorithm))
    layers = config.get("quantized_layers")
    if not isinstance(layers, dict) or not 0 < len(layers) <= MOST_LAYERS:
        raise ValueError("quantized_layers: must be a table of modules")
    kinds = {name: _kind(layer.get("quant_algo")) for name, layer in layers.items() if isinstance(layer, dict)}
    counts = Counter(kinds.values())
    # four bits where any module has them: what an engine must be able to do for the checkpoint
    four_bits = [kind for kind in ("nvfp4", "nvfp4_a16") if kind in counts]
    main = four_bits[0] if four_bits else max(counts, key=lambda kind: counts[kind], default="fp8")
    return Modelopt(excluded, main, kinds)


def _leaves_inputs(algorithm: Any, config: Mapping[str, Any]) -> bool:
    """Whether NVFP4 is of the weights alone: no group says how inputs are quantised, which engines take as W4A16."""
    said = config.get("config_groups")
    listed = [group for group in said.values() if isinstance(group, dict)] if isinstance(said, dict) else []
    return algorithm == "NVFP4" and bool(listed) and all(group.get("input_activations") is None for group in listed)


def _kind(algorithm: Any) -> str:
    if not isinstance(algorithm, str) or algorithm not in KINDS:
        raise ValueError(f"quant_algo: must be one of {', '.join(sorted((*KINDS, MIXED)))}")
    return KINDS[algorithm]
