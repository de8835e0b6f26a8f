"""Floats that are really small integers, stored as integers.

It turns numbers into codes and back, bit by bit. It never knows how the codes are kept.
"""
