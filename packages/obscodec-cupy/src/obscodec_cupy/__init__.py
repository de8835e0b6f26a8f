"""obscodec on the GPU: codecs and compressed stores in GPU memory, through CuPy.

It offers the device ``"cuda"`` as a Backend. It never changes what a store keeps.
"""

from obscodec_cupy.frames.batch_reader import BatchReader

__version__ = "0.1.0"

__all__ = ["BatchReader"]
