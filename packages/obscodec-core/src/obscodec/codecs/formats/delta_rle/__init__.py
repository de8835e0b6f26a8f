"""Blocks of frames, each a patch of the one before it."""
