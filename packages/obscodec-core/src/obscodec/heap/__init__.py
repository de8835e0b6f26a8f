"""Streams in memory that grows and shrinks with them."""
