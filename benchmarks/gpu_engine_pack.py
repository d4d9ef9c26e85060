"""Makes what `bin/gpu-check --engine` needs: `python -m benchmarks.gpu_engine_pack FOLDER`, where there is a network.

vLLM's locked packages for one compute capability, in parts of at most 53 MB, so that they can be carried one by one:

engine.tar.xz.a, .b, ...   the packages, without NVIDIA's libraries, code for other cards, debug information, and what
                           a text model does not load; six parts, 320 MB
models.tar.xz              configurations of models of full size, with a tokenizer of bytes; weights are made there

It needs Python 3.12, uv's room for 9 GB, binutils and twelve minutes of two processors.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from rigup.catalogue.catalogue import load_catalogue
from rigup.programs.build_environment import requirements
from rigup.sources.python_environment import resolve_environment
from rigup.sources.uv import run_uv
from tests.tiny.checkpoint import BEGIN, END, TEMPLATE, tokenizer
from tests.unit.sources.local_uv import local_uv

PART_BYTES = 53_000_000
STRIPPED_FROM = 8_000_000
PYTHON = "3.12"
CONFIGS = Path(__file__).parents[1] / "tests/published/configs.json"
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "MiniMax-M2.5-14": ("MiniMaxAI/MiniMax-M2.5", {"num_hidden_layers": 14}),
    "Qwen3-8B": ("Qwen/Qwen3-8B", {}),
    "Qwen3-30B-A3B-FP8": ("Qwen/Qwen3-30B-A3B-FP8", {}),
    "Qwen3-32B-FP8": ("Qwen/Qwen3-32B-FP8", {}),
}
# In site-packages: what is on a machine with PyTorch, and what vLLM 0.33.0 does not import for a text model.
LEFT_OUT = {
    *("nvidia", "nccl", "numpy", "numpy.libs", "scipy", "scipy.libs", "cv2", "opencv_python_headless.libs", "PIL"),
    *("pillow.libs", "grpc", "uvloop", "sympy", "networkx", "mpmath", "regex", "yaml", "aiohttp", "multidict"),
    *("yarl", "frozenlist", "propcache", "numba", "llvmlite"),
    *("PyNvVideoCodec", "anthropic", "cudnn", "instanttensor", "mistral_common", "nvidia_cutlass_dsl", "pycountry"),
    *("tilelang", "tokenspeed_triton", "torchaudio", "torchcodec", "torchcodec.libs", "z3"),
}
UNUSED = ("ptxas", "ptxas-blackwell", "vllm-rs", "_vllm_fa2_C.abi3.so", "libproton.so", "libtorch_cuda_linalg.so")
FAT_BINARY, MACHINE_CODE, PTX = 0xBA55ED50, 2, 1


def main() -> int:
    """Makes the folder from scratch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--capability", default="9.0", help="of the machine's card")
    parser.add_argument("--packages", type=Path, metavar="FOLDER", help="site-packages that are there already")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    pack_models(args.folder / "models.tar.xz")
    with tempfile.TemporaryDirectory() as scratch:
        packages = args.packages or installed(Path(scratch))
        kept = Path(scratch) / "kept"
        select(packages, kept, int(args.capability.replace(".", "")))
        pack(kept, args.folder)
    print(f"{args.folder}: {sum(path.stat().st_size for path in args.folder.iterdir()) / 1e6:.1f} MB")
    return 0


def pack(kept: Path, folder: Path) -> None:
    """Compresses the packages in blocks, which the machine unpacks side by side, and splits what comes out."""
    tar = ["tar", "-C", str(kept), "--sort=name", "--transform=s,^[.],site,", "-cf", "-", "."]
    split = ["split", f"--bytes={PART_BYTES}", "--suffix-length=1", "-", str(folder / "engine.tar.xz.")]
    with (
        subprocess.Popen(tar, stdout=subprocess.PIPE) as packages,
        subprocess.Popen(["xz", "-T0", "-5", "-c"], stdin=packages.stdout, stdout=subprocess.PIPE) as packed,
    ):
        subprocess.run(split, stdin=packed.stdout, check=True)
    if packages.returncode or packed.returncode:
        raise SystemExit("tar or xz failed")


def installed(scratch: Path) -> Path:
    """site-packages with every locked wheel of the newest vLLM, by hash."""
    engine = load_catalogue().engines_by_name["vllm"]
    release = engine.version()
    assert release is not None
    locked = resolve_environment(local_uv(), release, "cuda", "x86_64").environment
    listed, folder = scratch / "requirements.txt", scratch / "environment"
    listed.write_text(requirements(locked.files, locked.addresses))
    install = ["pip", "install", "--python", f"{folder}/bin/python", "--no-deps", "--require-hashes", "-r", str(listed)]
    for words in (["venv", "--python", PYTHON, str(folder)], install):
        done = run_uv(local_uv(), words)
        if done.returncode:
            raise SystemExit(done.stderr)
    return folder / f"lib/python{PYTHON}/site-packages"


def select(packages: Path, kept: Path, capability: int) -> None:
    """Copies what is carried: Python's files, and libraries without what this card cannot use."""
    for path in sorted(packages.rglob("*")):
        relative = path.relative_to(packages)
        top = relative.parts[0]
        if top in LEFT_OUT or path.name in UNUSED or path.suffix in (".a", ".pyc") or not path.is_file():
            continue
        if top.endswith(".dist-info"):
            project = top.partition("-")[0].lower()
            if path.name not in ("METADATA", "entry_points.txt") or project in (
                "torchaudio",
                "torchcodec",
                "z3_solver",
            ):
                continue
        target = kept / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        if ".so" in path.name and path.stat().st_size >= STRIPPED_FROM:
            content = bytearray(path.read_bytes())
            clear_other_code(content, capability)
            target.write_bytes(content)
            subprocess.run(["strip", "--strip-unneeded", target], check=False, capture_output=True)
        else:
            shutil.copyfile(path, target)


def clear_other_code(library: bytearray, capability: int) -> int:
    """Overwrites machine code for other cards with zeros, which compress to nothing; how many bytes.

    Where there is none for this card, the newest PTX stays that it can take. Entries of a container keep their places.
    Layout: NVIDIA's fatbinary container, as `cuobjdump --list-elf` lists it.
    """
    cleared, place = 0, 0
    magic = struct.pack("<I", FAT_BINARY)
    while (place := library.find(magic, place)) >= 0:
        version, head, size = struct.unpack_from("<HHQ", library, place + 4)
        end = place + head + size
        if version != 1 or not head or end > len(library):
            place += 4
            continue
        entries, entry = [], place + head
        while entry + 32 <= end:
            kind, _, entry_head, length = struct.unpack_from("<HHIQ", library, entry)
            (target,) = struct.unpack_from("<I", library, entry + 28)
            entries.append((kind, target, entry + entry_head, length))
            entry += entry_head + length
            if not entry_head:
                break
        own = [each for each in entries if each[:2] == (MACHINE_CODE, capability)]
        texts = [each for each in entries if each[0] == PTX and each[1] <= capability]
        kept = own or [max(texts, key=lambda each: each[1])] if own or texts else []
        for each in entries:
            if each not in kept:
                _, _, start, length = each
                library[start : start + length] = bytes(length)
                cleared += length
        place = end
    return cleared


def pack_models(target: Path) -> None:
    """A folder for each model, without weights."""
    configs = json.loads(CONFIGS.read_text())
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(target, "w:xz") as tar:
        for name, (repository, changes) in MODELS.items():
            folder = Path(scratch) / name
            folder.mkdir()
            config = {**configs[repository]["config"], **changes}
            if "attn_type_list" in config:
                config["attn_type_list"] = config["attn_type_list"][: config["num_hidden_layers"]]
            vocabulary = tokenizer()
            known = vocabulary["model"]["vocab"]
            known |= {f"<unused{number}>": number for number in range(len(known) + 2, config["vocab_size"])}
            names = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BEGIN, "eos_token": END}
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
            (folder / "tokenizer_config.json").write_text(json.dumps(names))
            (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": 256, "eos_token_id": 257}))
            (folder / "chat_template.jinja").write_text(TEMPLATE)
            tar.add(folder, f"models/{name}")


if __name__ == "__main__":
    sys.exit(main())
