"""A store that chooses another store and a codec for its tensors.

It looks at the first tensors, and decides once. It never keeps a tensor itself after that.
"""
