"""``obscodec warm`` compiles all that buffers run, also those of the adapters."""

import os
import re
import subprocess
import sys
import textwrap
from itertools import pairwise

import pytest
from counted_kernels import COUNTED
from new_python import run_python

BUFFERS = {
    "RingBuffer": """
        import numpy as np
        from obscodec import Field, Prioritized, RingBuffer, decode, encode

        frames = np.zeros((600, 84, 84), np.uint8)
        frames[np.arange(600), np.arange(600) % 84, 5] = 200
        fields = {"frame": Field((84, 84), np.uint8), "reward": Field((), np.float32), "done": Field((), bool)}
        for n_envs, more in ((1, {}), (2, {"max_bytes": 4 << 20})):
            buffer = RingBuffer(400, fields, n_envs, {"frame": 4}, "done", pad="edge", **more)
            priorities = Prioritized(400 * n_envs)
            for i, frame in enumerate(frames):
                done = np.full(n_envs, i % 90 == 0)
                buffer.append(frame=frame[None].repeat(n_envs, 0), reward=np.ones(n_envs), done=done)
            buffer.sample(256, p=priorities)
            buffer.sequences(8, 10)
        decode(encode(frames[:4]))
        for spec in ("delta-rle", "delta-rle|lz4:4", "rle", "zstd:3"):
            decode(encode(frames[:4], spec))
        """,
    "Stable-Baselines3": """
        import numpy as np
        from gymnasium.spaces import Box, Discrete
        from obscodec_sb3 import CompressedReplayBuffer

        frames = np.zeros((1000, 84, 84), np.uint8)
        frames[np.arange(1000), np.arange(1000) % 84, 5] = 200
        buffer = CompressedReplayBuffer(400, Box(0, 255, (4, 84, 84), np.uint8), Discrete(4), "cpu")
        for i in range(600):
            obs, next_obs = frames[None, i : i + 4], frames[None, i + 1 : i + 5]
            buffer.add(obs, next_obs, np.array([i % 4]), np.ones(1), np.array([i % 90 == 0]), [{}])
        buffer.sample(256)
        """,
    "TorchRL": """
        import torch
        from obscodec_torchrl import CompressedStorage
        from tensordict import TensorDict
        from torchrl.data import TensorDictReplayBuffer

        pixels = torch.zeros(1001, 4, 84, 84, dtype=torch.uint8)
        pixels[torch.arange(1001), :, torch.arange(1001) % 84, 5] = 200
        buffer = TensorDictReplayBuffer(storage=CompressedStorage(800), batch_size=256)
        following = TensorDict(pixels=pixels[1:], reward=torch.zeros(1000, 1), batch_size=1000)
        steps = TensorDict({"pixels": pixels[:-1], "next": following}, batch_size=1000)
        for i in range(0, 900, 100):
            buffer.extend(steps[i : i + 100])
        for step in steps[900:]:
            buffer.add(step)
        buffer.sample()
        """,
    "textured images": """
        import numpy as np
        from obscodec import Field, RingBuffer

        rng = np.random.default_rng(0)
        wall = (rng.normal(0, 6, (48, 900, 3)).cumsum(0).cumsum(1) / 40).astype(np.uint8)
        camera, colours = Field((48, 48, 3), np.uint8), Field((48, 48, 3), np.uint8)
        buffer = RingBuffer(800, {"camera": camera, "colours": colours})
        for i in range(800):
            seen = wall[:, i : i + 48] + rng.integers(2, size=(48, 48, 3), dtype=np.uint8)
            few = rng.integers(2, size=(48, 48, 1), dtype=np.uint8) * np.uint8([9, 80, 200])
            buffer.append(camera=seen, colours=wall[:, i : i + 48] // 64 * 50 + few)
        buffer.decide()
        buffer.sample(256)
        specs = {store.choice.chosen.spec for store in buffer.stores}
        assert "pred" in specs and "palette" in specs, specs
        """,
}


def run(*command, folder, **variables):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(folder), **variables}
    ran = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """A folder of the kernels that all parts compile, one after the other, and those that each has added."""
    folder = tmp_path_factory.mktemp("warmed")
    program = """if True:
        from importlib.metadata import entry_points
        from obscodec.warming import ENTRY_POINT_GROUP, PARTS, run_part
        print([{*run_part(part).compiled} for part in (*PARTS, *entry_points(group=ENTRY_POINT_GROUP))])
        """
    found = eval(run("-c", program, folder=folder))
    return folder, [later - earlier for earlier, later in pairwise([set(), *found])]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("library", BUFFERS)
def test_buffers_compile_nothing(library, warmed):
    program = f"{COUNTED}\n{textwrap.dedent(BUFFERS[library])}\nprint(compiled)"
    assert run("-c", program, folder=warmed[0]) == "[]"


@pytest.mark.slow
@pytest.mark.long
def test_no_part_compiles_a_kernel_of_an_earlier_one_for_more_types(warmed):
    """Parts run at the same time, and numba's files of a kernel are not made for two processes that add types to it."""
    seen = set()
    for added in warmed[1]:
        kernels = {kernel for kernel, types in added}
        assert not kernels & seen
        seen |= kernels
    assert len(seen) > 50


@pytest.mark.slow
@pytest.mark.long
def test_a_second_time_nothing_is_compiled(warmed):
    code = "import sys; sys.modules['typer'] = None; from obscodec.cli import main; main()"
    # A file, since a process that is spawned imports what was started, and its name must be there.
    program = warmed[0] / "program.py"
    program.write_text(f"if __name__ == '__main__':\n    {code}\n")
    said = run(program, "warm", folder=warmed[0])
    assert re.fullmatch(rf"all \d\d+ kernels that buffers call are compiled already: {warmed[0]}", said)


@pytest.mark.slow
def test_kernels_of_torchrl_are_compiled_without_it():
    program = """if True:
        import sys, obscodec_torchrl, obscodec_torchrl.warming
        obscodec_torchrl.warming.append_to_two_arrays()
        print(dir(obscodec_torchrl) == obscodec_torchrl.__all__, "torch" in sys.modules)
        """
    assert run_python("-c", program).splitlines()[-1] == "True False"
