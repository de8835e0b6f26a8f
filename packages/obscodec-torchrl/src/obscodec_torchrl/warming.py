"""What ``obscodec warm`` runs of this package, without TorchRL, which takes seconds to import."""

import numpy as np
from obscodec import FrameStore, Layout, TensorArray

from obscodec_torchrl.new_tensors import append_together


def append_to_two_arrays() -> None:
    """Store tensors for arrays of one store, as for pixels and next pixels: the other kernels are the core's."""
    layout, names = Layout((4,), np.uint8), ("pixels", "next")
    store = FrameStore(layout, codec="raw", block_frames=1)
    arrays = {name: TensorArray.zeros((2,), store) for name in names}
    append_together({name: np.ones((2, 4), np.uint8) for name in names}, arrays, ...)
