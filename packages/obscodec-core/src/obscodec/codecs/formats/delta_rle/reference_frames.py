"""Which frames become reference frames: those that the first frame of a block is a patch of."""

from typing import Final

MAX_REFERENCES: Final = 33  # the first one is the frame of zeros

# A frame becomes a reference if its patch against all others takes more than this part of it. Measured:
# docs/performance.md.
JOIN_PART: Final = 8
