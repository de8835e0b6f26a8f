"""Every kernel compiled for several architectures: nothing is spilled, registers and shared memory are bounded."""

import os
import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from kernel_forms import KERNELS
from obscodec_cupy.codecs.codec import STATIC_NBYTES
from obscodec_cupy.device.sources import OPTIONS, source

# The oldest; in `just long` the newest, and that of data centers, too; `just architectures` names those between them.
FIRST, *OTHERS = os.environ.get("ARCHITECTURES", "75 90 120").split()
MOST_REGISTERS = 128  # 512 threads of a block fit into the 65,536 registers of a multiprocessor
MOST_SHARED = 48 << 10  # bytes, static
CUPY_ADDS = ("-ftz=true", "--device-as-default-execution-space")
ENTRY = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(')
REPORT = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?"
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?:[^\n]*?, (?P<shared>\d+) bytes smem)?",
    re.DOTALL,
)


def units() -> list[tuple[str, tuple[tuple[str, int], ...]]]:
    return sorted({(kernel.source, kernel.defines) for kernel in KERNELS})


def compiled(text: str, flags: tuple[str, ...]) -> str:
    """The report of the compiler."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"kernel.cu", 0, [], [])
    error = nvrtc.nvrtcCompileProgram(program, len(flags), [flag.encode() for flag in flags])[0]
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    return log.decode()


def test_every_kernel_is_compiled() -> None:
    folder = files("obscodec_cupy").joinpath("kernels")
    written = {(file.name, name) for file in folder.iterdir() for name in ENTRY.findall(file.read_text())}
    assert written == {(kernel.source, kernel.name) for kernel in KERNELS}


@pytest.fixture(scope="module")
def used(request: pytest.FixtureRequest) -> Iterator[dict[str, list[tuple[int, int]]]]:
    """Registers and bytes of shared memory of each kernel, in all its forms; printed at the end."""
    of_kernels: dict[str, list[tuple[int, int]]] = {}
    yield of_kernels
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        for name, figures in of_kernels.items():
            registers, shared = (max(column) for column in zip(*figures, strict=True))
            print(f"\n{name}: at most {registers} registers, {shared} bytes shared", end="")  # noqa: T201


@pytest.mark.parametrize(
    "architecture", [FIRST, *(pytest.param(other, marks=[pytest.mark.slow, pytest.mark.long]) for other in OTHERS)]
)
@pytest.mark.parametrize(("name", "defines"), units(), ids=lambda unit: str(unit))
def test_a_kernel_spills_nothing(
    name: str, defines: tuple[tuple[str, int], ...], architecture: str, used: dict[str, list[tuple[int, int]]]
) -> None:
    flags = (*OPTIONS, *CUPY_ADDS, f"--gpu-architecture=sm_{architecture}", "--ptxas-options=-v")
    log = compiled(source(name, defines), flags)
    reports = list(REPORT.finditer(log))
    assert {report["name"] for report in reports} == set(ENTRY.findall(source(name))), log
    for report in reports:
        registers, shared = int(report["registers"]), int(report["shared"] or 0)
        used.setdefault(report["name"], []).append((registers, shared))
        assert (report["stores"], report["loads"]) == ("0", "0"), log
        assert registers <= (64 if ("THREADS", 128) in defines and ("CODEC", 2) not in defines else MOST_REGISTERS)
        assert shared <= (STATIC_NBYTES if "FRAME_NBYTES" in dict(defines) else MOST_SHARED)
        assert "warning" not in log, log
