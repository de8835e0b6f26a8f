"""The CUDA C++ of the kernels, each as one text that needs no other file."""

import os
import re
from functools import cache
from importlib.resources import files
from typing import Final

OPTIONS: Final = ("--std=c++17",)  # of the compiler
_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)
_ONCE = re.compile(r"^#pragma once\n", re.MULTILINE)


def read(name: str) -> str:
    """A file of ``obscodec_cupy/kernels`` as it is."""
    return files("obscodec_cupy").joinpath("kernels", name).read_text(encoding="utf-8")


@cache
def source(name: str, defines: tuple[tuple[str, int], ...] = ()) -> str:
    """A file of ``obscodec_cupy/kernels`` behind its macros, with what it includes in place, each file once.

    Macros are part of the text, as CuPy compiles an empty file for each new tuple of options. ``NO_ASYNC`` is one of
    them while the environment has ``OBSCODEC_CUPY_NO_ASYNC=1``: kernels then copy through registers.
    """
    flags = (("NO_ASYNC", 1),) if os.environ.get("OBSCODEC_CUPY_NO_ASYNC") == "1" else ()
    macros = "".join(f"#define {macro} {value}\n" for macro, value in (*defines, *flags))
    return macros + _inlined(name, set())


def _inlined(name: str, seen: set[str]) -> str:
    if name in seen:
        return ""
    seen.add(name)
    text = _ONCE.sub("\n", read(name))  # lines keep their numbers, for the messages of compilers

    def included(match: re.Match[str]) -> str:
        following = text.count("\n", 0, match.start()) + 2
        return f'{_inlined(match[1], seen)}\n#line {following} "{name}"'

    return f'#line 1 "{name}"\n{_INCLUDE.sub(included, text)}'
