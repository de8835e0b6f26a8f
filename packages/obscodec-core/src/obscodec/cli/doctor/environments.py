"""Environments of Gymnasium, with wrappers, as a source of data."""

from typing import Any

import numpy as np

from obscodec.buffers import MIN_COMPRESSED_NBYTES, random_steps
from obscodec.cli.doctor.sources import Array, Request, SourceError, module


def steps_of(request: Request) -> dict[str, Array]:
    """The parts of transitions with random actions, by name; without next observations that share frames.

    Raises:
        SourceError: there is no such environment or wrapper, or a package is not installed.
    """
    env = _made(request)
    steps: dict[str, list[Array]] = {}
    try:
        for step in random_steps(env, request.n, request.seed):
            for name, array in step.items():
                if not name.startswith("next") or array[0].nbytes < MIN_COMPRESSED_NBYTES:  # else it shares frames
                    steps.setdefault(name, []).append(array[0])
            request.advance(1)
    finally:
        env.close()
    return {name: np.stack(arrays) for name, arrays in steps.items()}


def _made(request: Request) -> Any:
    """The environment, in its wrappers."""
    gym = module("gymnasium")
    if "ALE/" in request.source or "NoFrameskip" in request.source:
        gym.register_envs(module("ale_py"))
    options: dict[str, object] = {}
    if "atari" in request.wrappers and "NoFrameskip" not in request.source:
        options["frameskip"] = 1  # the wrapper skips frames
    if "pixels" in request.wrappers:
        options["render_mode"] = "rgb_array"
    try:
        env = gym.make(request.source, **options)
    except (gym.error.Error, ImportError) as error:
        raise SourceError(f"{request.source!r} is no file, and Gymnasium can't make it: {error}") from None
    wrappers = module("gymnasium.wrappers")
    for name in request.wrappers:
        env = _wrapped(env, name, wrappers)
    return wrappers.FrameStackObservation(env, request.stack) if request.stack > 1 else env


def _wrapped(env: Any, name: str, wrappers: Any) -> Any:
    if name == "atari":
        module("cv2")
        return wrappers.AtariPreprocessing(env)
    if name == "pixels":
        return wrappers.AddRenderObservation(env, render_only=True)
    of_module, _, of_class = name.rpartition(":")
    place = module(of_module) if of_module else wrappers
    if not hasattr(place, of_class):
        raise SourceError(
            f"there is no wrapper {name!r}: name 'atari', 'pixels', a class of gymnasium.wrappers, or module:Class"
        )
    return getattr(place, of_class)(env)
