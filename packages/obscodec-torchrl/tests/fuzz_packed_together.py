"""Arrays packed together that nobody honest packed: ``python fuzz_packed_together.py CASES [SEED]``.

As ``fuzz_messages.py``, of which the folder is on the path, does with messages.
"""

from __future__ import annotations

import json
import random
import struct

import numpy as np
from fuzz_messages import JUNK, changed, changed_text, main
from obscodec import pack
from obscodec_torchrl.arrays import pack_together, read_note, unpack_together


def others(rng: random.Random) -> bytes:
    """Batches of any shapes, which nobody asked for."""
    shapes = [[rng.randrange(4) for _ in range(rng.randrange(1, 4))] for _ in range(rng.randrange(3))]
    return pack([np.zeros(shape, rng.choice(("|u1", "<f4", "|b1"))) for shape in shapes])


def packed_together(rng: random.Random) -> bytes:
    """Arrays packed together that were right once."""
    arrays = [
        np.zeros((4, *rng.choice(((), (3,), (2, 3)))), rng.choice(("|u1", "<f4"))) for _ in range(rng.randrange(3))
    ]
    whole = pack_together(arrays, {"length": 4})
    (nbytes,) = struct.unpack_from("<I", whole)
    head, rest = json.loads(whole[4 : 4 + nbytes]), whole[4 + nbytes :]
    kind = rng.randrange(5)
    if kind == 0:
        return changed(whole, rng)
    if kind == 1:
        head[rng.choice(("groups", "n_parts", "note"))] = rng.choice(
            [*JUNK, [[0, 0]], [[1]], [[0], [0]], [[], [0]], [[0], []], "00", [0]]
        )
        text = json.dumps(head).encode()
    elif kind == 2:
        text = changed_text(json.dumps(head), rng)
    elif kind == 3:
        text, rest = json.dumps(head).encode(), rng.choice((rest + rest, others(rng), rest + others(rng), b""))
    else:
        head["n_parts"] = 2
        text, rest = json.dumps(head).encode(), rest + pack([np.zeros((4, 1, 2), "<f4")] * len(head["groups"]))
    return struct.pack("<I", rng.choice((len(text),) * 5 + (0, 2**32 - 1))) + text + rest


def read_together(encoded: bytes) -> None:
    read_note(encoded)
    end = 0
    for rows, arrays in unpack_together(encoded):
        assert rows.start == end
        assert all(len(array) == rows.stop - rows.start for array in arrays)
        end = rows.stop


if __name__ == "__main__":
    main(((packed_together, read_together),))
