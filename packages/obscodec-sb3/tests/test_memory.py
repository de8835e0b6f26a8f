"""What the operating system says, in fresh processes."""

import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.needs("/proc")

RESIDENT = """
    import mmap

    def resident():  # without the pages of files: code, which is read in by and by
        with open("/proc/self/statm") as statm:
            pages, of_files = map(int, statm.read().split()[1:3])
        return (pages - of_files) * mmap.PAGESIZE
"""
FILL = """
    import ale_py, gymnasium
    import numpy as np
    from gymnasium import spaces
    from gymnasium.wrappers import AtariPreprocessing
    from obscodec_sb3 import CompressedReplayBuffer
    from stable_baselines3.common.buffers import ReplayBuffer

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    env = AtariPreprocessing(gymnasium.make("ALE/Pong-v5", frameskip=1))
    env.reset(seed=0)
    stack = np.zeros((1, 4, 84, 84), np.uint8)

    def fill(buffer, n):
        global stack
        for _ in range(n):
            frame, reward, terminated, truncated, info = env.step(env.action_space.sample())
            new = np.concatenate([stack[:, 1:], frame[None, None]], axis=1)
            buffer.add(stack, new, np.array([0]), np.array([reward]), np.array([terminated]), [info])
            stack = new
            if terminated or truncated:
                env.reset()

    arguments = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6), "cpu"
    def resident_after(n_places, n):
        buffer = {buffer}(n_places, *arguments)
        fill(buffer, n)
        if isinstance(buffer, CompressedReplayBuffer):
            buffer.decide()
        return resident(), buffer

    resident_after(200, 300)  # what is loaded and compiled at first use
    before = resident()
    after, buffer = resident_after(1500, 1500)
    print(after - before)
"""
CONSTRUCT = """
    import numpy as np
    from gymnasium import spaces
    from obscodec_sb3 import CompressedReplayBuffer

    arguments = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(6), "cpu"
    CompressedReplayBuffer(10, *arguments)
    before = resident()
    buffer = CompressedReplayBuffer(1_000_000, *arguments, n_envs=4)
    print(resident() - before)
"""


def resident_bytes(program: str) -> int:
    program = textwrap.dedent(RESIDENT) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_a_filled_buffer_takes_a_fraction_of_the_stock_one():
    stock = resident_bytes(FILL.format(buffer="ReplayBuffer"))
    compressed = resident_bytes(FILL.format(buffer="CompressedReplayBuffer"))
    assert stock >= 1500 * 2 * 28_224
    assert compressed <= stock / 10


@pytest.mark.slow
def test_a_buffer_of_a_million_transitions_is_made_without_memory():
    assert resident_bytes(CONSTRUCT) < 4_000_000
