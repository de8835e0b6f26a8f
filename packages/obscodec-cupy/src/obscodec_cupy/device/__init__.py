"""The device itself: arrays, streams, events, uploads, compiled kernels.

Only this room calls CuPy. It never knows streams or frames.
"""
