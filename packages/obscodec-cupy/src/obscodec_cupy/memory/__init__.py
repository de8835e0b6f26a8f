"""Streams and tables in the memory of a device."""
