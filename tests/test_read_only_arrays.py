"""Arrays that their library forbids to write are refused before anything is queued."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from cuda_on_cpu.device import SimulatedDevice
from obscodec import DTypeError, Layout, codec
from obscodec_cupy.codecs.codec import CudaCodec
from obscodec_cupy.device.array import require_writable


class Exporter:
    """An array of a library that only knows DLPack, of version 1 or before."""

    def __init__(self, memory: np.ndarray, *, versioned: bool) -> None:
        self._memory = memory
        self._versioned = versioned

    def __dlpack__(self, **options: object) -> object:
        if not self._versioned and "max_version" in options:
            raise TypeError("__dlpack__() got an unexpected keyword argument 'max_version'")
        return self._memory.__dlpack__(**options | {"stream": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._memory.__dlpack_device__()


def memory(*, read_only: bool) -> np.ndarray:
    array = np.zeros((1, 2, 2), np.uint8)
    array.flags.writeable = not read_only
    return array


READ_ONLY = [
    memory(read_only=True),
    Exporter(memory(read_only=True), versioned=True),
]
WRITABLE = [
    memory(read_only=False),
    Exporter(memory(read_only=False), versioned=True),
    Exporter(memory(read_only=False), versioned=False),
    torch.zeros(1, 2, 2, dtype=torch.uint8),
    torch.nn.Parameter(torch.zeros(1, 2, 2)),
]


@pytest.mark.parametrize("x", READ_ONLY, ids=lambda x: type(x).__name__)
def test_a_read_only_array_is_refused(x: object) -> None:
    with pytest.raises(DTypeError) as caught:
        require_writable("out", x)
    assert str(caught.value) == f"out is a read-only {type(x).__name__}, pass one that can be written"


@pytest.mark.parametrize("x", WRITABLE, ids=lambda x: type(x).__name__)
def test_an_array_that_can_be_written_is_not(x: object) -> None:
    require_writable("out", x)


@pytest.mark.parametrize("x", READ_ONLY[1:], ids=lambda x: type(x).__name__)
def test_a_codec_does_not_write_it(x: Exporter) -> None:
    device = SimulatedDevice(seed=1)
    tested = CudaCodec(codec("rle", Layout((2, 2), "uint8")), device)
    streams = tested.encode_batch(device.zeros((1, 2, 2), np.uint8))
    n_launches = device.n_launches
    for refused in (
        lambda: tested.decode_batch(streams, x),
        lambda: tested.encode_batch(device.zeros((1, 4), np.uint8), x),
    ):
        with pytest.raises(DTypeError, match="out is a read-only"):
            refused()
    assert device.n_launches == n_launches


@pytest.mark.slow
def test_an_array_of_jax_is_read_only() -> None:
    """In a process of its own, since JAX warns of each fork in one that has imported it."""
    script = """
import jax
from test_read_only_arrays import test_a_codec_does_not_write_it, test_a_read_only_array_is_refused
for refuse in test_a_codec_does_not_write_it, test_a_read_only_array_is_refused:
    refuse(jax.numpy.zeros((1, 2, 2), "uint8"))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
