"""The files that only run on a GPU name nothing that the installed CuPy does not have."""

import ast
import inspect
import operator
import re

import cupy
import pytest
from obscodec_cupy.device import device


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
    taken = names(device)
    assert {"from_dlpack", "cuda.Event", "cuda.PinnedMemory", "cuda.runtime.CUDARuntimeError"} <= taken
    for name in taken:
        operator.attrgetter(name)(cupy)


@pytest.mark.parametrize(
    ("owner", "methods"),
    [
        (cupy.cuda.Stream, ["wait_event", "is_capturing", "synchronize", "from_external", "__eq__"]),
        (cupy.cuda.Event, ["record", "synchronize", "done"]),
        (cupy.cuda.MemoryPointer, ["copy_from_host_async", "memset_async", "ptr", "__add__"]),
        (cupy.cuda.PinnedMemoryPointer, ["ptr"]),
        (cupy.cuda.Device, ["mem_info", "__enter__"]),
        (cupy.ndarray, ["data", "flags", "nbytes", "view", "reshape", "__dlpack_device__"]),
        (cupy.RawModule, ["get_function"]),
        (cupy.RawKernel, ["max_dynamic_shared_size_bytes", "__call__"]),
    ],
)
def test_every_method_is_there(owner: type, methods: list[str]) -> None:
    assert [method for method in methods if not hasattr(owner, method)] == []
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)  # which Device.empty makes a HeapFull of
