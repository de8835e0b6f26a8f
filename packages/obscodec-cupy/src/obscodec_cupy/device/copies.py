"""Many copies in one launch: from the host to places on the device, and between such places."""

import numpy as np
import numpy.typing as npt

from obscodec_cupy.device.device import Device, Kernel

SCATTER = Kernel("copies.cu", "scatter")
MOVE = Kernel("copies.cu", "move")
KERNELS = (SCATTER, MOVE)
THREADS = 128
PIECE_NBYTES = 16 << 10  # of one thread block

Addresses = npt.NDArray[np.uint64]
Lengths = npt.NDArray[np.int64]


def scatter(device: Device, data: npt.NDArray[np.uint8], addresses: Addresses, lengths: Lengths) -> None:
    """Write the pieces of ``data``, which lie one behind the other, to their addresses on the device.

    One copy to the device and one launch, queued on the current stream. ``data`` may change as soon as this returns.

    Args:
        device: where to.
        data: u8[sum of lengths] on the host.
        addresses: u64[n]; no two pieces may overlap there.
        lengths: i64[n], in bytes.
    """
    offsets = np.cumsum(lengths) - lengths
    pieces = _split(offsets.astype(np.uint64), addresses, lengths)
    if len(pieces) == 0:
        return
    pieces[:, 0] += np.uint64(pieces.nbytes)
    staged = device.upload(np.concatenate([pieces.reshape(-1).view(np.uint8), data]))
    device.launch(SCATTER, len(pieces), THREADS, np.uint64(device.address(staged)))


def move(device: Device, sources: Addresses, addresses: Addresses, lengths: Lengths) -> None:
    """Copy pieces from their source addresses to their addresses on the device, queued on the current stream.

    Args:
        device: on which both lie.
        sources: u64[n].
        addresses: u64[n]; no piece may overlap the place of another, or its own.
        lengths: i64[n], in bytes.
    """
    pieces = _split(sources, addresses, lengths)
    if len(pieces) == 0:
        return
    table = device.upload(pieces)
    device.launch(MOVE, len(pieces), THREADS, np.uint64(device.address(table)))


def _split(sources: Addresses, addresses: Addresses, lengths: Lengths) -> npt.NDArray[np.uint64]:
    """``u64[m, 3]`` of (source, address, nbytes), none empty and none over ``PIECE_NBYTES``."""
    counts = -(-lengths // PIECE_NBYTES)
    piece = np.repeat(np.arange(len(lengths)), counts)
    begin = (np.arange(len(piece)) - np.repeat(np.cumsum(counts) - counts, counts)) * PIECE_NBYTES
    nbytes = np.minimum(lengths[piece] - begin, PIECE_NBYTES)
    skipped = begin.astype(np.uint64)
    return np.stack([sources[piece] + skipped, addresses[piece] + skipped, nbytes.astype(np.uint64)], axis=1)
