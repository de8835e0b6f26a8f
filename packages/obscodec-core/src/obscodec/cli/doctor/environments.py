"""Environments of Gymnasium, with wrappers, as a source of data."""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from obscodec.buffers import MIN_COMPRESSED_NBYTES, n_envs_of, play
from obscodec.cli.doctor.played import Played
from obscodec.cli.doctor.sources import Content, Request, module_of_user
from obscodec.errors import MissingPackage, SourceError
from obscodec.installing import optional
from obscodec.recordings import Array, told

_FOR_ATARI = "the wrapper atari is for Atari games, such as ALE/Pong-v5: leave it out, or name another wrapper"


def steps_of(request: Request) -> Content:
    """The parts of transitions with random actions, by name; without next observations that share frames."""
    env, played = _made(request)
    steps: dict[str, list[Array]] = {}
    try:
        n_envs = n_envs_of(env)
        for step in play(env, -(-request.n // n_envs), request.seed):
            for name, array in step.items():
                if not name.startswith("next") or array[0].nbytes < MIN_COMPRESSED_NBYTES:  # else it shares frames
                    steps.setdefault(name, []).append(array)
            request.advance(n_envs)
    finally:
        env.close()
    items = {name: np.concatenate(np.stack(arrays, axis=1)) for name, arrays in steps.items()}  # by environment
    said = "The actions were random: agents that play well may see more, which takes more memory."
    return Content(items, {}, (said,), played=played)


def _made(request: Request) -> tuple[Any, Played]:
    """The environment, in its wrappers, and the lines that make it."""
    gym = optional("gymnasium")
    imports, registers, lines = ["import gymnasium as gym"], list[str](), list[str]()
    if _is_atari(request.source):
        gym.register_envs(optional("ale_py"))
        imports, registers = ["import ale_py", *imports], ["gym.register_envs(ale_py)"]
    of_module, _, name = request.source.partition(":")
    is_in_module = bool(name) and ":" not in name
    place = module_of_user(of_module) if is_in_module else None  # Gymnasium's error says less
    options: dict[str, object] = {}
    if "atari" in request.wrappers and "NoFrameskip" not in request.source:
        options["frameskip"] = 1  # the wrapper skips frames
    if "pixels" in request.wrappers:
        options["render_mode"] = "rgb_array"
    if make := callable(getattr(place, name, None)) and name not in gym.registry:
        imports.append(f"import {of_module}")
        made = f"{of_module}.{name}()"
    else:
        made = f"gym.make({', '.join([repr(request.source), *(f'{of}={to!r}' for of, to in options.items())])})"
    try:
        env = getattr(place, name)() if make else gym.make(request.source, **options)
    except Exception as error:  # of Gymnasium, or of an environment, whose constructor may do anything
        if make:
            raise SourceError(f"{request.source}() can't make an environment: {told(error)}") from error
        reason = f"{told(error)}{_hint(request, gym)}"
        raise SourceError(f"{request.source!r} is no file, and Gymnasium can't make it: {reason}") from error
    if hasattr(env, "num_envs") and (request.wrappers or request.stack > 1 or request.n_envs > 1):
        raise SourceError(
            f"{request.source} makes a vector of {env.num_envs} environments: wrap, stack and count them there, and "
            "leave --wrapper, --stack and --n-envs out"
        )
    lines.append(f"env = {made}")
    wrappers = optional("gymnasium.wrappers")
    for name in request.wrappers:
        env, call = _wrapped(env, name, wrappers)
        lines.append(f"env = {call}")
        if ":" in name:
            imports.append(f"import {name.rpartition(':')[0]}")
    if request.stack > 1:
        env = wrappers.FrameStackObservation(env, request.stack)
        lines.append(f"env = gym.wrappers.FrameStackObservation(env, {request.stack})")
    return env, Played.of(env, imports, registers, lines, getattr(env, "num_envs", request.n_envs))


def _hint(request: Request, gym: Any) -> str:
    """What the user may have meant, as the end of a sentence."""
    if not _is_atari(request.source):
        with suppress(MissingPackage):
            gym.register_envs(optional("ale_py"))
        meant = f"ALE/{re.sub(r'-v[0-9]+$', '', request.source)}-v5"
        if meant in gym.registry:
            return f"; did you mean {meant}?"
        if "atari" in request.wrappers and request.source in gym.registry:
            return "; " + _FOR_ATARI
    return ""


def _is_atari(source: str) -> bool:
    return "ALE/" in source or "NoFrameskip" in source


def _wrapped(env: Any, name: str, wrappers: Any) -> tuple[Any, str]:
    """An environment in a wrapper, and the call of this in Python."""
    wrapper, call = _wrapper(name, wrappers)
    try:
        return wrapper(env), call
    except Exception as error:  # the wrapper may be anybody's
        remedy = (
            "if it needs arguments, write a function that takes an environment and returns it wrapped, and name it "
            "module:function"
        )
        remedy = _FOR_ATARI if name == "atari" else remedy
        raise SourceError(f"the wrapper {name!r} can't be applied: {told(error)}; {remedy}") from error


def _wrapper(name: str, wrappers: Any) -> tuple[Callable[[Any], Any], str]:
    if name == "atari":
        optional("cv2")
        name = "AtariPreprocessing"
    if name == "pixels":
        call = "gym.wrappers.AddRenderObservation(env, render_only=True)"
        return partial(wrappers.AddRenderObservation, render_only=True), call
    of_module, _, of_class = name.rpartition(":")
    place = module_of_user(of_module) if of_module else wrappers
    if not hasattr(place, of_class):
        raise SourceError(
            f"there is no wrapper {name!r}: name 'atari', 'pixels', a class of gymnasium.wrappers, or module:Class"
        )
    return getattr(place, of_class), f"{of_module or 'gym.wrappers'}.{of_class}(env)"
