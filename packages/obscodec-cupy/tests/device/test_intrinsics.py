"""What CUDA C++ gives to kernels is the same on the simulated GPU and on a real one, and what numpy makes of it."""

from collections.abc import Callable

import numpy as np
import pytest
from obscodec_cupy.device import sources
from obscodec_cupy.device.device import Device, Kernel
from obscodec_cupy.device.sources import source

N = 64
KERNEL = """
#include "basics.cuh"

extern "C" __global__ void probe(const u32* in, u64* out, u32* cells) {
    extern __shared__ u32 given[];
    const u32 i = threadIdx.x, x = in[i], all = 0xffffffff;
    u64* mine = out + i;
    u32 row = 0;
    given[i] = x;
    __syncwarp();
    mine[64 * row++] = given[i ^ 1];
    mine[64 * row++] = __shfl_sync(all, x, i + 5);
    mine[64 * row++] = __shfl_sync(all, x, 3, 8);
    mine[64 * row++] = __shfl_up_sync(all, x, 2);
    mine[64 * row++] = __shfl_up_sync(all, x, 2, 8);
    mine[64 * row++] = __shfl_down_sync(all, x, 3);
    mine[64 * row++] = __shfl_down_sync(all, x, 3, 16);
    mine[64 * row++] = __shfl_xor_sync(all, (u64)x << 32 | i, 9);
    mine[64 * row++] = __ballot_sync(all, x & 1);
    mine[64 * row++] = __any_sync(all, x == in[5]) + 2 * __all_sync(all, x != in[5]);
    mine[64 * row++] = __syncthreads_or(i == 40 && x);
    mine[64 * row++] = __syncthreads_and(x > 0);
    mine[64 * row++] = __syncthreads_count(x & 1);
    mine[64 * row++] = __popc(x);
    mine[64 * row++] = __ffs((i32)x);
    mine[64 * row++] = __clz((i32)(x >> i % 32));
    mine[64 * row++] = __clzll((i64)((u64)x << i % 7));
    mine[64 * row++] = __funnelshift_r(x, ~x, i);
    mine[64 * row++] = __funnelshift_l(x, ~x, i);
    mine[64 * row++] = __byte_perm(x, ~x, 0x7160);
    mine[64 * row++] = min(x, in[5]) + (u64)max(x, in[5]);
    mine[64 * row++] = atomicAdd(cells, 0u) == 7;
    atomicAdd(cells + 1, x);
    atomicMax(cells + 2, x);
    atomicMin(cells + 3, x);
    atomicOr(cells + 4, x);
    atomicXor(cells + 5, x);
    atomicAdd(reinterpret_cast<u64*>(cells + 6), (u64)x);
    if (atomicCAS(cells + 8, 0u, x) == 0) cells[9] = x;
}
"""


def of_lanes(x: np.ndarray) -> list[np.ndarray]:
    i, lane, wide = np.arange(N), np.arange(N) % 32, x.astype(np.uint64)
    bits = (wide & 1).reshape(2, 32) << np.arange(32, dtype=np.uint64)
    return [
        x[i ^ 1],
        x[i // 32 * 32 + (i + 5) % 32],
        x[i // 8 * 8 + 3],
        np.where(lane >= 2, x[i - 2], x),
        np.where(i % 8 >= 2, x[i - 2], x),
        np.where(lane + 3 < 32, x[(i + 3) % N], x),
        np.where(i % 16 + 3 < 16, x[(i + 3) % N], x),
        (wide << np.uint64(32) | i.astype(np.uint64))[i ^ 9],
        np.repeat(bits.sum(1), 32),
        np.repeat([1, 2], 32),
        np.ones(N),
        np.ones(N),
        np.full(N, (x & 1).sum()),
    ]


def of_bits(x: np.ndarray) -> list[np.ndarray]:
    shift = np.arange(N, dtype=np.uint64) & np.uint64(31)
    both = (~x).astype(np.uint64) << np.uint64(32) | x.astype(np.uint64)
    own, other = x.view(np.uint8).reshape(N, 4), (~x).view(np.uint8).reshape(N, 4)
    mixed = np.stack([own[:, 0], other[:, 2], own[:, 1], other[:, 3]], 1)
    return [
        np.array([value.bit_count() for value in x.tolist()]),
        np.array([(value & -value).bit_length() for value in x.tolist()]),
        np.array([32 - (value >> k % 32).bit_length() for k, value in enumerate(x.tolist())]),
        np.array([64 - (value << k % 7).bit_length() for k, value in enumerate(x.tolist())]),
        both >> shift & np.uint64(0xFFFFFFFF),
        both << shift >> np.uint64(32),
        mixed.view(np.uint32)[:, 0],
        np.minimum(x, x[5]) + np.maximum(x, x[5]).astype(np.uint64),
    ]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Kernel]:
    read = sources.read
    monkeypatch.setattr(sources, "read", lambda name: KERNEL if name == "probe.cu" else read(name))
    source.cache_clear()
    return Kernel("probe.cu", "probe")


def test_every_intrinsic(device: Device, probe: Kernel) -> None:
    x = np.random.default_rng(0).integers(1, 2**32, N, np.uint32)
    rows = [*of_lanes(x), *of_bits(x), np.ones(N)]
    cells = np.array([7, 0, 0, 0xFFFFFFFF, 0, 0, 0, 0, 0, 0], np.uint32)
    arrays = device.upload(x), device.zeros((len(rows), N), np.uint64), device.upload(cells)
    device.launch(probe, 1, N, *(np.uint64(device.address(array)) for array in arrays), shared_nbytes=4 * N)
    found = device.download(arrays[1])
    for number, row in enumerate(rows):
        np.testing.assert_array_equal(found[number], row.astype(np.uint64), f"row {number}")
    after = device.download(arrays[2])
    total = x.astype(np.uint64).sum()
    reduced = [x.max(), x.min(), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x)]
    assert after[1:6].tolist() == [total & 0xFFFFFFFF, *reduced]
    assert after[6:8].view(np.uint64)[0] == total
    assert after[8] == after[9]
    assert after[8] in x
