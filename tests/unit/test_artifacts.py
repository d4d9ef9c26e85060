"""The parts of a lock that pin Python environments: what is wrong with an edited one, by line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from rigup.artifacts import CudaCompiler, LockedEnvironment, LockedUv
from rigup.errors import InputError
from rigup.lock import RESTORE_HINT, Lock, load_lock
from rigup.lockfile.text import lock_text

WHEEL = "vllm-0.33.0-cp38-abi3-manylinux_2_28_x86_64.whl"
ADDRESS = f"https://wheels.example/{WHEEL}"
CUDA = LockedEnvironment(
    engine="vllm", version="0.33.0", python="3.12.12", files={WHEEL: "a" * 64}, addresses={WHEEL: ADDRESS}
)
TEXT = lock_text(
    Lock(
        uv=LockedUv(version="0.13.9", files={"uv-0.13.9-py3-none-any.whl": "c" * 64}),
        environments=(CUDA.model_copy(update={"engine": "sglang", "version": "0.5.23", "addresses": {}}), CUDA),
    )
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (f'"{"a" * 64}"', '"aaaa"', f'18: environments[0].files.{WHEEL}: "aaaa" '),
        ('variant = "cuda"', 'variant = "gpu"', "12: environments[0].variant: input should be 'cuda' or 'cpu'"),
        ('python = "3.12.12"', 'python = "py312"', '14: environments[0].python: "py312" '),
        (
            'engine = "vllm"',
            'engine = "tgi"',
            "21: environments[1].engine: input should be 'vllm', 'sglang' or 'llama.cpp'",
        ),
        (
            '"https://',
            '"ftp://',
            f'32: environments[1].addresses.{WHEEL}: "ftp://wheels.example/{WHEEL}" ',
        ),
        (
            f'"{WHEEL}" = "https',
            '"other.whl" = "https',
            "20: environments[1]: addresses names other.whl, which is not among files",
        ),
        (
            f'"{WHEEL}" = "a',
            '"../x.whl" = "a',
            '18: environments[0].files.../x.whl: "../x.whl" ',
        ),
        (
            '"uv-0.13.9',
            '"pip-0.13.9',
            '7: uv.files.pip-0.13.9-py3-none-any.whl: "pip-0.13.9-py3-none-any.whl" ',
        ),
        ('version = "0.13.9"', "", "3: uv.version: missing"),
    ],
)
def test_line_and_key_of_what_is_wrong(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "rigup.lock"
    assert old in TEXT
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(InputError) as error:
        load_lock(path)
    assert error.value.message.startswith(f"{path}:{message}")
    assert error.value.hint == RESTORE_HINT


def test_an_environment_that_stands_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "rigup.lock"
    path.write_text(TEXT.replace('engine = "sglang"\nversion = "0.5.23"', 'engine = "vllm"\nversion = "0.33.0"'))
    with pytest.raises(InputError) as error:
        load_lock(path)
    assert error.value.message == f"{path}:20: environments[1]: vllm 0.33.0 cuda x86_64 is listed twice"


@pytest.mark.parametrize(
    ("project", "series", "there"),
    [
        ("nvidia-cuda-nvcc", "", True),
        ("nvidia-cuda-nvcc", "13.0", True),
        ("nvidia-cuda-nvcc", "13", True),
        ("nvidia-cuda-nvcc", "13.5", False),
        ("nvidia-cuda-nvcc", "1", False),
        ("nvidia-cuda", "", False),
    ],
)
def test_a_package_is_there_in_a_series_whatever_else_a_lock_names(project: str, series: str, there: bool) -> None:
    files = dict.fromkeys(("nvidia_cuda_nvcc-13.0.88-py3-none-any.whl", "edited_by_hand.whl"), "0" * 64)
    found = LockedEnvironment(engine="vllm", version="0.33.0", python="3.12.12", files=files)
    assert found.has(project, series) is there


@pytest.mark.parametrize(
    ("kernels", "rig", "wanted", "compiled_for"),
    [
        (("all:cards",), ("8.6",), ("all:cards",), ("8.6",)),
        (("all:cards",), ("8.6", "9.0"), ("all:cards", "hopper:only"), ("8.6", "9.0")),
        ((), ("9.0",), ("hopper:only",), ("9.0",)),
        ((), ("8.6",), (), ()),
    ],
)
def test_a_rig_compiles_the_kernels_that_its_cards_need(
    kernels: tuple[str, ...], rig: tuple[str, ...], wanted: tuple[str, ...], compiled_for: tuple[str, ...]
) -> None:
    compiler = CudaCompiler(
        package="nvcc", series="13.0", folder="cu13", kernels=kernels, kernels_of={"9.0": ("hopper:only",)}, source="x"
    )
    found = compiler.for_rig(rig)
    assert (found.kernels, found.compute_capabilities, found.kernels_of) == (wanted, compiled_for, {})
