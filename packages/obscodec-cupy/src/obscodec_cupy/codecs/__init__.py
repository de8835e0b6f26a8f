"""Codecs that run on a device."""
