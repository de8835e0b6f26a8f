"""obscodec on the GPU: codecs and compressed stores in GPU memory, through CuPy."""
