"""Batches decoded on a device."""
