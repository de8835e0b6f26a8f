"""obscodec on the GPU: codecs and compressed stores in GPU memory, through CuPy."""

from obscodec_cupy.frames.batch_reader import BatchReader

__version__ = "0.1.0"

__all__ = ["BatchReader"]
