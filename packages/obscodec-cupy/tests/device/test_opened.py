"""A device that can't be used says what is missing; all else works without it, and names what CuPy has."""

import ast
import importlib
import inspect
import operator
import re
import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from obscodec import BackendUnavailable, SpecError
from obscodec_cupy.device import device as device_module
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.opened import device

NO_DRIVER = "device 'cuda' needs the NVIDIA driver, which is not installed or not running"


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def has_driver() -> bool:
    from cupy.cuda import runtime

    return bool(runtime.driverGetVersion())


@pytest.mark.skipif(has_driver(), reason="this machine has an NVIDIA driver")
def test_without_a_driver_it_is_the_driver_that_is_missing() -> None:
    with pytest.raises(BackendUnavailable) as caught:
        device("cuda")
    assert str(caught.value) == NO_DRIVER


@pytest.mark.parametrize("name", ["cuda:", "cuda:x", "cuda:-1", "gpu", "cuda:1:2", ""])
def test_a_name_of_no_device_is_refused(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        device(name)
    assert str(caught.value) == f"expected a device such as 'cuda' or 'cuda:1', got {name!r}"


def test_without_cupy_the_package_is_imported_and_says_how_to_install_it() -> None:
    code = """
import sys
sys.modules["cupy"] = None
import obscodec
from obscodec_cupy.device import opened
try:
    opened.device("cuda")
except obscodec.BackendUnavailable as error:
    print(error)
"""
    # None in sys.modules is an import that fails with ModuleNotFoundError.
    assert run(code) == (
        "device 'cuda' needs CuPy, which is not installed: pip install cupy-cuda12x nvidia-cuda-nvrtc-cu12, "
        "or cupy-cuda13x nvidia-cuda-nvrtc, for the CUDA version of the driver"
    )


def test_importing_the_package_imports_no_cupy() -> None:
    code = """
import pkgutil, sys
import obscodec_cupy
for module in pkgutil.walk_packages(obscodec_cupy.__path__, "obscodec_cupy."):
    if module.name.rpartition(".")[2] not in ("gpu", "events", "uploads"):
        __import__(module.name)
print(sorted({"cupy", "torch"} & set(sys.modules)))
"""
    assert run(code) == "[]"


def test_without_the_compiler_it_is_the_compiler_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda import nvrtc

    def missing() -> None:
        raise RuntimeError("libnvrtc.so.13 is not found")

    monkeypatch.setattr(nvrtc, "getVersion", missing)
    with pytest.raises(BackendUnavailable) as caught:
        device("cuda")
    assert str(caught.value) == (
        "device 'cuda' needs NVRTC, the compiler for its kernels, which CuPy does not find: pip install "
        "cupy-cuda12x nvidia-cuda-nvrtc-cu12, or cupy-cuda13x nvidia-cuda-nvrtc, for the CUDA version of the driver"
    )


@pytest.mark.parametrize(
    ("driver", "count", "name", "text"),
    [
        (0, 0, "cuda", NO_DRIVER),
        (12040, 35, "cuda", "device 'cuda' can't be used: cudaErrorInsufficientDriver: CUDA driver version is "
         "insufficient for CUDA runtime version (the driver is for CUDA 12.4, CuPy for CUDA 13.2)"),
        (13020, 100, "cuda", "device 'cuda' can't be used: cudaErrorNoDevice: no CUDA-capable device is detected "
         "(the driver is for CUDA 13.2, CuPy for CUDA 13.2)"),
        (13020, -2, "cuda:2", "device 'cuda:2' is not there, this machine has 'cuda:0' to 'cuda:1'"),
        (13020, -1, "cuda:7", "device 'cuda:7' is not there, this machine has 'cuda:0'"),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, driver: int, count: int, name: str, text: str
) -> None:
    """``count`` is the error of asking how many devices there are, or minus the answer."""
    from cupy.cuda import runtime

    def counted() -> int:
        if count > 0:
            raise runtime.CUDARuntimeError(count)
        return -count

    monkeypatch.setattr(runtime, "driverGetVersion", lambda: driver)
    monkeypatch.setattr(runtime, "runtimeGetVersion", lambda: 13020)
    monkeypatch.setattr(runtime, "getDeviceCount", counted)
    with pytest.raises(BackendUnavailable) as caught:
        device(name)
    assert str(caught.value) == text


_CURRENT = threading.local()


class FakeDevice:
    """Remembers what was current as CuPy's does: in the object, whichever thread that is."""

    def __init__(self, number: int) -> None:
        self._number, self._before = number, list[int]()

    def __enter__(self) -> None:
        self._before.append(_CURRENT.number)
        _CURRENT.number = self._number

    def __exit__(self, *error: object) -> None:
        _CURRENT.number = self._before.pop()


def fake_cupy(meet: threading.Barrier) -> Any:
    def current_stream() -> Any:
        meet.wait(10)  # both threads are in the context now
        return SimpleNamespace(is_capturing=lambda: True)

    runtime = SimpleNamespace(deviceGetAttribute=lambda *of: 0, cudaDevAttrMaxSharedMemoryPerBlockOptin=0)
    return SimpleNamespace(cuda=SimpleNamespace(Device=FakeDevice, get_current_stream=current_stream, runtime=runtime))


def test_two_threads_with_other_current_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = fake_cupy(threading.Barrier(2))
    monkeypatch.setattr(importlib, "import_module", lambda name: fake)
    device, found = Device(5), dict[int, list[int]]()

    def work(number: int) -> None:
        _CURRENT.number, found[number] = number, []
        for _ in range(50):
            device.mark()
            found[number].append(_CURRENT.number)

    threads = [threading.Thread(target=work, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {0: [0] * 50, 1: [1] * 50}


def names(module: object) -> set[str]:
    """What is taken from ``cupy`` by dotted names, or by the local names ``cuda`` and ``runtime`` of its parts."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node).removeprefix("self._")
            dotted = re.sub(r"^runtime\.", "cuda.runtime.", dotted)
            if re.fullmatch(r"(cupy\.\w+|cuda\.\w+)(\.\w+)*", dotted):
                found.add(dotted.removeprefix("cupy."))
    return found


def test_every_name_is_there() -> None:
    import cupy

    taken = names(device_module)
    assert {"from_dlpack", "cuda.Event", "cuda.PinnedMemory", "cuda.runtime.CUDARuntimeError"} <= taken
    for name in taken:
        operator.attrgetter(name)(cupy)


@pytest.mark.parametrize(
    ("owner", "methods"),
    [
        ("cuda.Stream", ["wait_event", "is_capturing", "synchronize", "from_external", "__eq__"]),
        ("cuda.Event", ["record", "synchronize", "done"]),
        ("cuda.MemoryPointer", ["copy_from_host_async", "memset_async", "ptr", "__add__"]),
        ("cuda.PinnedMemoryPointer", ["ptr"]),
        ("cuda.Device", ["mem_info", "__enter__"]),
        ("ndarray", ["data", "flags", "nbytes", "view", "reshape", "__dlpack_device__"]),
        ("RawModule", ["get_function"]),
        ("RawKernel", ["max_dynamic_shared_size_bytes", "__call__"]),
    ],
)
def test_every_method_is_there(owner: str, methods: list[str]) -> None:
    import cupy

    owned_by = operator.attrgetter(owner)(cupy)
    assert [method for method in methods if not hasattr(owned_by, method)] == []
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)  # which Device.empty makes a HeapFull of
