"""Buffers for loops of one's own."""
