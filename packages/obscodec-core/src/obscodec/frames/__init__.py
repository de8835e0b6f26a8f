"""Frames by id, each stored once, in blocks."""
