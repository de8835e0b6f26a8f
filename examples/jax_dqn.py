# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "obscodec",
#     "ale-py==0.12.1",
#     "gymnasium==1.4.0",
#     "jax==0.10.2",
#     "numba==0.68.1",
#     "numpy==2.4.6",
#     "opencv-python-headless==5.0.0.93",
#     "typer==0.29.2",
# ]
#
# [tool.uv.sources]  # of this checkout
# obscodec = { path = "../packages/obscodec-core", editable = true }
# ///
"""DQN in plain JAX: a thread plays and appends, the main thread samples and learns.

uv run examples/jax_dqn.py --game Breakout --steps 20000

``sample(to="jax")`` returns arrays of JAX; on the CPU, images are decoded into the memory that JAX computes with.
"""

import threading
import time
from collections import deque
from functools import partial
from typing import Any

import ale_py
import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
import typer
from gymnasium.wrappers import AtariPreprocessing
from obscodec import Field, RingBuffer

STACK, GAMMA, RATE, STEPS_A_BATCH = 4, 0.99, 1e-3, 4
CONVOLUTIONS = ((8, STACK, 32, 4), (4, 32, 64, 2), (3, 64, 64, 1))  # size, channels in and out, stride
Network = dict[str, jax.Array]


def new_network(key: jax.Array, n_actions: int) -> Network:
    """Random weights."""
    shapes: dict[str, tuple[int, ...]] = {
        f"conv{k}": (size, size, into, out) for k, (size, into, out, _) in enumerate(CONVOLUTIONS)
    }
    shapes |= {"hidden": (7 * 7 * 64, 256), "values": (256, n_actions)}
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.normal(k, shape) * np.sqrt(2 / np.prod(shape[:-1]))
        for (name, shape), k in zip(shapes.items(), keys, strict=True)
    }


def values(network: Network, images: jax.Array) -> jax.Array:
    """The value of each action, ``f32[n, n_actions]``, for stacks ``u8[n, 4, 84, 84]``."""
    x = images.transpose(0, 2, 3, 1).astype(jnp.float32) / 255
    for k, (_, _, _, stride) in enumerate(CONVOLUTIONS):
        x = jax.lax.conv_general_dilated(
            x, network[f"conv{k}"], (stride, stride), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x)
    hidden = jax.nn.relu(x.reshape(len(x), -1) @ network["hidden"])
    return hidden @ network["values"]


@jax.jit
def learned(network: Network, target: Network, batch: dict[str, jax.Array]) -> tuple[Network, jax.Array]:
    """The network after one step down the gradient, and the loss."""

    def loss(network: Network) -> jax.Array:
        following = values(target, batch["next_obs"]).max(axis=1)
        wanted = batch["reward"] + batch["discount"] * ~batch["terminated"] * following
        chosen = jnp.take_along_axis(values(network, batch["obs"]), batch["action"][:, None], axis=1)[:, 0]
        return jnp.square(chosen - jax.lax.stop_gradient(wanted)).mean()

    found, gradient = jax.value_and_grad(loss)(network)
    return jax.tree.map(lambda weight, slope: weight - RATE * slope, network, gradient), found


class Actor(threading.Thread):
    """Plays with the newest network, and appends each step."""

    def __init__(self, env: Any, buffer: RingBuffer, network: Network, n_steps: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.env, self.buffer, self.network, self.n_steps = env, buffer, network, n_steps
        self.rng, self.seed = np.random.default_rng(seed), seed
        self.played: deque[Any] = deque(maxlen=1000)  # frames, to compare the buffer with
        self.act = jax.jit(lambda network, image: values(network, image[None]).argmax())

    def run(self) -> None:
        """Play ``n_steps``."""
        frame, _ = self.env.reset(seed=self.seed)
        stack = np.repeat(frame[None], STACK, axis=0)
        for step in range(self.n_steps):
            explores = self.rng.random() < max(0.05, 1 - 2 * step / self.n_steps)
            action = self.env.action_space.sample() if explores else int(self.act(self.network, stack))
            following, reward, terminated, truncated, _ = self.env.step(action)
            self.played.append(frame)
            self.buffer.append(
                obs=frame,
                next_obs=following,
                action=action,
                reward=np.sign(reward),
                terminated=terminated,
                truncated=truncated,
            )
            if terminated or truncated:
                frame, _ = self.env.reset()
                stack = np.repeat(frame[None], STACK, axis=0)
            else:
                frame, stack = following, np.concatenate([stack[1:], following[None]])


def main(game: str = "Breakout", steps: int = 20_000, batch_size: int = 32, seed: int = 0) -> None:
    """Play and learn, and print how fast that is and how much memory the buffer takes."""
    gym.register_envs(ale_py)
    env = AtariPreprocessing(gym.make(f"ALE/{game}-v5", frameskip=1))
    assert isinstance(env.action_space, gym.spaces.Discrete)
    frame = Field((84, 84), np.uint8)
    fields = {
        "obs": frame,
        "next_obs": Field((84, 84), np.uint8, next_of="obs"),
        "action": Field((), np.int32),
        "reward": Field((), np.float32),
        "terminated": Field((), np.bool_),
        "truncated": Field((), np.bool_),
    }
    ends = ("terminated", "truncated")
    buffer = RingBuffer(100_000, fields, stack={"obs": STACK}, pad="edge", episode_end=ends)
    network = target = new_network(jax.random.key(seed), int(env.action_space.n))
    actor = Actor(env, buffer, network, steps, seed)
    draw = partial(buffer.sample, batch_size, np.random.default_rng(seed), n_step=3, gamma=GAMMA, to="jax")
    began, n_learned, loss = time.perf_counter(), 0, jnp.zeros(())
    actor.start()
    while actor.is_alive():
        if len(buffer) < max(batch_size, STEPS_A_BATCH * n_learned):
            time.sleep(0.001)
            continue
        network, loss = learned(network, target, draw())
        loss.block_until_ready()  # else the actor's calls wait in a long queue
        actor.network, n_learned = network, n_learned + 1
        if n_learned % 500 == 0:
            target = network
    seconds = time.perf_counter() - began
    assert len(buffer) == steps
    buffer.decide()
    newest = buffer.take(buffer.indices[-len(actor.played) :], to="jax")["obs"][:, -1]
    if not np.array_equal(newest, np.stack(actor.played)):
        raise AssertionError("a frame is not what was played")
    print(f"{steps / seconds:.0f} steps and {n_learned / seconds:.0f} batches a second, loss {float(loss):.4f}")
    print(buffer.stats())


if __name__ == "__main__":
    typer.run(main)
