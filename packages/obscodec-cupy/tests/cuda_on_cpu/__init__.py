"""A simulated GPU: the kernels compiled by g++, its memory and streams on the host."""
