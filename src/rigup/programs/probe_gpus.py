"""Asks NVML about every GPU of this machine and prints the answers, one Python literal per line.

    python3 probe_gpus.py            (with pynvml.py of nvidia-ml-py in its folder)

    {"system": {"driver": ..., "cuda": ...}} or {"error": ...}     NVML as a whole
    {"gpu": 0, "name": ..., ...} or {"gpu": 0, "error": ...}       each GPU; None for a value that it does not report
    {"pair": [0, 1], "path": ..., "peer": ..., "nvlinks": ...}     how two GPUs reach each other

A call into a faulty driver may never return, and then its process cannot even be killed. So a child process asks, and
announces each step before it asks. If a step takes too long, that child is abandoned and another one continues after
that step.
"""

from __future__ import annotations

import os
import select
import sys
import time

import pynvml

# typing, json and signal each take longer to import than half of the GPUs take to answer
TYPE_CHECKING = False
_KILL = 9
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    Line = dict[str, Any]

START_SECONDS = 30.0
STEP_SECONDS = 10.0
MOST_SECONDS = 45.0
MIB = 2**20
# pynvml's own names for these are tuples in some of its releases, which C does not accept
_READ, _NVLINK = 0, 2
_PATHS = {0: "internal", 10: "single", 20: "multiple", 30: "host-bridge", 40: "node", 50: "system"}
_REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
}
_MODES = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive thread",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive process",
}
_MOST_PROCESSES = 50
_MOST_TEXT = 4096
_FATAL = (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED)
_COMPLETED = 3
_FABRIC = {1: "not started", 2: "in progress", _COMPLETED: "completed"}


def main() -> int:
    """Prints everything available within MOST_SECONDS. Always returns 0; errors are in the output."""
    deadline = time.monotonic() + MOST_SECONDS
    silent: list[int] = []
    while time.monotonic() < deadline:
        stuck = _follow(_start(silent), deadline)
        if stuck is None:
            return 0
        step, waited = stuck
        problem = f"NVML did not answer within {waited:.0f} s"
        if isinstance(step, int):
            _show({"gpu": step, "error": problem})
            silent.append(step)
        else:
            _show({"error": f"{problem} ({step})"})
            return 0
    return 0


def _start(silent: list[int]) -> tuple[int, int]:
    """Starts a child that asks about the GPUs after those in `silent`; returns its process id and a pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    # the reader of our output must not wait for a child that cannot end
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 2):
        os.dup2(nothing, stream)
    os.dup2(writing, 1)
    os.close(writing)
    os.close(reading)
    try:
        for line in ask(silent):
            text = f"asking {line['asking']}" if "asking" in line else _printed(line)
            os.write(1, text.encode() + b"\n")
    finally:
        os._exit(0)


def _follow(started: tuple[int, int], deadline: float) -> tuple[int | str, float] | None:
    """Passes a child's lines on until it ends; returns None, or else the step that hung and for how long."""
    child, pipe = started
    step: int | str = "start"
    rest = b""
    while True:
        limit = START_SECONDS if step == "start" else STEP_SECONDS
        limit = max(0.1, min(limit, deadline - time.monotonic()))
        if not select.select([pipe], [], [], limit)[0]:
            os.kill(child, _KILL)
            return step, limit
        chunk = os.read(pipe, 65536)
        if not chunk:
            os.waitpid(child, 0)
            return None
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            key, _, asked = line.partition(b" ")
            if key != b"asking":
                os.write(1, line + b"\n")
            else:
                step = int(asked) if asked.isdigit() else asked.decode()


def _printed(line: Line) -> str:
    return f"nvml {line!r}"


def _show(line: Line) -> None:
    print(_printed(line), flush=True)


def ask(silent: list[int]) -> Iterator[Line]:
    """Yields everything as lines, each step announced by {"asking": STEP}.

    silent: ascending indexes of GPUs that must not be asked again; all GPUs up to the last of them are reported
    already.
    """
    try:
        yield {"asking": "start"}
        pynvml.nvmlInit()
        if not silent:
            yield {"system": _system()}
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        yield {"error": _words(error)}
        return
    first_new = silent[-1] + 1 if silent else 0
    handles: dict[int, Any] = {}
    for index in range(count):
        if index in silent:
            continue
        yield {"asking": index}
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            line = _gpu(index, handle) if index >= first_new else None
            handles[index] = handle
        except pynvml.NVMLError as error:
            line = {"gpu": index, "error": _words(error)} if index >= first_new else None
        if line:
            yield line
    yield {"asking": "topology"}
    for first in handles:
        for second in handles:
            if first < second:
                yield _pair(first, second, handles)


def _words(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__


def _system() -> Line:
    cuda = _maybe(pynvml.nvmlSystemGetCudaDriverVersion)
    return {
        "driver": _maybe(pynvml.nvmlSystemGetDriverVersion),
        "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
    }


def _maybe(function: Callable[..., Any], *arguments: Any) -> Any:
    """NVML's answer; None if this GPU, driver or library does not support the call. Raises for a lost GPU."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if getattr(error, "value", None) in _FATAL:
            raise
        return None


def _gpu(index: int, handle: Any) -> Line:
    memory = _memory(handle)
    limits = _maybe(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle) or (None, None)
    capability = _maybe(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    reasons = _maybe(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
    mode = _maybe(pynvml.nvmlDeviceGetComputeMode, handle)
    pci = _maybe(pynvml.nvmlDeviceGetPciInfo, handle)
    return {
        "gpu": index,
        "name": _text(pynvml.nvmlDeviceGetName(handle)),
        "uuid": _text(pynvml.nvmlDeviceGetUUID(handle)),
        "bus": _text(pci.busId) if pci else None,
        "memory_total_mib": memory.total // MIB if memory else None,
        "memory_used_mib": memory.used // MIB if memory else None,
        "memory_reserved_mib": memory.reserved // MIB if hasattr(memory, "reserved") else None,
        "compute_capability": "{}.{}".format(*capability) if capability else None,
        "temperature_c": _maybe(pynvml.nvmlDeviceGetTemperature, handle, 0),
        "pcie_generation": _maybe(pynvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_generation_most": _maybe(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "pcie_width": _maybe(pynvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "pcie_width_most": _maybe(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
        "power_limit_w": _watts(_maybe(pynvml.nvmlDeviceGetPowerManagementLimit, handle)),
        "power_default_w": _watts(_maybe(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)),
        "power_least_w": _watts(limits[0]),
        "power_most_w": _watts(limits[1]),
        "persistence": _switch(_maybe(pynvml.nvmlDeviceGetPersistenceMode, handle)),
        "ecc": _mode(_maybe(pynvml.nvmlDeviceGetEccMode, handle)),
        "mig": _mode(_maybe(pynvml.nvmlDeviceGetMigMode, handle)),
        "compute_mode": None if mode is None else _MODES.get(mode, "default"),
        "processes": _processes(handle),
        "throttled": None if reasons is None else [text for bit, text in _REASONS.items() if reasons & bit],
        "nvlinks": _nvlinks(handle),
        "fabric": _fabric(handle),
    }


def _memory(handle: Any) -> Any:
    """Memory with the driver's reserved part separate if the library reports it, otherwise as part of `used`."""
    version = getattr(pynvml, "nvmlMemory_v2", None)
    memory = _maybe(pynvml.nvmlDeviceGetMemoryInfo, handle, version) if version else None
    return memory or _maybe(pynvml.nvmlDeviceGetMemoryInfo, handle)


def _processes(handle: Any) -> list[list[Any]] | None:
    """The processes that compute on a GPU: [process id, MiB, unit, program]; None if NVML does not tell them.

    MiB: None if unknown. unit: "" for none, None if the kernel does not tell, as of a process outside of a container.
    """
    found = _maybe(pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    if found is None:
        return None
    return [
        [pid, None if used is None else used // MIB, *_owner(pid)]
        for pid, used in sorted(map(_process, found))[:_MOST_PROCESSES]
    ]


def _process(found: Any) -> tuple[int, int | None]:
    """Process id and bytes, from either library."""
    return found if isinstance(found, tuple) else (found.pid, found.usedGpuMemory)


def _owner(pid: int) -> tuple[str | None, str]:
    """The systemd unit and the name of a process.

    The first unit of its cgroup's path: below it, users name groups as they like, and processes always.
    """
    try:
        parts, program = (_plain(f"/proc/{pid}/{name}") for name in ("cgroup", "comm"))
    except OSError:
        return None, ""
    return next((part for part in parts.split("/") if part.endswith(".service")), ""), program


def _plain(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        text = file.read(_MOST_TEXT).strip()
    return "".join(character if " " <= character <= "~" else "?" for character in text)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _switch(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _mode(current_and_pending: Any) -> bool | None:
    return None if current_and_pending is None else bool(current_and_pending[0])


def _nvlinks(handle: Any) -> int | None:
    """The number of NVLinks that are up; None on a GPU without NVLink."""
    states: list[int] = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = _maybe(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:
            break
        states.append(state)
    return sum(states) if states else None


def _fabric(handle: Any) -> str | None:
    """The state of the fabric manager for this GPU, or why it failed; None without a fabric."""
    try:
        information = pynvml.c_nvmlGpuFabricInfo_v2_t()
        information.version = pynvml.nvmlGpuFabricInfo_v2
        pynvml.nvmlDeviceGetGpuFabricInfoV(handle, pynvml.byref(information))
    except (pynvml.NVMLError, AttributeError):
        return None
    # nvml.h: the status counts once the state is "completed"
    if information.state == _COMPLETED and information.status != pynvml.NVML_SUCCESS:
        return f"failed: {_words(pynvml.NVMLError(information.status))}"
    return _FABRIC.get(information.state)


def _pair(first: int, second: int, handles: dict[int, Any]) -> Line:
    """The line of a pair. `peer`: whether one GPU can read the other's memory without going through host memory."""
    one, other = handles[first], handles[second]
    path = _pair_answer(pynvml.nvmlDeviceGetTopologyCommonAncestor, one, other)
    peer = _pair_answer(pynvml.nvmlDeviceGetP2PStatus, one, other, _READ)
    nvlink = _pair_answer(pynvml.nvmlDeviceGetP2PStatus, one, other, _NVLINK)
    return {
        "pair": [first, second],
        "path": _PATHS.get(path),
        "peer": None if peer is None else peer == 0,
        "nvlink": None if nvlink is None else nvlink == 0,
    }


def _pair_answer(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


if __name__ == "__main__":
    sys.exit(main())
