"""What compiled kernels are made of: the compiler, and memory by its address."""
