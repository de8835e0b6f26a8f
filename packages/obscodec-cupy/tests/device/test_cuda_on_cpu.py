"""The simulated GPU against kernels that are wrong: it says what, and where."""

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from cuda_on_cpu.build import KernelFailed, Size, compiled
from cuda_on_cpu.device import SimulatedDevice
from obscodec_cupy.device.device import Kernel

SUM = """#line 1 "sum.cu"
extern "C" __global__ void sum(const unsigned* in, unsigned* out) {
    __shared__ unsigned parts[64];
    extern __shared__ unsigned more[];
    parts[threadIdx.x] = in[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    for (unsigned n = blockDim.x / 2; n; n /= 2) {
        if (threadIdx.x < n) parts[threadIdx.x] += parts[threadIdx.x + n];
        __syncthreads();
    }
    if (threadIdx.x == 0) more[0] = parts[0];
    __syncthreads();
    if (threadIdx.x == 1) out[blockIdx.x] = more[0];
}
"""


def run(text: str, seed: int = 3) -> np.ndarray:
    """Launch a kernel ``sum`` with 3 blocks of 64 threads over 192 numbers, 0 and on."""
    device = SimulatedDevice(seed=seed)
    numbers = device.upload(np.arange(192, dtype=np.uint32))
    out = device.zeros((3,), np.uint32)
    kernel = compiled(Kernel("sum.cu", "sum"), text)
    arguments = np.uint64(device.address(numbers)), np.uint64(device.address(out))
    device.synchronize()
    kernel.launch(Size(n_blocks=3, n_threads=64, shared_nbytes=8), arguments, seed, device.regions)
    return device.download(out)


@pytest.mark.parametrize("seed", range(4))
def test_a_right_kernel_is_right_in_every_order(seed: int) -> None:
    np.testing.assert_array_equal(run(SUM, seed=seed), np.arange(192).reshape(3, 64).sum(1))


@pytest.mark.parametrize("level", [2, 3])
def test_a_compiler_that_fortifies_builds_it_too(level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the g++ of Ubuntu and of others does by itself."""
    wrapped = tmp_path / "g++"
    wrapped.write_text(f'#!/bin/sh\nexec "{shutil.which("g++")}" -D_FORTIFY_SOURCE={level} "$@"\n')
    wrapped.chmod(0o755)
    (tmp_path / "kernels").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CUDA_ON_CPU_FOLDER", str(tmp_path / "kernels"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    script = f"from {__name__.rpartition('.')[2]} import SUM, run; print(run(SUM))"
    monkeypatch.chdir(Path(__file__).parent)  # in a process of its own, which longjmp may end
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[ 2016  6112 10208]\n", "")


def changed(old: str, new: str) -> str:
    assert SUM.count(old) == 1
    return SUM.replace(old, new)


def without_barrier(n: int) -> str:
    parts = SUM.split("__syncthreads();")
    return "__syncthreads();".join(parts[: n + 1]) + ";" + "__syncthreads();".join(parts[n + 1 :])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", range(3))
def test_a_barrier_that_is_missing_is_a_race(n: int, seed: int) -> None:
    with pytest.raises(KernelFailed, match=r"^sum\.cu, sum: race: thread \d+ (reads|writes) what .* at sum\.cu:\d+$"):
        run(without_barrier(n), seed=seed)


LOOP = "    for (unsigned n"
SWAP = """    if (threadIdx.x < 32) {{ unsigned x = parts[threadIdx.x ^ 1]; {} parts[threadIdx.x] = x; }}
    __syncthreads();
    for (unsigned n"""


def test_lanes_of_a_warp_are_in_order_by_syncwarp_alone() -> None:
    np.testing.assert_array_equal(run(changed(LOOP, SWAP.format("__syncwarp();"))), run(SUM))
    for meeting in ("", "__shfl_sync(0xffffffff, x, 0);", "__ballot_sync(0xffffffff, x);"):
        with pytest.raises(KernelFailed, match=r"race: thread \d+ (reads|writes) what thread \d+ has"):
            run(changed(LOOP, SWAP.format(meeting)))


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("out[blockIdx.x]", "out[blockIdx.x + 1]", "byte 12 of 12 bytes of device memory at sum.cu:12"),
        ("out[blockIdx.x]", "*(unsigned*)0", "no memory of the device is at (nil) at sum.cu:12"),
        ("out[blockIdx.x]", "out[0]", "race: thread 1 writes what another thread block has written at sum.cu:12"),
        ("more[0] = ", "more[2] = ", "byte 8 of 8 bytes of dynamic shared memory at sum.cu:10"),
        (
            LOOP,
            f"    if (threadIdx.x < 40) __syncthreads();\n{LOOP}",
            "divergent barrier: thread 0 waits at the barrier (line 6), thread 40 waits at the barrier (line 9)",
        ),
        (
            LOOP,
            f"    if (threadIdx.x > 40) return;\n{LOOP}",
            "divergent barrier: thread 0 waits at the barrier (line 9), thread 41 has returned (line 0)",
        ),
    ],
)
def test_what_cuda_does_not_allow_is_named(old: str, new: str, text: str) -> None:
    with pytest.raises(KernelFailed) as caught:
        run(changed(old, new))
    assert str(caught.value) == f"sum.cu, sum: {text}"


def test_an_address_that_is_not_aligned_is_refused() -> None:
    with pytest.raises(KernelFailed, match=r"an access of 4 bytes is not aligned: 0x\w+ at sum\.cu:12"):
        run(changed("out[blockIdx.x]", "*(unsigned*)((char*)out + 2)"))


OVERWRITE = """    uint2* pair = reinterpret_cast<uint2*>(more);
    if (threadIdx.x == 0) more[0] = 7;
    if (threadIdx.x == 40) *pair = *reinterpret_cast<const uint2*>(in);
    __syncthreads();
"""


def test_a_copy_over_what_another_thread_wrote_is_a_race() -> None:
    """Of a struct: g++ tells of the write, then of the read, before it does both."""
    with pytest.raises(KernelFailed, match="race: thread 40 writes what thread 0 has written"):
        run(changed(LOOP, OVERWRITE + LOOP), seed=0)


def test_threads_may_write_the_same_value_and_change_it_by_atomics() -> None:
    same = changed("if (threadIdx.x == 1) out[blockIdx.x] = more[0]", "out[1] = 7, atomicAdd(out, 2)")
    np.testing.assert_array_equal(run(same), [3 * 64 * 2, 7, 0])
    with pytest.raises(KernelFailed, match="race: thread"):
        run(changed("if (threadIdx.x == 1) out[blockIdx.x] = more[0]", "out[0] = 7, atomicAdd(out, 2)"))


def test_arguments_of_other_types_than_the_parameters_are_refused() -> None:
    device = SimulatedDevice()
    with pytest.raises(KernelFailed) as caught:
        device.launch(Kernel("copies.cu", "scatter"), 1, 32, np.int64(device.address(device.empty((1,), np.uint8))))
    assert str(caught.value) == "scatter takes (uint64), got (int64)"


def test_a_kernel_does_not_see_what_was_freed() -> None:
    device = SimulatedDevice()
    array = device.zeros((3,), np.uint64)
    address = np.uint64(device.address(array))
    device.synchronize()
    del array
    device.synchronize()
    device.launch(Kernel("copies.cu", "scatter"), 1, 32, address)
    with pytest.raises(KernelFailed, match="no memory of the device is at"):
        device.synchronize()


def is_read_as_written(*, in_order: bool) -> bool:
    """Whether one stream reads what another one was given to write."""
    device = SimulatedDevice(seed=1)
    order = device.order() if in_order else nullcontext()
    array = device.zeros((4,), np.uint8)
    device.synchronize()
    with order:
        device.write(np.ones(4, np.uint8), array)
    with device.on_stream(device.streams.new()), order:
        return bool(device.download(array).all())


def test_streams_are_in_order_by_events_alone() -> None:
    assert is_read_as_written(in_order=True)
    assert not is_read_as_written(in_order=False)
