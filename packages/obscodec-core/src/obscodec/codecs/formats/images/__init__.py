"""Codecs for images, in tiles that are predicted: ``pred``, and ``palette``, whose ranks are coded as residuals are."""
