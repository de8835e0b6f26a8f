"""LZ4 blocks for tests: some that are good, and some that are damaged or close to an end."""

import lz4.block
import numpy as np

LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 14, 15, 16, 20, 30, 269, 270, 271, 600)


def long(n: int) -> bytes:
    """The bytes behind a token for a length of 15 or more."""
    return b"" if n < 15 else b"\xff" * ((n - 15) // 255) + bytes([(n - 15) % 255])


def made_up(rng: np.random.Generator, stream: bytes = b"", n: int = 0) -> tuple[bytes, int]:
    """A stream of random sequences, most of them allowed at this place, and how many bytes it seems to hold.

    They follow those of ``stream``, which hold ``n`` bytes.
    """
    for _ in range(rng.integers(6)):
        literals, match = (int(rng.choice(LENGTHS)) for _ in range(2))
        near = n + literals + int(rng.integers(-3, 20))
        offset = max(1, int(rng.choice([1, 2, 3, 4, 7, 8, 9, 16, 17, n + literals, near, rng.integers(1, 200)])))
        token = bytes([min(literals, 15) << 4 | min(match, 15)])
        stream += token + long(literals) + rng.bytes(literals) + offset.to_bytes(2, "little") + long(match)
        n += literals + match + 4
    last = int(rng.choice(LENGTHS))
    stream += bytes([min(last, 15) << 4 | int(rng.choice([0, 5]))]) + long(last) + rng.bytes(last)
    return stream, max(1, n + last + int(rng.choice([0, 0, 0, -5, -1, 1, 4, 12])))


def compressed(rng: np.random.Generator, dictionary: bytes) -> tuple[bytes, int]:
    """A stream of liblz4, perhaps damaged, and how many bytes it held."""
    begin = int(rng.integers(len(dictionary) + 1))
    plain = rng.choice([97, 98], int(rng.integers(1, 400))).astype(np.uint8).tobytes() + dictionary[begin : begin + 50]
    stream = bytearray(lz4.block.compress(plain, store_size=False, dict=dictionary, mode="high_compression"))
    for _ in range(rng.integers(4)):
        stream[rng.integers(len(stream))] = rng.integers(256)
    return bytes(stream[: rng.integers(1, len(stream) + 1)] if rng.random() < 0.2 else stream), len(plain)
