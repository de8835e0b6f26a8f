"""Images predicted from their neighbours, in tiles of 8x8 pixels."""
