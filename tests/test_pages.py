"""The pages of `obscodec inspect --html` show what buffers of Stable-Baselines3 and TorchRL hold."""

from pathlib import Path

import numpy as np
import pytest
import torch
from gymnasium import spaces
from new_python import run_obscodec
from obscodec_sb3 import CompressedDictReplayBuffer, CompressedReplayBuffer, CompressedRolloutBuffer
from obscodec_torchrl import CompressedStorage
from pages import check_steps, page_of
from saved import flip
from tensordict import TensorDict
from torchrl.data import TensorDictReplayBuffer

N_ENVS, SIZE = 2, 50
IMAGE, VECTOR = spaces.Box(0, 255, (3, 36, 36), np.uint8), spaces.Box(-1, 1, (5,), np.float32)
BOTH = spaces.Dict(image=IMAGE, vector=VECTOR)
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(256, size=(90, N_ENVS, 3, 36, 36), dtype=np.uint8)
VECTORS = RNG.normal(size=(90, N_ENVS, 5)).astype(np.float32)


def image(pixels):
    return np.moveaxis(pixels, 0, -1)


def observations(step, space):
    return {"image": PIXELS[step], "vector": VECTORS[step]} if space == BOTH else PIXELS[step]


def fill(buffer, n_steps):
    for k in range(n_steps):
        done, infos = np.array([k % 7 == 6, k % 11 == 10]), [{}, {"TimeLimit.truncated": k % 11 == 10}]
        steps = (observations(k + more, buffer.observation_space) for more in (0, 1))
        buffer.add(*steps, np.full((N_ENVS, 1), k), np.array([k, -k]), done, infos)


@pytest.mark.parametrize("n_steps", [30, 70])
@pytest.mark.parametrize("kind", [CompressedReplayBuffer, CompressedDictReplayBuffer])
def test_a_replay_buffer_of_sb3(kind, n_steps, tmp_path):
    space = BOTH if kind is CompressedDictReplayBuffer else IMAGE
    buffer = kind(SIZE * N_ENVS, space, spaces.Discrete(4), device="cpu", n_envs=N_ENVS)
    fill(buffer, n_steps)
    buffer.save(tmp_path / "saved")
    data, _ = page_of(tmp_path / "saved")
    oldest = max(0, n_steps - SIZE)

    def values(name, step, env):
        if name.endswith(".vector"):
            return VECTORS[oldest + step + name.startswith("next"), env]
        return getattr(buffer, name)[(oldest + step) % SIZE, env]

    check_steps(data, lambda name, step, env: image(PIXELS[oldest + step + name.startswith("next"), env]), values, 2)
    assert (data["n"], data["n_envs"], data["flags"]) == (min(n_steps, SIZE), 2, ["dones", "timeouts"])
    assert data["left_out"] == []
    assert {part["env"] for part in data["parts"]} == {0, 1}
    for part in data["parts"]:
        steps = oldest + part["first"] + np.arange(part["n"])
        period = 11 if part["env"] else 7
        assert part["ends"] == np.flatnonzero(steps % period == period - 1).tolist()


@pytest.mark.parametrize("is_read", [False, True])
def test_a_rollout_of_sb3(is_read, tmp_path):
    buffer = CompressedRolloutBuffer(20, IMAGE, spaces.Discrete(4), device="cpu", n_envs=N_ENVS)
    for k in range(20):
        zeros = torch.zeros(N_ENVS)
        buffer.add(PIXELS[k], np.full((N_ENVS, 1), k), np.array([k, -k]), np.array([k % 5 == 0, False]), zeros, zeros)
    if is_read:
        next(iter(buffer.get(4)))
    buffer.save(tmp_path / "saved")
    data, _ = page_of(tmp_path / "saved")
    shown = {"actions": [[1], [1]], "rewards": [1, -1], "episode_starts": [0, 0], "values": [0, 0], "log_probs": [0, 0]}

    def values(name, step, env):
        if name == "episode_starts":
            return np.float32(step % 5 == 0 and env == 0)
        return np.float32(step * np.array(shown[name][env]) if name in shown else 0)

    check_steps(data, lambda _, step, env: image(PIXELS[step, env]), values, 2)
    ends = {part["env"]: part["ends"] for part in data["parts"]}
    assert ends[0] == [4, 9, 14]


def test_damage_of_a_buffer_of_sb3_that_has_wrapped_around(tmp_path):
    buffer = CompressedReplayBuffer(
        SIZE * N_ENVS, IMAGE, spaces.Discrete(4), device="cpu", n_envs=N_ENVS, codec="zstd:1"
    )
    fill(buffer, 70)
    buffer.save(tmp_path / "saved")
    (segment,) = (tmp_path / "saved").glob("*.segment")
    flip(segment, -30)
    data, _ = page_of(tmp_path / "saved", code=1)
    check_lost(data, lambda step, env: PIXELS[20 + step, env], "observations", "next_observations")


def check_lost(data, pixels, *names):
    """Check that lost steps are black and marked, and that others are as they were."""
    n_black = 0
    for part in data["parts"]:
        for k in range(part["n"]):
            found = [data["images"][part["images"][name][k]] for name in names]
            is_black = any(not of.any() for of in found)
            n_black += is_black
            assert is_black == (k in part["lost"])
            if not is_black:
                np.testing.assert_array_equal(found[0], image(pixels(part["first"] + k, part["env"])))
    assert n_black
    assert data["n_lost"]


def items(begin, n):
    numbers = torch.arange(begin, begin + n)
    flags = {
        "done": (numbers % 9 == 8)[:, None],
        "terminated": (numbers % 9 == 8)[:, None],
        "truncated": torch.zeros(n, 1, dtype=torch.bool),
    }
    pixels = torch.from_numpy(PIXELS.reshape(180, 3, 36, 36))
    following = TensorDict({"pixels": pixels[begin + 1 : begin + n + 1], **flags}, [n])
    return TensorDict({"pixels": pixels[begin : begin + n], "number": numbers, "next": following}, [n])


def saved_storage(folder, n=70, size=50, **options):
    buffer = TensorDictReplayBuffer(storage=CompressedStorage(size, **options))
    for begin in range(0, n, 10):
        buffer.extend(items(begin, 10))
    buffer.storage.decide()
    buffer.dumps(folder)
    return folder / "storage" / "snapshot"


def test_a_storage_of_torchrl_that_has_wrapped_around(tmp_path: Path) -> None:
    folder = saved_storage(tmp_path / "saved")
    data, _ = page_of(folder)
    flat, every = PIXELS.reshape(180, 3, 36, 36), items(20, 50)

    def values(name, step, _):
        return (20 + step) % 50 if name == "index" else every[tuple(name.split("."))][step].numpy()

    check_steps(data, lambda name, step, _: image(flat[20 + step + name.startswith("next")]), values, 1)
    assert data["flags"] == ["next.done", "next.terminated", "next.truncated"]
    (part,) = data["parts"]
    assert part["ends"] == [k for k in range(50) if (20 + k) % 9 == 8]


def test_a_storage_of_torchrl_with_several_axes(tmp_path: Path) -> None:
    rows = CompressedStorage(40, ndim=3)
    every = torch.stack([torch.stack([items(b, 20) for b in (a, a + 30)], 1) for a in (0, 60)], 1)
    rows.set(range(10), every[:10])
    rows.dumps(tmp_path / "saved")
    data, _ = page_of(next((tmp_path / "saved").rglob("generation-*.json")).parent)
    assert (data["n"], data["n_envs"]) == (10, 4)

    def of(name, step, env):
        return every[tuple(name.split("."))][step, env // 2, env % 2].numpy()

    check_steps(data, lambda *at: image(of(*at)), of, 4)
    for part in data["parts"]:
        steps = (0, 30, 60, 90)[part["env"]] + np.arange(10)
        assert part["ends"] == np.flatnonzero(steps % 9 == 8).tolist()


def test_damage_of_a_storage_of_torchrl_that_has_wrapped_around(tmp_path: Path) -> None:
    folder = saved_storage(tmp_path / "saved", codec="zstd:1")
    (segment,) = folder.glob("blocks-*.segment")
    flip(segment, -30)
    data, _ = page_of(folder, code=1)
    flat = PIXELS.reshape(180, 3, 36, 36)
    check_lost(data, lambda step, _: flat[20 + step], "pixels", "next.pixels")


@pytest.mark.slow
def test_what_torchrl_logs_is_not_among_what_inspect_prints(tmp_path: Path) -> None:
    folder = saved_storage(tmp_path / "saved")
    ran = run_obscodec("inspect", folder, "--html", tmp_path / "page.html")
    assert (ran.returncode, "torchrl" in ran.stderr) == (0, True)
    assert [line for line in ran.stdout.splitlines() if "Initialized" in line] == []
    assert ran.stdout.splitlines()[-1].startswith(f"The page is {tmp_path / 'page.html'}, ")
