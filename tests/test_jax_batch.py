"""Batches as arrays of JAX, in a process of its own, since JAX warns of each fork in one that has imported it."""

import numpy as np
import pytest
from new_python import run_python
from obscodec import Field, MissingPackage, Mixture, RingBuffer

N_ENVS = 4


def ring() -> RingBuffer:
    """A buffer of images and numbers of several dtypes."""
    fields = {
        "obs": Field((4, 84, 84), np.uint8, "delta-rle"),
        "next_obs": Field((4, 84, 84), np.uint8, next_of="obs"),
        "wide": Field((), np.int64),
        "reward": Field((), np.float32),
        "half": Field((3,), "bfloat16"),
        "done": Field((), np.bool_),
    }
    buffer = RingBuffer(100, fields, N_ENVS, episode_end="done")
    rng = np.random.default_rng(0)
    images = rng.integers(2, size=(51, N_ENVS, 4, 84, 84), dtype=np.uint8)
    for k in range(50):
        numbers = {"wide": [k] * N_ENVS, "reward": rng.random(N_ENVS), "half": rng.random((N_ENVS, 3)).astype("f4")}
        numbers["half"] = numbers["half"].astype(buffer.fields["half"].dtype)
        buffer.append(obs=images[k], next_obs=images[k + 1], done=[k % 9 == 8] * N_ENVS, **numbers)
    return buffer


def compare() -> None:
    """All batches of JAX have the values of those of numpy, and images lie where they were decoded."""
    import jax

    buffer, other = ring(), ring()
    kinds = {
        "sample": lambda **how: buffer.sample(32, 0, n_step=3, gamma=0.5, **how),
        "take": lambda **how: buffer.take([*buffer.indices][:20], **how),
        "sequences": lambda **how: buffer.sequences(8, 3, 0, bootstrap=1, **how),
        "sample_episodes": lambda **how: buffer.sample_episodes(8, 0, **how),
        "mixture": lambda **how: Mixture({buffer: 0.5, other: 0.5}).sample(32, 0, **how),
        "epochs": lambda **how: next(buffer.epochs(32, 0, **how)),
    }
    for name, draw in kinds.items():
        expected, found = draw(), draw(to="jax")
        assert found.keys() == expected.keys(), name
        for key, array in found.items():
            assert isinstance(array, jax.Array), key
            assert array.dtype == (np.int32 if key == "wide" else expected[key].dtype), key
            np.testing.assert_array_equal(np.asarray(array), expected[key], err_msg=key)
    batch = buffer.sample(32, 0, to="jax")
    apart = batch["next_obs"].unsafe_buffer_pointer() - batch["obs"].unsafe_buffer_pointer()
    assert apart == batch["obs"].nbytes  # both are parts of one piece of memory, so nothing was copied
    held = np.asarray(batch["obs"]).copy()
    for _ in range(10):
        buffer.sample(32, 1)
    np.testing.assert_array_equal(batch["obs"], held)  # nobody else gets this memory meanwhile


@pytest.mark.slow
def test_batches_of_jax() -> None:
    run_python("-c", "import test_jax_batch; test_jax_batch.compare()")


def test_jax_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_there(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr("obscodec.installing.import_module", not_there)
    with pytest.raises(MissingPackage, match=r"^arrays of JAX need jax: pip install jax$"):
        ring().sample(1, to="jax")
