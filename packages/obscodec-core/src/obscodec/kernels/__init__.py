"""Compiled kernels. They release the GIL, check what they are given, and report trouble as a status code."""
