"""What a ring buffer draws: steps, sequences and returns, by numbers of steps; and how their batches are made.

It decides which steps belong together. It never knows where a step lies in the ring, nor how its fields are kept.
"""

from obscodec.buffers.drawing.draws import Rng, as_generator, draw, drawable_steps
from obscodec.buffers.drawing.episodes import Ends, Episodes, draw_starts
from obscodec.buffers.drawing.prioritized import Prioritized
from obscodec.buffers.drawing.reader import Read, Span, StepReader
from obscodec.buffers.drawing.seams import Seams
from obscodec.buffers.drawing.stacks import Pad, Stack, check_pad

__all__ = [
    "Ends",
    "Episodes",
    "Pad",
    "Prioritized",
    "Read",
    "Rng",
    "Seams",
    "Span",
    "Stack",
    "StepReader",
    "as_generator",
    "check_pad",
    "draw",
    "draw_starts",
    "drawable_steps",
]
