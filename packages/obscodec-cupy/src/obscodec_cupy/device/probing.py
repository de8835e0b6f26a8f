"""Which GPU a name means, and what is missing if it can't be used."""

import re

from obscodec import BackendUnavailable, SpecError

INSTALL = "pip install 'obscodec-cupy[cuda12]' or 'obscodec-cupy[cuda13]', for the CUDA version of the driver"
_NAME = re.compile(r"cuda(?::(\d+))?")


def device_number(name: str) -> int:
    """The number of a device that can be used: ``"cuda"`` is the current one of this thread, ``"cuda:1"`` the second.

    Raises:
        SpecError: no such name.
        BackendUnavailable: the text names what is missing: CuPy, NVRTC, the driver, the device.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise SpecError(f"expected a device such as 'cuda' or 'cuda:1', got {name!r}")
    _require_cupy(name)
    _require_compiler(name)
    count = _device_count(name)
    from cupy.cuda import runtime

    number = runtime.getDevice() if match[1] is None else int(match[1])
    if number >= count:
        there = "'cuda:0'" if count == 1 else f"'cuda:0' to 'cuda:{count - 1}'"
        raise BackendUnavailable(f"device {name!r} is not there, this machine has {there}")
    return int(number)


def _require_cupy(name: str) -> None:
    try:
        import cupy
    except ModuleNotFoundError as error:
        raise BackendUnavailable(f"device {name!r} needs CuPy, which is not installed: {INSTALL}") from error
    except ImportError as error:
        raise BackendUnavailable(f"device {name!r} needs CuPy, which can't be imported: {error}") from error
    if int(cupy.__version__.partition(".")[0]) < 14:
        raise BackendUnavailable(f"device {name!r} needs CuPy 14 or later, {cupy.__version__} is installed: {INSTALL}")


def _require_compiler(name: str) -> None:
    from cupy.cuda import nvrtc

    try:
        nvrtc.getVersion()
    except (ImportError, OSError, RuntimeError) as error:
        raise BackendUnavailable(
            f"device {name!r} needs NVRTC, the compiler for its kernels, which CuPy does not find: {INSTALL}"
        ) from error


def _device_count(name: str) -> int:
    from cupy.cuda import runtime

    driver, needed = runtime.driverGetVersion(), runtime.runtimeGetVersion()
    if driver == 0:
        raise BackendUnavailable(f"device {name!r} needs the NVIDIA driver, which is not installed or not running")
    try:
        count = int(runtime.getDeviceCount())
    except runtime.CUDARuntimeError as error:
        raise BackendUnavailable(
            f"device {name!r} can't be used: {error} (the driver is for CUDA {_version(driver)}, "
            f"CuPy for CUDA {_version(needed)})"
        ) from error
    if count == 0:
        raise BackendUnavailable(f"device {name!r} is not there, the NVIDIA driver sees no device")
    return count


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
