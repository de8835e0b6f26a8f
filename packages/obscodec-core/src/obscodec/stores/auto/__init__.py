"""A store that chooses another store and a codec for its tensors."""
