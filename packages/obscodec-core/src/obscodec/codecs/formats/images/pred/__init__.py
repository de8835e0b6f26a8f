"""Images as what their pixels have more than a prediction from their neighbours."""

from obscodec.codecs.formats.images.pred.pred import Pred

__all__ = ["Pred"]
