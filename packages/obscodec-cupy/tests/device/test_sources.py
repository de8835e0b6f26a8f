"""The texts of kernels: their macros and their includes."""

import re
from importlib.resources import files

import pytest
from kernel_forms import GATHERS, KERNELS
from obscodec_cupy.device import sources
from obscodec_cupy.device.device import Kernel
from obscodec_cupy.device.sources import OPTIONS, source

NAMES = sorted(file.name for file in files("obscodec_cupy").joinpath("kernels").iterdir())
AHEAD = re.compile(r'(#include "[\w.]+"|//.*)?')


def ptx(kernel: Kernel) -> str:
    from cuda.bindings import nvrtc

    text = source(kernel.source, kernel.defines).encode()
    _, program = nvrtc.nvrtcCreateProgram(text, b"kernel.cu", 0, [], [])
    flags = [flag.encode() for flag in (*OPTIONS, "--gpu-architecture=compute_80")]
    assert nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = nvrtc.nvrtcGetPTXSize(program)
    out = bytearray(size)
    nvrtc.nvrtcGetPTX(program, out)
    nvrtc.nvrtcDestroyProgram(program)
    return out.decode()


def test_macros_are_part_of_the_text() -> None:
    assert OPTIONS == ("--std=c++17",)
    assert source("rle.cu", (("ELEMENT_NBYTES", 4), ("OTHER", 7))).startswith(
        "#define ELEMENT_NBYTES 4\n#define OTHER 7\nenum : unsigned { OK = 0, SHORT = 1, "
    )
    assert len({source(kernel.source, kernel.defines) for kernel in KERNELS if kernel.source == "rle.cu"}) == 4


@pytest.mark.parametrize("name", NAMES)
def test_includes_are_at_the_top_of_a_file(name: str) -> None:
    """In an ``#if``, the text of another file would be there for this one alone, or not at all."""
    lines = sources.read(name).split("\n")
    n_ahead = next(i for i, line in enumerate([*lines, "end"]) if not AHEAD.fullmatch(line))
    assert [line for line in lines[n_ahead:] if line.startswith("#include")] == []


def test_lines_keep_their_numbers() -> None:
    marked = re.split(r'^#line (\d+) "([\w.]+)"$', source("gather.cu"), flags=re.MULTILINE)
    assert marked.pop(0).startswith("enum : unsigned { OK = 0, ")
    for number, name, text in zip(marked[::3], marked[1::3], marked[2::3], strict=True):
        lines = sources.read(name).split("\n")[int(number) - 1 :]
        for found, written in zip(text.split("\n")[1:-1], lines, strict=False):
            assert found == ("" if AHEAD.fullmatch(written) and written.startswith("#") else written)


def test_kernels_copy_without_registers() -> None:
    assert "cp.async" in ptx(GATHERS[0])
