"""What a ring buffer draws: steps, sequences and returns, by numbers of steps; and how their batches are made.

It decides which steps belong together. It never knows where a step lies in the ring, nor how its fields are kept.
"""

from obscodec.buffers.drawing.converted_batch import batches_to
from obscodec.buffers.drawing.counts import Counts, greater, most, no_greater, of_envs
from obscodec.buffers.drawing.draws import Rng, as_generator, draw, drawable_steps
from obscodec.buffers.drawing.episodes import Ends, Episodes, draw_starts
from obscodec.buffers.drawing.n_step import NStep
from obscodec.buffers.drawing.prioritized import Prioritized, importance
from obscodec.buffers.drawing.seams import Seams
from obscodec.buffers.drawing.stacks import Pad, Stack
from obscodec.buffers.drawing.torch_batch import TorchBatch

__all__ = [
    "Counts",
    "Ends",
    "Episodes",
    "NStep",
    "Pad",
    "Prioritized",
    "Rng",
    "Seams",
    "Stack",
    "TorchBatch",
    "as_generator",
    "batches_to",
    "draw",
    "draw_starts",
    "drawable_steps",
    "greater",
    "importance",
    "most",
    "no_greater",
    "of_envs",
]
