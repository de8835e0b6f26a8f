"""Floats that are really integers, stored as these."""
