"""The device itself: arrays, streams, events, uploads, compiled kernels."""
