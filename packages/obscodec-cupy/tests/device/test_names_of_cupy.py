"""The files that only run on a GPU name nothing that the installed CuPy does not have."""

import ast
import inspect
import operator
import re

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
    import cupy

    taken = names(device)
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
