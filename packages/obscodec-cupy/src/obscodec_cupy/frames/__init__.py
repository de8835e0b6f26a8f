"""Batches decoded on a device.

A copy of the tables and blocks of a store lies on the device, and is read there. It never changes the store.
"""
