"""Environments of Gymnasium, with wrappers, as a source of data."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from obscodec.buffers import MIN_COMPRESSED_NBYTES, random_steps
from obscodec.cli.doctor.sources import Array, Content, Request, SourceError, module, module_of_user, told

_FOR_ATARI = "the wrapper atari is for Atari games, such as ALE/Pong-v5: leave it out, or name another wrapper"


def steps_of(request: Request) -> Content:
    """The parts of transitions with random actions, by name; without next observations that share frames."""
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
    return Content({name: np.stack(arrays) for name, arrays in steps.items()}, {})


def _made(request: Request) -> Any:
    """The environment, in its wrappers."""
    gym = module("gymnasium")
    if _is_atari(request.source):
        gym.register_envs(module("ale_py"))
    of_module, _, name = request.source.partition(":")
    if name and ":" not in name:
        module_of_user(of_module)  # Gymnasium's error says less
    options: dict[str, object] = {}
    if "atari" in request.wrappers and "NoFrameskip" not in request.source:
        options["frameskip"] = 1  # the wrapper skips frames
    if "pixels" in request.wrappers:
        options["render_mode"] = "rgb_array"
    try:
        env = gym.make(request.source, **options)
    except Exception as error:  # of Gymnasium, or of an environment, whose constructor may do anything
        reason = f"{told(error)}{_hint(request, gym)}"
        raise SourceError(f"{request.source!r} is no file, and Gymnasium can't make it: {reason}") from error
    wrappers = module("gymnasium.wrappers")
    for name in request.wrappers:
        env = _wrapped(env, name, wrappers)
    return wrappers.FrameStackObservation(env, request.stack) if request.stack > 1 else env


def _hint(request: Request, gym: Any) -> str:
    """What the user may have meant, as the end of a sentence."""
    if not _is_atari(request.source):
        with suppress(SourceError):
            gym.register_envs(module("ale_py"))
        meant = f"ALE/{re.sub(r'-v[0-9]+$', '', request.source)}-v5"
        if meant in gym.registry:
            return f"; did you mean {meant}?"
        if "atari" in request.wrappers and request.source in gym.registry:
            return "; " + _FOR_ATARI
    return ""


def _is_atari(source: str) -> bool:
    return "ALE/" in source or "NoFrameskip" in source


def _wrapped(env: Any, name: str, wrappers: Any) -> Any:
    wrapper = _wrapper(name, wrappers)
    try:
        return wrapper(env)
    except Exception as error:  # the wrapper may be anybody's
        remedy = (
            "if it needs arguments, write a function that takes an environment and returns it wrapped, and name it "
            "module:function"
        )
        remedy = _FOR_ATARI if name == "atari" else remedy
        raise SourceError(f"the wrapper {name!r} can't be applied: {told(error)}; {remedy}") from error


def _wrapper(name: str, wrappers: Any) -> Callable[[Any], Any]:
    if name == "atari":
        module("cv2")
        return wrappers.AtariPreprocessing  # type: ignore[no-any-return]
    if name == "pixels":
        return partial(wrappers.AddRenderObservation, render_only=True)
    of_module, _, of_class = name.rpartition(":")
    place = module_of_user(of_module) if of_module else wrappers
    if not hasattr(place, of_class):
        raise SourceError(
            f"there is no wrapper {name!r}: name 'atari', 'pixels', a class of gymnasium.wrappers, or module:Class"
        )
    return getattr(place, of_class)  # type: ignore[no-any-return]
