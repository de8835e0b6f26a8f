"""The device itself: arrays, CUDA streams, events, uploads, compiled kernels, and encoded streams as bytes.

Only this room calls CuPy. It never looks into an encoded stream, and never knows the frames of a store.
"""
