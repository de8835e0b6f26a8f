"""Images as the differences of their pixels from a prediction by their neighbours.

Tiles predict, groups write the bits. It never knows a palette.
"""

from obscodec.codecs.formats.images.pred.pred import Pred

__all__ = ["Pred"]
