"""Floats that are really small integers, stored as integers."""
