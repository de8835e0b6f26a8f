"""Ids that behave like the ndarray of the tensors."""
