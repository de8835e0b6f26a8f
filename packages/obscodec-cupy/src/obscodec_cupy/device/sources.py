"""The CUDA C++ of the kernels, each as one text that needs no other file."""

import re
from functools import cache
from importlib.resources import files
from typing import Final

from obscodec.statuses import STATUS_CODES

OPTIONS: Final = ("--std=c++17",)  # of the compiler
STATUSES: Final = {**STATUS_CODES, "BAD_ID": 32, "TOO_LONG": 34}  # what kernels report
_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


def read(name: str) -> str:
    """A file of ``obscodec_cupy/kernels`` as it is."""
    return files("obscodec_cupy").joinpath("kernels", name).read_text(encoding="utf-8")


@cache
def source(name: str, defines: tuple[tuple[str, int], ...] = ()) -> str:
    """A file of ``obscodec_cupy/kernels`` behind macros and statuses, with what it includes in place, each file once.

    Macros are part of the text, as CuPy compiles an empty file for each new tuple of options.
    """
    macros = "".join(f"#define {macro} {value}\n" for macro, value in defines)
    statuses = ", ".join(f"{status} = {code}" for status, code in STATUSES.items())
    return f"{macros}enum : unsigned {{ {statuses} }};\n{_inlined(name, set())}"


def _inlined(name: str, seen: set[str]) -> str:
    if name in seen:
        return ""
    seen.add(name)
    text = read(name)

    def included(match: re.Match[str]) -> str:
        following = text.count("\n", 0, match.start()) + 2  # lines keep their numbers, for the messages of compilers
        return f'{_inlined(match[1], seen)}\n#line {following} "{name}"'

    return f'#line 1 "{name}"\n{_INCLUDE.sub(included, text)}'
