"""A codec of the CPU and the one of a device that has the same streams, side by side."""

import numpy as np
import numpy.typing as npt
from obscodec import CorruptStream, Layout, codec
from obscodec.segments import Segments
from obscodec_cupy.codecs.codec import CudaCodec
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.segments import DeviceSegments

GUARD = 0xA5
GUARD_NBYTES = 64
Rows = npt.NDArray[np.uint8]


def fenced(device: Device, content: Rows) -> DeviceArray:
    """``u8[nbytes]`` on the device, with nothing behind it: the simulated one refuses an access there."""
    shift = -len(content) % 16  # so that it begins at any address
    return device.upload(np.concatenate([np.full(shift, GUARD, np.uint8), content]))[shift:]


class Pair:
    """Both codecs of a spec for one layout, and checks that they do the same."""

    def __init__(self, device: Device, spec: str, layout: Layout, dictionary: bytes = b"") -> None:
        self.device = device
        self.layout = layout
        self.cpu = codec(spec, layout).with_dictionary(dictionary)
        self.cuda = CudaCodec(self.cpu, device)

    def check(self, rows: Rows, shift: int = 0) -> None:
        """Both encode and decode ``u8[n, nbytes]`` alike; on the device it begins ``shift`` bytes behind an address."""
        expected = self.encode_on_cpu(rows)
        encoded = self.cuda.encode_batch(self.shifted(rows, shift))
        found = encoded.download()
        np.testing.assert_array_equal(found.lengths, expected.lengths)
        np.testing.assert_array_equal(found.offsets, expected.offsets)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for streams in (encoded, DeviceSegments.upload(self.device, expected)):
            out = self.shifted(np.full_like(rows, GUARD), shift)
            self.cuda.decode_batch(streams, out).check()
            np.testing.assert_array_equal(self.device.download(out), rows)

    def shifted(self, rows: Rows, shift: int) -> DeviceArray:
        memory = self.device.upload(np.concatenate([np.full(shift, GUARD, np.uint8), rows.reshape(-1)]))
        return memory[shift:].reshape(rows.shape)

    def encode_on_cpu(self, rows: Rows) -> Segments:
        return self.cpu.encode_batch(rows, np.empty(len(rows) * self.cpu.bound(), np.uint8))

    def decode_on_cpu(self, stream: bytes) -> bytes | str:
        """The item, or why the stream is refused."""
        rows = np.zeros((1, self.layout.nbytes), np.uint8)
        try:
            self.cpu.decode_batch(Segments.of([stream]), rows)
        except CorruptStream as error:
            return str(error)
        return rows.tobytes()

    def decode(self, stream: bytes) -> bytes | str:
        """The same on the device, with memory on all sides that must not be touched."""
        nbytes = self.layout.nbytes
        streams = DeviceSegments(
            fenced(self.device, np.frombuffer(stream, np.uint8)),
            self.device.upload(np.zeros(1, np.int64)),
            self.device.upload(np.array([len(stream)])),
            self.device,
        )
        memory = fenced(self.device, np.full(GUARD_NBYTES + nbytes, GUARD, np.uint8))
        status = self.cuda.decode_batch(streams, memory[GUARD_NBYTES:].reshape((1, nbytes)))
        try:
            status.check()
        except CorruptStream as error:
            return str(error)
        finally:
            guarded = self.device.download(memory)
            assert (guarded[:GUARD_NBYTES] == GUARD).all()
        return guarded[GUARD_NBYTES:].tobytes()

    def compare(self, stream: bytes) -> bool:
        """Whether the stream is decoded; the device must say the same as the CPU."""
        found = self.decode(stream)
        assert found == self.decode_on_cpu(stream), stream.hex(" ")
        return isinstance(found, bytes)
