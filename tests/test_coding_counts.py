"""What the suites of others say about coding is so: a store that does not decide early is seen to code nothing."""

import json

import pytest
from new_python import run_python

SCRIPT = """
import json, sys
import numpy as np
from coding_counts import CodingCounts
from obscodec import AutoStore, Layout

counts, options = CodingCounts(decide_after=8, block_frames=4), json.loads(sys.argv[1])
noise = np.random.default_rng(0).integers(256, size=(21, 6, 6), dtype=np.uint8)
store = AutoStore(Layout((6, 6), np.uint8), threads=1, **options)
ids = store.append(noise[:3])
store.read(ids)
few = counts.taken()
ids = np.append(ids, store.append(noise[3:]))
written = counts.taken()
store.read(ids[:4])
store.release(ids)
print(json.dumps([few, written, counts.taken()]))
"""


@pytest.mark.parametrize(("options", "codes", "compresses"), [
    ({"codec": "delta-rle", "decide_after": 8, "block_frames": 4}, True, True),
    ({"codec": "zstd:1", "decide_after": 8, "block_frames": 4}, True, False),  # noise
    ({"codec": "auto", "decide_after": 8, "block_frames": 4}, True, False),
    ({"codec": "delta-rle", "decide_after": 8}, True, True),  # 16 of the 21 frames are a block
    ({"codec": "delta-rle", "block_frames": 4}, False, False),
    ({}, False, False),
])  # fmt: skip
def test_what_is_encoded_and_decoded_is_counted(options, codes, compresses):
    few, written, read = json.loads(run_python("-c", SCRIPT, json.dumps(options)))
    nothing = {"encoded": 0, "decoded": 0, "compressed": 0}
    assert few == {"given": 3, "enough": 0, **nothing}
    assert written["given"] == 18
    assert written["enough"] > 0
    assert (written["encoded"] > 0) == codes
    assert read == {"given": 0, "enough": 0, "encoded": 0, "decoded": codes, "compressed": compresses}
