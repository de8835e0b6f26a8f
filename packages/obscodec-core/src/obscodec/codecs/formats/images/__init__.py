"""Codecs for images, in tiles that are predicted: ``pred``, and ``palette``, whose ranks are coded like residuals.

They turn images into streams and back. They never know ids or stores.
"""
