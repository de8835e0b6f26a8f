"""Arrays of a device that the CPU decodes into."""

import numpy as np
import pytest
from cuda_on_cpu.fixtures import on_new_streams
from obscodec import DTypeError
from obscodec_cupy.memory.filling import HostToDevice


def assign(value):
    def decode(out):
        out[...] = value

    return decode


@pytest.mark.parametrize("dtype", ["u1", "?", "<i8", "<f4"])
def test_an_array_is_filled_as_numpy_fills_it(device, dtype):
    out = device.empty((3, 4, 5), dtype)
    value = np.random.default_rng(0).integers(0, 2, size=(3, 4, 5)).astype(dtype)
    HostToDevice().fill(device, out, assign(value))
    np.testing.assert_array_equal(device.download(out), value)


def test_memory_is_not_filled_again_before_it_is_copied(device):
    filling = HostToDevice()
    streams = on_new_streams(device, 3)
    outs = []
    for value in range(20):
        with streams[value % 3]():
            outs.append(device.empty((100, 84, 84), np.uint8))
            filling.fill(device, outs[-1], assign(value))
    for value, out in enumerate(outs):
        with streams[value % 3]():
            assert (device.download(out) == value).all()


def test_memory_is_used_again(device, monkeypatch):
    pinned, asked = device.pinned, []
    monkeypatch.setattr(device, "pinned", lambda nbytes: (asked.append(nbytes), pinned(nbytes))[1])
    filling, out = HostToDevice(), device.empty((150_000,), np.uint8)
    for _ in range(10):
        filling.fill(device, out, assign(1))
        device.synchronize()
    filling.fill(device, device.empty((1 << 20,), np.uint8), assign(1))
    assert asked == [1 << 20]


def test_what_can_not_be_decoded_fills_nothing(device):
    def refuse(out):
        raise ValueError("no")

    out = device.upload(np.arange(5))
    with pytest.raises(ValueError, match=r"^no$"):
        HostToDevice().fill(device, out, refuse)
    np.testing.assert_array_equal(device.download(out), np.arange(5))


def test_an_array_of_the_host_is_refused(device):
    with pytest.raises(DTypeError, match=r"^expected an array on cuda:0, got "):
        HostToDevice().fill(device, np.zeros(5), assign(1))
