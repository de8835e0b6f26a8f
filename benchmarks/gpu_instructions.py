"""The instructions of the gather for a sample, counted without a GPU: ``uv run benchmarks/gpu_instructions.py``.

The kernel runs on the simulated GPU of obscodec-cupy's tests. g++ puts a counter into each basic block (see
gpu_instructions.cpp), and objdump shows how many x86 instructions the block has. A warp executes a block as often as
the lane that enters it most often between two barriers. docs/performance.md compares this count with that of a GPU.
It needs g++ and binutils.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt
from atari_frames import frames
from obscodec import FrameStack, FrameStore, Layout
from obscodec_cupy.frames.gather import Gather, Source

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "packages" / "obscodec-cupy" / "tests"))

from cuda_on_cpu import build  # type: ignore[import-not-found]  # noqa: E402
from cuda_on_cpu.device import SimulatedDevice  # type: ignore[import-not-found]  # noqa: E402
from mirrors import DeviceTables, launch  # type: ignore[import-not-found]  # noqa: E402

N = 64  # samples
STACK = FrameStack(4)
LAYOUT = Layout((4, 84, 84), np.uint8)
_INSTRUCTION = re.compile(r"^\s+([0-9a-f]+):\t(.*)$", re.MULTILINE)
_NOT_OF_A_GPU = ("nop", "endbr", "push", "pop")  # padding and the calls of g++


def played_stacks() -> npt.NDArray[np.uint8]:
    """Stacks of two environments: u8[800, 4, 84, 84]."""
    played = np.concatenate([frames("MsPacman", 600, seed)[:400] for seed in range(2)])
    stacks: npt.NDArray[np.uint8] = played[np.maximum(np.arange(len(played))[:, None] - np.arange(3, -1, -1), 0)]
    return stacks


def gather() -> None:
    """Gather observations and next observations of N samples."""
    stacks = played_stacks()
    store = FrameStore(LAYOUT, frame_stack=STACK)
    ids = store.append(stacks).astype(np.int32)
    device = SimulatedDevice()
    tables = DeviceTables(device, store)
    places = np.random.default_rng(0).integers(20, len(ids) - 1, N)
    outs = [device.empty((N, *LAYOUT.shape), np.uint8) for _ in range(2)]
    sources = [Source(device.upload(of), out) for of, out in zip((ids[:-1], ids[1:]), outs, strict=True)]
    launch(Gather(device, LAYOUT, 16, frame_stack=STACK), tables.header, N, sources, device.upload(places))
    tables.check()
    for out, shift in zip(outs, (0, 1), strict=True):
        assert np.array_equal(device.download(out), stacks[places + shift])


def entries(library: Path) -> dict[int, int]:
    """How often warps entered each basic block, by its address in the library."""
    counted = np.zeros((4096, 2), np.uint64)
    n = ctypes.CDLL(str(library)).cuda_counts(ctypes.c_void_p(counted.ctypes.data))
    mapped = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    base = min(int(line.split("-")[0], 16) for line in mapped if str(library) in line)
    return {int(address) - base: int(entered) for address, entered in counted[:n]}


def instructions(library: Path, entered: dict[int, int]) -> dict[int, int]:
    """How often warps execute each instruction of these basic blocks, by its address."""
    text = output("objdump", "-d", "--no-show-raw-insn", library)
    listed = [(int(found[1], 16), found[2]) for found in _INSTRUCTION.finditer(text)]
    number = {address: i for i, (address, _) in enumerate(listed)}
    executed: Counter[int] = Counter()
    for block, n in entered.items():
        for address, instruction in listed[number[block] :]:
            if "__sanitizer_cov" in instruction:
                break
            if not instruction.startswith(_NOT_OF_A_GPU):
                executed[address] += n
            if instruction.startswith(("j", "ret")):
                break
    return executed


def by_line(library: Path, executed: dict[int, int]) -> Counter[str]:
    """The same by lines of the source."""
    lines = output("addr2line", "-s", "-e", library, *map(hex, executed)).splitlines()
    sums: Counter[str] = Counter()
    for line, n in zip(lines, executed.values(), strict=True):
        sums[line.partition(" ")[0]] += n
    return sums


def output(*command: str | Path) -> str:
    """What a command prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Print the count, and the lines that take the most."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=0, help="show so many lines of the source that take the most")
    shown = parser.parse_args().lines
    build.INSTRUMENTED = ("-O2", "-w", "-fsanitize-coverage=trace-pc")
    build.RUNTIME = ("fibers.cpp", str(HERE / "gpu_instructions.cpp"))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["CUDA_ON_CPU_FOLDER"] = folder
        gather()
        (library,) = Path(folder).glob("*.so")
        executed = instructions(library, entries(library))
        lines = by_line(library, executed)
    print(f"{sum(executed.values()) / N:10,.0f} x86 instructions of warps for a sample")
    for line, n in lines.most_common(shown):
        print(f"{n / N:10,.0f} {line}")


if __name__ == "__main__":
    main()
