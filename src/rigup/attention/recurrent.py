"""What layers have in common that fold a sequence into a state: a matrix for each head, and the last tokens of a
convolution.

Sources: vLLM 0.33.0 model_executor/layers/mamba/mamba_utils.py, MambaStateShapeCalculator and
MambaStateDtypeCalculator: the convolution in the model's type, the matrices in the type of the config (mamba_ssm_dtype,
mamba_ssm_cache_dtype), else the model's; SGLang 0.5.23 mem_cache/memory_pool.py, MambaPool; llama.cpp b11434
src/llama-memory-recurrent.cpp: both in f32. Measured: 149.6 MiB for each slot of Qwen3.6-27B on llama.cpp.
"""

from abc import abstractmethod
from typing import Annotated

from pydantic import Field

from rigup.attention.attention_class import MODEL_BYTES, AttentionClass, Count, LayerCache, Storage

_FLOAT_BYTES = 4.0


class Recurrent(AttentionClass):
    """convolution: tokens that the convolution spans. state_bits: an element of the matrices, by the config."""

    convolution: Count = 4
    state_bits: Annotated[int, Field(ge=8, le=32)] = 16

    @abstractmethod
    def state_elements(self, tensor: int) -> int:
        """Elements of the matrices on one rank."""

    @abstractmethod
    def convolved(self, tensor: int) -> int:
        """Channels that the convolution runs over on one rank."""

    @property
    def folds(self) -> bool:
        """Into matrices."""
        return True

    def caches(self, storage: Storage) -> tuple[LayerCache, ...]:
        """One state a sequence, cut by tensor parallelism like the heads."""
        ggml = storage.engine == "llama.cpp"
        matrices = self.state_elements(storage.tensor) * (_FLOAT_BYTES if ggml else self.state_bits / 8)
        tail = (self.convolution - 1) * self.convolved(storage.tensor) * (_FLOAT_BYTES if ggml else MODEL_BYTES)
        return (LayerCache(state_bytes=matrices + tail),)
