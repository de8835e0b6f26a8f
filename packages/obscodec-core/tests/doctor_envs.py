"""Small environments for the doctor, as modules of users have them: functions that make one, or a vector."""

from typing import ClassVar

import gymnasium as gym
import numpy as np
from gymnasium import spaces

IMAGE = spaces.Box(0, 255, (40, 40, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,))
BOX = spaces.Box(-1, 1, (2,))


class Moving(gym.Env):
    """Episodes of 7 steps in which a square moves; the vectors of observations count the steps."""

    def __init__(self, observation_space=IMAGE, action_space=spaces.Discrete(3)):  # noqa: B008
        self.observation_space, self.action_space = observation_space, action_space
        self.n = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return self._observed(self.observation_space), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.n += 1
        return self._observed(self.observation_space), 1.0, self.n == 7, False, {}

    def _observed(self, space):
        if isinstance(space, spaces.Dict):
            return {key: self._observed(of) for key, of in space.spaces.items()}
        if isinstance(space, spaces.Tuple):
            return tuple(map(self._observed, space.spaces))
        observed = np.zeros(space.shape, space.dtype)
        if len(space.shape) > 1:
            observed[..., 4 : 4 + self.n, :] = space.high.flat[0]
        else:
            observed[:] = self.n / 10
        return observed


def images():
    return Moving()


def boxes():
    return Moving(action_space=BOX)


def unbounded():
    return Moving(action_space=spaces.Box(-np.inf, np.inf, (2,)))


def multi():
    return Moving(action_space=spaces.MultiDiscrete([2, 3]))


def small():
    """Images that are too small for the network of SB3."""
    return Moving(spaces.Box(0, 255, (20, 20, 3), np.uint8))


def grey():
    return Moving(spaces.Box(0, 255, (40, 40), np.uint8), BOX)


def planes():
    """Images of floats."""
    return Moving(spaces.Box(0, 1, (20, 20, 3)))


def dictionaries():
    return Moving(spaces.Dict(image=IMAGE, vector=VECTOR), BOX)


def two_cameras():
    depth = spaces.Box(0, 255, (48, 48, 1), np.uint8)
    return Moving(spaces.Dict(depth=depth, image=IMAGE, vector=VECTOR))


def two_orders():
    """Images with the channels first, and others with the channels last, which SB3 refuses."""
    return Moving(spaces.Dict(depth=spaces.Box(0, 255, (1, 48, 48), np.uint8), image=IMAGE))


def small_in_dictionary():
    return Moving(spaces.Dict(image=spaces.Box(0, 255, (20, 20, 3), np.uint8), vector=VECTOR))


def nested():
    return Moving(
        spaces.Dict(robot=spaces.Dict(image=IMAGE), vector=VECTOR), spaces.Dict(arm=BOX, hand=spaces.Discrete(2))
    )


def tuples():
    return Moving(spaces.Tuple([IMAGE, VECTOR]))


def vectors():
    return Moving(VECTOR)


class Drawn(Moving):
    """Vectors, beside which an image is drawn."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 1}
    render_mode = "rgb_array"

    def render(self):
        return self._observed(IMAGE)


def drawn():
    return Drawn(VECTOR)


def dark(env):
    """A wrapper."""
    return gym.wrappers.TransformReward(env, lambda reward: reward / 2)


def vec_env():
    from stable_baselines3.common.env_util import make_vec_env

    return make_vec_env(boxes, n_envs=3)


def stacked_vec_env():
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack

    return VecFrameStack(make_vec_env(two_cameras, n_envs=2), 3)


def gym_vector():
    return gym.vector.SyncVectorEnv([images] * 2)


def same_step_vector():
    return gym.vector.SyncVectorEnv([images] * 2, autoreset_mode=gym.vector.AutoresetMode.SAME_STEP)


def broken():
    raise RuntimeError("no display")
