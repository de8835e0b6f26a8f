"""Observations of different lengths, and blocks of many environments, on a device: as on the CPU."""

import numpy as np
import pytest
from obscodec import Field, Mixture, RingBuffer
from obscodec_cupy.device import opened


def values(there, batch):
    """A batch, on the CPU."""
    return {name: x if isinstance(x, np.ndarray) else there.download(x) for name, x in batch.items()}


def check_equal(there, found, expected):
    found = values(there, found)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, strict=True)


@pytest.mark.parametrize(
    ("n_envs", "are_there", "codec"), [(1, True, "auto"), (2, False, "auto"), (2, False, "delta-rle")]
)
def test_observations_of_different_lengths(cuda, n_envs, are_there, codec):
    there, rng = opened.device(cuda), np.random.default_rng(n_envs)
    plain, ring = buffers = [
        RingBuffer(
            40,
            {
                "cloud": Field((None, 5, 2), np.float32, codec, decide_after=16, device=device),
                "later": Field((None, 5, 2), np.float32, next_of="cloud"),
                "done": Field((), np.bool_),
            },
            n_envs,
            episode_end="done",
        )
        for device in ("cpu", cuda)
    ]

    def observe():
        return [rng.random((int(rng.choice([0, 3, 102, 250])), 5, 2), np.float32) for _ in range(n_envs)]

    cloud = observe()
    for t in range(60):  # beyond the capacity
        later = observe()
        clouds = {"cloud": cloud, "later": later}
        plain.append(**clouds, done=np.full(n_envs, t % 9 == 8))
        if are_there:
            clouds = {name: there.upload(of[0]) for name, of in clouds.items()}
        ring.append(**clouds, done=np.full(n_envs, t % 9 == 8))
        cloud = later
        if t == 20:
            [buffer.decide() for buffer in buffers]
        if t % 20 == 19:
            check_equal(there, ring.sample(9, t), plain.sample(9, t))
            check_equal(
                there, ring.sequences(3, 4, t, strict_length=False), plain.sequences(3, 4, t, strict_length=False)
            )
            check_equal(there, ring[:], plain[:])
    assert not isinstance(ring.sample(9, 0)["cloud"], np.ndarray)
    longer = [buffer.resized(50) for buffer in buffers]
    for of in longer:
        of.append(cloud=[np.ones((400, 5, 2))] * n_envs, later=cloud, done=np.ones(n_envs, bool))
    mixed = [Mixture({short: 0.5, long: 0.5}) for short, long in zip(buffers, longer, strict=True)]
    check_equal(there, mixed[1].sample(20, 3), mixed[0].sample(20, 3))


@pytest.mark.parametrize("heap", ["device", "pinned"])
def test_many_environments_with_few_steps(cuda, heap):
    there, rng = opened.device(cuda), np.random.default_rng(0)
    plain, ring = buffers = [
        RingBuffer(9, {"frame": Field((20, 20), np.uint8, "delta-rle", decide_after=32, device=device, heap=of)}, 17)
        for device, of in (("cpu", "device"), (cuda, heap))
    ]
    for t in range(40):
        frames = rng.integers(0, 3, (17, 20, 20), np.uint8)
        [buffer.append(frame=frames) for buffer in buffers]
        if t % 6 == 5:
            check_equal(there, ring.sample(30, t), plain.sample(30, t))
    [buffer.decide() for buffer in buffers]
    ring.append(frame=frames)
    plain.append(frame=frames)
    check_equal(there, ring[:], plain[:])
    assert not isinstance(ring.sample(9, 0)["frame"], np.ndarray)
