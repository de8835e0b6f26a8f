"""The files that only run on a GPU name nothing that the installed CuPy does not have."""

import ast
import inspect
import operator
import re

import cupy
import pytest
from obscodec_cupy.device import events, gpu


def names(module: object) -> set[str]:
    """What is taken from ``cupy`` by dotted names, or from its runtime by the name ``runtime``."""
    found = set()
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node).removeprefix("cupy.")
            if dotted.startswith("runtime."):
                found.add(f"cuda.{dotted}")
            elif re.fullmatch(r"cupy(\.\w+)+", ast.unparse(node)):
                found.add(dotted)
    return found


@pytest.mark.parametrize("module", [events, gpu], ids=lambda module: module.__name__)
def test_every_name_is_there(module: object) -> None:
    taken = names(module)
    assert taken
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
    assert issubclass(cupy.cuda.memory.OutOfMemoryError, MemoryError)  # which Gpu.empty makes a HeapFull of
