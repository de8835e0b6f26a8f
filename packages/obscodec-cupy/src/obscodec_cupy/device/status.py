"""Status: what a decoder on a device has to say when it is done."""

from typing import Final

from obscodec import CorruptStream
from obscodec.codecs import STATUS_TEXTS, Codec

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device

# Of the codes in kernels/errors.cuh.
EXPLANATIONS: Final = {**STATUS_TEXTS, 34: "it has 4 GiB or more, which are not read on a device"}


class Status:
    """Whether all streams of a batch could be decoded, known when the device is done with them.

    Args:
        device: that decodes; what is queued on its current stream by now is what the status is of.
        failure: ``u64[1]``, see ``kernels/failure.cuh``.
        codec: of the same streams on the CPU, for the text of an error.
    """

    def __init__(self, device: Device, failure: DeviceArray, codec: Codec) -> None:
        self._device = device
        self._failure = failure
        self._codec = codec
        self._done = device.mark()

    def check(self) -> None:
        """Wait for the decoder.

        Raises:
            CorruptStream: a stream is truncated, altered or of another format; what it was decoded into may be partly
                written. With the same text as on the CPU.
        """
        self._done.wait()
        if failure := int(self._device.download(self._failure)[0]):
            why = EXPLANATIONS[failure & 0xFFFFFFFF]
            raise CorruptStream(f"{self._codec.spec} stream of {self._codec.layout} can't be decoded: {why}")
