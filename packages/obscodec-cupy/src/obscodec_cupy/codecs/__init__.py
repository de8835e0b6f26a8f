"""Codecs that run on a device.

They write the same streams as those of the core. They never know stores or frames.
"""
