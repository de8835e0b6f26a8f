"""Writes the golden snapshots: ``uv run python packages/obscodec-core/tests/snapshots/make_golden.py``.

Run it when the format changes, with another folder, and never to make a failing test pass.
"""

import numpy as np
import obscodec
from saved import GOLDEN, loop, priorities, ring, stores, tensors

if __name__ == "__main__":
    obscodec.save(ring(130, capacity=60), GOLDEN / "ring")
    obscodec.save(loop(130), GOLDEN / "loop")
    obscodec.save(priorities(130), GOLDEN / "priorities")
    for name in ("stacks", "auto floats"):
        store, path = stores()[name], GOLDEN / name.replace(" ", "-")
        ids = store.append(tensors(store.layout))
        store.release(ids[:50])
        obscodec.save(store, path)
        np.save(f"{path}-ids.npy", ids[50:])
