"""Buffers for training loops, and the arrays that adapters build theirs from.

Steps, episodes, capacity and memory limits are decided here. A buffer never knows streams, blocks or ids of frames.
"""

from obscodec.buffers.array_set import ArraySet
from obscodec.buffers.drawing import Prioritized, Rng, TorchBatch, as_generator, batches_to, importance
from obscodec.buffers.estimates import estimate, part_ends, spread
from obscodec.buffers.exploration import is_vec_env, n_envs_of, play
from obscodec.buffers.field import MIN_COMPRESSED_NBYTES, Array, Field
from obscodec.buffers.memory import LOOK_EVERY, Memory, fit, making_room
from obscodec.buffers.mixture import Mixture, divided, in_one_batch
from obscodec.buffers.options import OPTION_DEFAULTS, BufferKeywords, BufferOptions
from obscodec.buffers.rate_limiter import RateLimiter
from obscodec.buffers.rearranged import Rearranged
from obscodec.buffers.ring import RingBuffer
from obscodec.buffers.stored_steps import StoredSteps

__all__ = [
    "LOOK_EVERY",
    "MIN_COMPRESSED_NBYTES",
    "OPTION_DEFAULTS",
    "Array",
    "ArraySet",
    "BufferKeywords",
    "BufferOptions",
    "Field",
    "Memory",
    "Mixture",
    "Prioritized",
    "RateLimiter",
    "Rearranged",
    "RingBuffer",
    "Rng",
    "StoredSteps",
    "TorchBatch",
    "as_generator",
    "batches_to",
    "divided",
    "estimate",
    "fit",
    "importance",
    "in_one_batch",
    "is_vec_env",
    "making_room",
    "n_envs_of",
    "part_ends",
    "play",
    "spread",
]
