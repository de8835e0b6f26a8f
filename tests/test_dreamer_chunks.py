"""The chunks of the example for DreamerV3 give what plain ones do, and what goes leaves nothing behind."""

from typing import Any

import dreamer_chunks
import numpy as np
import pytest
from dreamer_chunks import Plain, Replay, Rows, compressed

N_WORKERS, CHUNK = 3, 70
FRAME, LATENT = (32, 32, 3), (300,)


def step_of(worker: int, k: int, image: str) -> dict[str, Any]:
    rng = np.random.default_rng(1000 * worker + (k // 2 if image == "still" else k))
    frame = rng.integers(0, 200, FRAME, np.uint8)
    latent = rng.standard_normal(LATENT).astype(np.float32)
    return {"image": frame, "latent": latent, "reward": np.float32(k), "is_first": np.bool_(k % 9 == 0)}


@pytest.mark.parametrize("image", ["still", "noise"])
def test_sequences_are_those_of_plain_arrays(image: str) -> None:
    ours = compressed(Plain, N_WORKERS)
    replays = [Replay(kind, N_WORKERS, 2 * N_WORKERS * CHUNK, CHUNK) for kind in (Plain, ours)]
    for k in range(4 * CHUNK + 9):
        for worker in range(N_WORKERS):
            for replay in replays:
                replay.add(step_of(worker, k, image), worker)
        if k % 50 == 49:
            latents = np.random.default_rng(k).standard_normal((20, *LATENT)).astype(np.float32)
            for replay in replays:
                replay.chunks[1][-1].update(max(0, replay.chunks[1][-1].length - 20), 20, {"latent": latents})
            batches = [replay.sample(8, np.random.default_rng(k)) for replay in replays if k > 99]
            for key in batches[0] if batches else ():
                np.testing.assert_array_equal(batches[0][key], batches[1][key], strict=True)
    chunk = replays[1].chunks[0][0]
    assert {key: type(x) for key, x in chunk.data.items()} == {
        "image": Rows, "latent": Rows, "reward": np.ndarray, "is_first": np.ndarray
    }  # fmt: skip
    assert {x.write_buffer.first for of in replays[1].chunks for c in of for x in (c.data["image"],)} == {0, 1, 2}
    n = replays[1].n_steps
    assert n == N_WORKERS * (CHUNK + 9)
    assert ours.stores["image"].stats().n_tensors <= n
    del chunk, replay, replays
    assert [store.stats().n_tensors for store in ours.stores.values()] == [0, 0]


def test_the_program_compares_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py")
    dreamer_chunks.main(steps=300, n_workers=2, rounds=3)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-3:]] == ["MsPacman,", "plain", "compressed"]
