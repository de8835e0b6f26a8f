"""A store that chooses how it keeps its tensors."""
