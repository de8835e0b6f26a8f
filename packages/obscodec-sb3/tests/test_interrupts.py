"""Ctrl-C at any moment leaves a buffer that can be read and filled."""

import gc
import os
import signal

import numpy as np
import pytest
from gymnasium import spaces
from obscodec_sb3 import CompressedReplayBuffer

SPACES = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(2)
CAPACITY = 150


def frame(k):
    image = np.zeros((84, 84), np.uint8)
    image[k % 84] = k % 251 + 1
    image[:, k * 7 % 84] = k % 83 + 1
    return image


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="interrupts are sent by a timer")
@pytest.mark.filterwarnings(  # an interrupt inside a weak set's own callback is lost, and nothing else
    r"ignore:Exception ignored in. <function WeakSet\.:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize(("codec", "n_envs"), [("delta-rle", 1), ("delta-rle", 3), ("zstd:1", 1)])
def test_an_interrupt_loses_one_step_at_most(codec, n_envs):
    frames = np.stack([frame(k) for k in range(700)])

    def observations(k):
        return np.stack([frames[k + 50 * env : k + 50 * env + 4] for env in range(n_envs)])

    rng = np.random.default_rng(0)
    before = signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGINT))
    of_interrupts = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start us with it ignored
    n_interrupts = 0
    gc.disable()  # an interrupt inside a callback of the collector, such as hypothesis has, is lost
    try:
        for _ in range(15):
            buffer = CompressedReplayBuffer(CAPACITY * n_envs, *SPACES, device="cpu", n_envs=n_envs, codec=codec)
            expected = {}
            for k in range(400):
                at = buffer.pos
                try:
                    if k > 200 and rng.random() < 0.2:
                        signal.setitimer(signal.ITIMER_REAL, 1e-6 + 1e-4 * rng.random())
                    zeros = np.zeros(n_envs)
                    buffer.add(observations(k), observations(k + 1), zeros, zeros, zeros, [{}] * n_envs)
                    expected[at] = k
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    n_interrupts += 1
                    expected.pop(at, None)
                    expected.pop(buffer.pos, None)
            signal.setitimer(signal.ITIMER_REAL, 0)
            for at, k in expected.items():
                np.testing.assert_array_equal(buffer.observations[at], observations(k))
                np.testing.assert_array_equal(buffer.next_observations[at], observations(k + 1))
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.signal(signal.SIGINT, of_interrupts)
    assert n_interrupts > 5
