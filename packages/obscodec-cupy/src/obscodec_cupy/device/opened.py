"""The devices that are in use, each opened once; and what is missing if one can't be used."""

import os
import re
from functools import cache

from obscodec import BackendUnavailable, SpecError

from obscodec_cupy.device.device import FORKED, Device

_INSTALL = (
    "pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12, or cupy-cuda13x nvidia-cuda-nvrtc, "
    "for the CUDA version of the driver"
)
_NAME = re.compile(r"cuda(?::(\d+))?")
_USERS: set[int] = set()  # processes that opened a device


def device(name: str) -> Device:
    """The device ``"cuda:1"`` and so on, the same one at every call; ``"cuda"`` is the current one of this thread.

    Raises:
        SpecError: no such name.
        BackendUnavailable: it can't be used; the text names what is missing: CuPy, NVRTC, the driver, the device. Or
            this process was forked from one that used a device.
    """
    if _USERS and os.getpid() not in _USERS:  # before CUDA is asked for anything
        raise BackendUnavailable(FORKED.format(name))
    match = _NAME.fullmatch(name)
    if match is None:
        raise SpecError(f"expected a device such as 'cuda' or 'cuda:1', got {name!r}")
    count = _device_count(name)
    from cupy.cuda import runtime

    number = int(match[1] or runtime.getDevice())
    if number >= count:
        there = "'cuda:0'" if count == 1 else f"'cuda:0' to 'cuda:{count - 1}'"
        raise BackendUnavailable(f"device {name!r} is not there, this machine has {there}")
    return _opened(number)


@cache
def _opened(number: int) -> Device:
    _USERS.add(os.getpid())
    return Device(number)


def _device_count(name: str) -> int:
    """How many devices can be used; at least one."""
    try:
        import cupy
        from cupy.cuda import nvrtc, runtime
    except ModuleNotFoundError as error:
        raise BackendUnavailable(f"device {name!r} needs CuPy, which is not installed: {_INSTALL}") from error
    except ImportError as error:
        raise BackendUnavailable(f"device {name!r} needs CuPy, which can't be imported: {error}") from error
    if int(cupy.__version__.partition(".")[0]) < 14:
        raise BackendUnavailable(f"device {name!r} needs CuPy 14 or later, {cupy.__version__} is installed: {_INSTALL}")
    try:
        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendUnavailable(
            f"device {name!r} needs NVRTC, the compiler for its kernels, which CuPy does not find: {_INSTALL}"
        ) from error
    driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if driver == 0:
        raise BackendUnavailable(f"device {name!r} needs the NVIDIA driver, which is not installed or not running")
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        ours, theirs = (f"CUDA {version // 1000}.{version % 1000 // 10}" for version in (needed, driver))
        why = f"{error} (the driver is for {theirs}, CuPy for {ours})"
        raise BackendUnavailable(f"device {name!r} can't be used: {why}") from error
    if count == 0:
        raise BackendUnavailable(f"device {name!r} is not there, the NVIDIA driver sees no device")
    return count
