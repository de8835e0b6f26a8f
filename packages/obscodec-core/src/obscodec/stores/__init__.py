"""Tensors under integer ids, however they are kept."""
