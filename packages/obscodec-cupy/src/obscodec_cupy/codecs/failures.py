"""What kernels report, see ``report`` in ``kernels/basics.cuh``: a bad stream or id, as one word for a whole batch."""

from typing import Final

from obscodec import CorruptStream, SlotError
from obscodec.statuses import STATUS_TEXTS

from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.sources import STATUSES

EXPLANATIONS: Final = {**STATUS_TEXTS, STATUSES["TOO_LONG"]: "it has 4 GiB or more, which are not read on a device"}


def check_failure(word: int, what: str = "") -> None:
    """Raise what a kernel reported: SlotError for an id or the place of one, CorruptStream for a stream.

    ``what`` names the stream; without it, the word has the number of its block.
    """
    number, code = word >> 32 ^ 0xFFFFFFFF, word & 0xFFFFFFFF
    if code == STATUSES["BAD_ID"]:
        raise SlotError(f"sample {number} of a batch asks for a tensor that the store does not have")
    if code:
        raise CorruptStream(f"{what or f'block {number}'} can't be decoded: {EXPLANATIONS[code]}")


class Status:
    """Whether all streams of a batch could be decoded: of what is queued on the current stream of a device by now."""

    def __init__(self, device: Device, failure: DeviceArray, what: str) -> None:
        self._device, self._failure, self._what = device, failure, what
        self._done = device.mark()  # None in a graph, which is replayed on the stream of the check

    def check(self) -> None:
        """Wait for the decoder; if it was recorded in a graph, for the current stream.

        Raises:
            CorruptStream: a stream is truncated, altered or of another format; what it was decoded into may be partly
                written. With the same text as on the CPU.
        """
        if self._done is not None:
            self._done.synchronize()
        check_failure(int(self._device.download(self._failure)[0]), self._what)
