"""Candidates: the codecs that ``auto`` tries, and what reading with each costs."""

from dataclasses import dataclass, replace

from obscodec.codecs import parse
from obscodec.stores.frame_store import DEFAULT_BLOCK_FRAMES

PATCHES = "delta-rle"
_GPU_BLOCK_FRAMES = 8  # a thread block applies the patches before a frame, while others wait for it


@dataclass(frozen=True, slots=True)
class Candidate:
    """A codec to try, and the cost of reading with it.

    The cost is the time to read a batch, divided by the time to gather it from an uncompressed array, measured once by
    benchmarks/costs.py: of stacks of games for codecs of patches, the median of textured images one by one for the
    others, and of depth images for codecs of numbers. So the choice depends on the data alone, not on how busy the
    machine is.

    A patch has much to write where much of a frame changes: textured images cost as much more as ``of_patch`` says for
    patches that are as large as the frames.
    """

    spec: str
    block_frames: int
    cost: float
    of_patch: float = 0.0

    @property
    def of_patches(self) -> bool:
        """Whether the cost is that of stacks of games, with all frames of a block."""
        return self.spec.startswith(PATCHES) or self.spec == "raw"

    @property
    def of_numbers(self) -> bool:
        """Whether it begins with a filter for numbers of several bytes."""
        return self.spec.startswith(("shuffle", "lorenzo"))

    def cost_of(self, n: int) -> float:
        """The cost if ``n`` consecutive frames are read together: a codec of blocks decodes those before them, too."""
        return self.cost if self.of_patches else self.cost * (1 + (self.block_frames - 1) / (2 * n))

    def with_patches(self, size: float) -> "Candidate":
        """This codec on frames whose patches have so much of their size, before any other codec makes them smaller."""
        return replace(self, cost=self.cost + self.of_patch * size)


CANDIDATES = (
    Candidate("raw", 1, 0.72),
    Candidate(PATCHES, DEFAULT_BLOCK_FRAMES, 0.41, 0.83),
    Candidate(f"{PATCHES}|lz4:6", DEFAULT_BLOCK_FRAMES, 0.56, 3.3),
    Candidate(f"{PATCHES}|zstd:3", DEFAULT_BLOCK_FRAMES, 1.8, 8.1),
    *(Candidate("zstd:3", n, 7.3) for n in (1, 4, DEFAULT_BLOCK_FRAMES)),
    Candidate("shuffle|zstd:1", 1, 5.0),
    *(Candidate("palette", n, 6.6) for n in (1, 4, DEFAULT_BLOCK_FRAMES)),
    *(Candidate("pred", n, 5.0) for n in (1, 4, DEFAULT_BLOCK_FRAMES)),
    Candidate("shuffle|pred", 1, 5.7),
    Candidate("lorenzo|shuffle|pred", 1, 8.6),
)
# On an H100, 256 samples of stacks of MsPacman and of noise, beside ``torch.index_select``. LZ4 took 13 times as long.
_ON_A_GPU = (Candidate("raw", 1, 1.1), Candidate(PATCHES, _GPU_BLOCK_FRAMES, 0.95, 7.4))


def candidates_on(device: str) -> tuple[Candidate, ...]:
    """Those for tensors that a device decodes."""
    return CANDIDATES if device == "cpu" else _ON_A_GPU


def frames_of_block(codec: str, block_frames: int | None, device: str) -> int:
    """``block_frames``, or if that is None, the best number of frames in a block for a codec that a device decodes."""
    if block_frames is not None:
        return block_frames
    of_patches = DEFAULT_BLOCK_FRAMES if device == "cpu" else _GPU_BLOCK_FRAMES
    return of_patches if parse(codec)[0].name == PATCHES else 1
