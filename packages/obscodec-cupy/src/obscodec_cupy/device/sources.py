"""The CUDA C++ of the kernels, each as one text that needs no other file."""

import re
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)
_ONCE = re.compile(r"^#pragma once\n", re.MULTILINE)


def read(name: str) -> str:
    """A file of ``obscodec_cupy/kernels`` as it is."""
    return files("obscodec_cupy").joinpath("kernels", name).read_text(encoding="utf-8")


@cache
def source(name: str) -> str:
    """A file of ``obscodec_cupy/kernels``, with what it includes in place, each file once."""
    return _inlined(name, set())


def options(defines: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """What a compiler is told besides the device."""
    return ("--std=c++17", *(f"-D{name}={value}" for name, value in defines))


def _inlined(name: str, seen: set[str]) -> str:
    if name in seen:
        return ""
    seen.add(name)
    text = read(name)

    def included(match: re.Match[str]) -> str:
        following = text.count("\n", 0, match.start()) + 2
        return f'{_inlined(match[1], seen)}\n#line {following} "{name}"'

    # The lines keep their numbers, for the messages of compilers.
    return f'#line 1 "{name}"\n{_INCLUDE.sub(included, _ONCE.sub(chr(10), text))}'
