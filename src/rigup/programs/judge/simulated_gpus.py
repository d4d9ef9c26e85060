"""A rig that is not there: torch, Triton, NVML and an engine believe in a number of CUDA GPUs of one kind.

Questions about them are answered (how many, which name, capability, memory, multiprocessors); nothing is computed.
Tensors on "cuda" are torch's FakeTensors: shape, type and device, without storage. `install` comes before the first
import of the engine.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import mmap
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_MIB = 1 << 20
# Of CUDA's table of technical specifications by compute capability, as torch reports them. The others have the last.
_SHARED_MEMORY = {8: {0: 166_912}, 9: {0: 232_448}, 10: {0: 232_448, 3: 232_448}, 11: {0: 232_448}}
_SHARED_MEMORY_ELSE = 101_376
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
_host_memory: set[int] = set()
_host_memory_kept: list[Any] = []


def load_driver() -> None:
    """Loads the driver's libcuda.so.1, which engines are linked against and which then finds no device, or a stub.

    A driver looks for devices once, so that its variable can be taken back.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        cuda = ctypes.CDLL(str(stub_driver(Path(sys.prefix) / "judge")), mode=ctypes.RTLD_GLOBAL)
    visible = os.environ.get(_VISIBLE)
    os.environ[_VISIBLE] = ""
    cuda.cuInit(0)
    del os.environ[_VISIBLE]
    if visible is not None:
        os.environ[_VISIBLE] = visible


def multiprocessors(index: int) -> int:
    """How many a card of this machine has: its driver says so, of which only the library is loaded.

    Raises OSError where there is no driver, RuntimeError where it does not answer.
    """
    cuda = ctypes.CDLL("libcuda.so.1")
    device, count = ctypes.c_int(), ctypes.c_int()
    calls = (
        ("cuInit", 0),
        ("cuDeviceGet", ctypes.byref(device), index),
        ("cuDeviceGetAttribute", ctypes.byref(count), _MULTIPROCESSOR_COUNT, device),
    )
    for name, *arguments in calls:
        if code := getattr(cuda, name)(*arguments):
            raise RuntimeError(f"{name} of GPU {index}: CUDA error {code}")
    return count.value


def stub_driver(folder: Path) -> Path:
    """A libcuda.so.1 whose every function says that there is no device."""
    path = folder / "libcuda.so.1"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        names = {"cuInit", "cuDriverGetVersion"}
        site = Path(str(importlib.util.find_spec("torch").origin)).parent.parent  # type: ignore[union-attr]
        linked = ("vllm/**/*.so", "sgl_kernel/**/*.so", "torch/lib/libtorch_cuda*.so", "triton/_C/*.so")
        for library in (path for pattern in linked for path in site.glob(pattern)):
            with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                names |= {found.decode() for found in re.findall(rb"\0(cu[A-Z][A-Za-z0-9_]{3,60})(?=\0)", content)}
        source = "".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names))
        made = path.with_name(f"{path.name}.{os.getpid()}")
        words = ["gcc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-x", "c", "-", "-o", str(made)]
        subprocess.run(words, input=source.encode(), check=True)
        made.rename(path)
    return path


class _Stream:
    """Stands for torch.cuda.Stream: an order of work that is never done."""

    cuda_stream = stream_id = device_index = priority = 0
    device_type = 1

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def wait_stream(self, *args: Any) -> None:
        pass

    wait_event = synchronize = wait_stream

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def query(self) -> bool:
        return True

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, -5)


class _Event:
    event_id = cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record(self, *args: Any) -> None:
        pass

    wait = synchronize = record

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 0.0


def _constant(value: Any) -> Callable[..., Any]:
    """A new function each time, for torch._dynamo keeps a table of them."""
    return lambda *args, **kwargs: value


@contextlib.contextmanager
def _context(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def install(gpu: dict[str, Any], count: int, nvml: str) -> None:
    """gpu: "name" and "capability" as NVML has them, "memory_mib", "multiprocessors", "nvlink", "unified".

    "free_mib": what of its memory is free, where not all is. nvml: the module that the engine asks as NVML.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    load_driver()
    major, minor = gpu["capability"]
    memory = gpu["memory_mib"] * _MIB
    free = gpu.get("free_mib", gpu["memory_mib"]) * _MIB
    shared = _SHARED_MEMORY.get(major, {}).get(minor, _SHARED_MEMORY_ELSE)
    properties = types.SimpleNamespace(
        name=gpu["name"],
        major=major,
        minor=minor,
        total_memory=memory,
        multi_processor_count=gpu["multiprocessors"],
        is_integrated=int(gpu["unified"]),
        is_multi_gpu_board=0,
        warp_size=32,
        L2_cache_size=50 * _MIB,
        max_threads_per_multi_processor=2048 if (major, minor) == (8, 0) or major in (9, 10) else 1536,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=shared,
        shared_memory_per_multiprocessor=shared + 1024,
        max_threads_per_block=1024,
        gcnArchName="",
        uuid="GPU-0",
        clock_rate=2_000_000,
        memory_clock_rate=10_000_000,
        memory_bus_width=512,
    )
    _simulate_torch(properties, (free, memory), count)
    if gpu["unified"]:  # vLLM asks the system what is free
        psutil: Any = importlib.import_module("psutil")
        of_host = types.SimpleNamespace(total=memory, available=free, free=free, used=memory - free, percent=0.0)
        psutil.virtual_memory = _constant(of_host)
    sys.modules[nvml] = _simulated_nvml(nvml, gpu, (free, memory), count)
    _simulate_triton(properties)
    _forbid_compiling()


def _simulate_torch(properties: types.SimpleNamespace, free_and_all: tuple[int, int], count: int) -> None:
    import torch

    capability = (properties.major, properties.minor)
    cuda, accelerator = torch.cuda, torch.accelerator
    nothing_held = {"memory_stats": {}, "memory_allocated": 0, "memory_reserved": 0, "max_memory_allocated": 0}
    answers = {
        "is_available": True,
        "is_initialized": True,
        "device_count": count,
        "_device_count_nvml": count,
        "current_device": 0,
        "get_device_capability": capability,
        "get_device_properties": properties,
        "get_device_name": properties.name,
        "mem_get_info": free_and_all,
        "is_current_stream_capturing": False,
        "can_device_access_peer": True,
        "current_blas_handle": 0,
        "graph_pool_handle": (0, 0),
        "get_arch_list": [f"sm_{capability[0]}{capability[1]}"],
        "is_bf16_supported": True,
        "_is_compiled": True,
        **nothing_held,
    }
    for name, value in answers.items():
        setattr(cuda, name, _constant(value))
    silent = (
        "_lazy_init init set_device synchronize empty_cache reset_peak_memory_stats ipc_collect manual_seed_all "
        "manual_seed set_stream _sleep set_sync_debug_mode"
    )
    for name in silent.split():
        setattr(cuda, name, _constant(None))
    cuda.Stream, cuda.Event, cuda.ExternalStream = _Stream, _Event, _Stream
    torch.Stream, torch.Event = type("Stream", (_Stream,), {}), type("Event", (_Event,), {})
    cuda.current_stream = cuda.default_stream = lambda *args, **kwargs: _Stream()
    cuda.stream = cuda.device = _context
    cuda.memory._set_allocator_settings = _constant(None)
    real_tensor = torch.tensor
    torch.tensor = lambda *args, pin_memory=False, **kwargs: real_tensor(*args, **kwargs)
    torch.Tensor.pin_memory = lambda self, *args: self
    answers = {
        "is_available": True,
        "device_count": count,
        "current_device_index": 0,
        "current_accelerator": torch.device("cuda"),
        "get_memory_info": free_and_all,
        "get_device_capability": {},
        **nothing_held,
    }
    for name, value in answers.items():
        setattr(accelerator, name, _constant(value))
    for name in [
        "set_device_index",
        "synchronize",
        "empty_cache",
        "reset_peak_memory_stats",
        "set_stream",
        "empty_host_cache",
    ]:
        setattr(accelerator, name, _constant(None))
    accelerator.current_stream = lambda *args, **kwargs: _Stream()
    accelerator.device_index = _context


def _simulated_nvml(name: str, gpu: dict[str, Any], free_and_all: tuple[int, int], count: int) -> Any:
    free, memory = free_and_all
    nvml: Any = types.ModuleType(name)
    nvml.NVMLError = type("NVMLError", (Exception,), {})
    nvml.NVML_P2P_CAPS_INDEX_NVLINK, nvml.NVML_P2P_STATUS_OK = 2, 0
    nvml.nvmlInit = nvml.nvmlShutdown = _constant(None)
    nvml.nvmlDeviceGetCount = _constant(count)
    nvml.nvmlDeviceGetHandleByIndex = nvml.nvmlDeviceGetIndex = lambda index: index
    nvml.nvmlDeviceGetCudaComputeCapability = _constant(tuple(gpu["capability"]))
    nvml.nvmlDeviceGetName = _constant(gpu["name"])
    nvml.nvmlDeviceGetUUID = lambda handle: f"GPU-{handle}"
    nvml.nvmlDeviceGetMemoryInfo = _constant(types.SimpleNamespace(total=memory, free=free, used=memory - free))
    nvml.nvmlDeviceGetP2PStatus = _constant(0 if gpu["nvlink"] else 1)
    nvml.nvmlSystemGetDriverVersion = _constant("610.30")
    nvml.nvmlDeviceGetPciInfo = lambda handle: types.SimpleNamespace(busId=f"0000:{handle:02x}:00.0")
    return nvml


def _simulate_triton(properties: types.SimpleNamespace) -> None:
    """Kernels are neither compiled nor run."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget

    capability = (properties.major, properties.minor)
    known = {
        "max_shared_mem": properties.shared_memory_per_block_optin,
        "max_num_regs": properties.regs_per_multiprocessor,
        "multiprocessor_count": properties.multi_processor_count,
        "warpSize": 32,
        "sm_clock_rate": properties.clock_rate,
        "mem_clock_rate": properties.memory_clock_rate,
        "mem_bus_width": properties.memory_bus_width,
    }
    driver = types.SimpleNamespace(
        get_current_target=_constant(GPUTarget("cuda", capability[0] * 10 + capability[1], 32)),
        get_current_device=_constant(0),
        get_current_stream=_constant(0),
        get_active_torch_device=_constant(torch.device("cuda")),
        get_device_interface=_constant(torch.cuda),
        get_device_capability=_constant(capability),
        set_current_device=_constant(None),
        get_benchmarker=_constant(None),
        utils=types.SimpleNamespace(get_device_properties=_constant(known)),
    )
    triton.runtime.driver.set_active(driver)
    for kind in (
        triton.runtime.jit.JITFunction,
        triton.runtime.autotuner.Autotuner,
        triton.runtime.autotuner.Heuristics,
    ):
        kind.run = _constant(None)


def _forbid_compiling() -> None:
    """FlashInfer compiles nothing: what needs one of its modules at the start stops there."""
    jit: Any = importlib.import_module("flashinfer.jit.core")

    def not_built(spec: Any, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(f"FlashInfer would compile {spec.name} here")

    jit.JitSpec.build_and_load = jit.JitSpec.build = not_built


def fake_mode() -> Any:
    """FakeTensorMode for all that is on cuda. What lives on the CPU stays real, for numpy's views of it are taken."""
    import torch
    from torch._subclasses import fake_impls, fake_tensor
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, UnsupportedOperatorException
    from torch.utils._pytree import tree_leaves

    fake_tensor.init_gpu_context = lambda device: None

    def scalar(mode: Any, func: Any, tensor: Any) -> Any:
        """A number that a kernel would have to compute. Repacking looks at scales: ones, neither NaN nor negative."""
        return False if tensor.dtype == torch.bool else 1.0 if tensor.is_floating_point() else 1

    def every_place(mode: Any, func: Any, tensor: Any) -> Any:
        """nonzero, of which only the size can be wanted: as if nothing were zero."""
        with mode:
            return torch.empty((tensor.numel(), tensor.dim()), dtype=torch.int64, device=tensor.device)

    aten = torch.ops.aten
    fake_impls.op_implementations_dict[aten._local_scalar_dense.default] = scalar
    for same in (aten.equal.default, aten.allclose.default):
        fake_impls.op_implementations_dict[same] = lambda mode, func, *args, **kwargs: True
    fake_impls.op_implementations_dict[aten.nonzero.default] = every_place
    real_swap = torch.utils.swap_tensors

    def swap(one: Any, other: Any) -> None:
        if not (isinstance(one, FakeTensor) and one.dtype == other.dtype and one.device == other.device):
            real_swap(one, other)  # module.to(what it is already) would fail, for fakes are referred to elsewhere

    torch.utils.swap_tensors = swap

    class CudaOnly(FakeTensorMode):  # type: ignore[misc]
        avoid_device_init = True  # torch then puts a device guard in place that does nothing

        def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func.__name__.startswith("get_cuda_view_from_cpu_tensor"):  # pinned host memory that the GPU reads
                with self:
                    view = torch.empty_like(args[0], device="cuda")
                _host_memory.add(view.untyped_storage()._cdata)
                _host_memory_kept.append(view)
                return view
            if func is aten.copy_.default and args[1].device.type == "meta":
                return args[0]
            if func is aten._to_copy.default and type(args[0]) is torch.Tensor and args[0].device.type == "meta":
                # a parameter that was on the CPU, on its way back: torch 2.11 forgets that its data are fake
                return torch.ones(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
            leaves = tree_leaves((args, kwargs))
            if not any(isinstance(x, FakeTensor) or (isinstance(x, torch.device) and x.type != "cpu") for x in leaves):
                return func(*args, **{**kwargs, **({"pin_memory": False} if "pin_memory" in kwargs else {})})
            if func.__name__.startswith(("_to_copy.", "to.")) and not isinstance(args[0], FakeTensor):  # from the CPU
                dtypes = [x for x in leaves if isinstance(x, torch.dtype)]
                with self:
                    return torch.empty(args[0].shape, dtype=dtypes[0] if dtypes else args[0].dtype, device="cuda")
            try:
                return super().dispatch(func, types, args, kwargs)
            except (UnsupportedOperatorException, NotImplementedError):
                if func._schema.returns:
                    raise
                return None  # a kernel that writes into what it was given

    return CudaOnly(allow_non_fake_inputs=True)


def bytes_of(root: Any) -> int:
    """Storages on cuda that a model leads to: parameters, buffers, and what repacking hung on its layers."""
    from torch import Tensor, nn
    from torch._subclasses.fake_tensor import FakeTensor

    storages, seen, stack = dict[int, int](), set[int](), [root]
    while stack:
        thing = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            if isinstance(thing, FakeTensor) and thing.device.type == "cuda":
                storages[thing.untyped_storage()._cdata] = thing.untyped_storage().nbytes()
        elif isinstance(thing, dict):
            stack.extend(thing.values())
        elif isinstance(thing, (list, tuple, set)):
            stack.extend(thing)
        elif isinstance(thing, nn.Module) or type(thing).__module__.startswith(
            ("vllm.model_executor.layers", "triton_kernels", "vllm.third_party.triton_kernels")
        ):
            stack.extend(vars(thing).values() if hasattr(thing, "__dict__") else ())
    return sum(size for key, size in storages.items() if key not in _host_memory)
