"""Kernels compiled by g++, each in a library of its own."""

import atexit
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from obscodec_cupy.device.device import Kernel
from obscodec_cupy.device.sources import source

from cuda_on_cpu.regions import Regions

HERE = Path(__file__).parent
# -fno-gnu-unique: otherwise the libraries would share static variables of the same name. -U_FORTIFY_SOURCE: the g++ of
# some distributions defines it, and longjmp then ends the process where it leaves the stack of a fiber.
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-fno-gnu-unique", "-fno-strict-aliasing"),
    "-U_FORTIFY_SOURCE",
)
WARNINGS = ("-Wall", "-Werror", "-Wno-unused-function", "-Wno-unused-variable", "-Wno-unknown-pragmas")
COMPILE = ("g++", *FLAGS, *WARNINGS, f"-I{HERE}")
RUNTIME = ("fibers.cpp", "memory.cpp")
INSTRUMENTED = ("-fsanitize=thread",)  # kernels, but not the runtime
_LAUNCHING = threading.Lock()  # the fibers of a library are one set, for threads of several devices, too
_STACKS = np.empty((1024, 64 << 10), np.uint8)  # of the fibers of all libraries, see MOST_THREADS and STACK_NBYTES
_DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")


class Size(NamedTuple):
    """The size of a launch."""

    n_blocks: int
    n_threads: int
    shared_nbytes: int


class KernelFailed(AssertionError):
    """A kernel did what CUDA does not allow."""


class Compiled:
    """A kernel that can be launched on the CPU.

    Attributes:
        parameters: the dtypes of its parameters; an address is ``u8``.
    """

    def __init__(self, kernel: Kernel, path: Path) -> None:
        self.kernel = kernel
        self._path = str(path)
        library = ctypes.CDLL(self._path)
        text = ctypes.create_string_buffer(1024)
        library.cuda_parameters(text)
        self.parameters = [np.dtype(name) for name in text.value.decode().split()]
        self._launch = library.cuda_launch
        self._launch.restype = ctypes.c_char_p
        address = ctypes.c_void_p
        self._launch.argtypes = [address, *[ctypes.c_uint] * 3, ctypes.c_uint64, address, address]

    def check(self, arguments: tuple[np.generic, ...]) -> None:
        """Refuse arguments of other types than the kernel has, which a GPU would take without a word."""
        given = [argument.dtype for argument in arguments]
        if given != self.parameters:
            names = [" ".join(str(dtype) for dtype in dtypes) for dtypes in (self.parameters, given)]
            raise KernelFailed(f"{self.kernel.name} takes ({names[0]}), got ({names[1]})")

    def launch(self, size: Size, arguments: tuple[np.generic, ...], seed: int, regions: Regions) -> None:
        """Run all thread blocks, in an order and with a schedule drawn from ``seed``; 0 is the plain order."""
        values = [np.array(argument) for argument in arguments]
        pointers = np.array([value.ctypes.data for value in values], np.uint64)
        with _LAUNCHING:
            table = ctypes.byref(regions.table())
            failure = self._launch(pointers.ctypes.data, *size, seed, table, _STACKS.ctypes.data)
        if failure is not None:
            raise KernelFailed(f"{self.kernel.source}, {self.kernel.name}: {self._located(failure.decode())}")

    def _located(self, text: str) -> str:
        """An error with the lines of the source in place of an address of the library."""
        text, _, address = text.partition("@")
        if not address:
            return text
        command = ["addr2line", "-i", "-s", "-e", self._path, hex(int(address, 16) - 1)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        own = [line.partition(" ")[0] for line in lines if not line.startswith(("cuda.h:", "entry.h:"))]
        return f"{text}at {', from '.join(own)}"


@cache
def _folder() -> Path:
    """For compiled kernels: CUDA_ON_CPU_FOLDER, which processes share and which stays, or one of this process."""
    if shared := os.environ.get("CUDA_ON_CPU_FOLDER"):
        Path(shared).mkdir(parents=True, exist_ok=True)
        return Path(shared)
    folder = Path(tempfile.mkdtemp(prefix="cuda_on_cpu_"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, maker: int) -> None:
    """Remove the folder when its maker ends; a forked process has this exit handler too."""
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def as_cpp(text: str, name: str) -> str:
    """The text of a kernel as C++ for g++."""
    text = _DYNAMIC.sub(r"static \1* const \2 = reinterpret_cast<\1*>(cuda::dynamic);", text)
    return f'#include "cuda.h"\n#define CUDA_KERNEL {name}\nnamespace {{\n{text}\n}}\n#include "entry.h"\n'


@cache
def _compiler() -> tuple[str, ...]:
    """The version of g++, and all that is compiled with a kernel."""
    version = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    return version, *(path.read_text(encoding="utf-8") for path in sorted([*HERE.glob("*.h"), *HERE.glob("*.cpp")]))


def _name(code: str) -> str:
    """A name for what is made of some code: another one where anything else is made."""
    return hashlib.sha256(repr((code, COMPILE, INSTRUMENTED, RUNTIME, _compiler())).encode()).hexdigest()[:24]


@cache
def compiled(kernel: Kernel, text: str | None = None) -> Compiled:
    """A kernel, compiled once for each text; ``text`` in place of its file is for mutations."""
    code = as_cpp(source(kernel.source, kernel.defines) if text is None else text, kernel.name)
    library = _folder() / f"{_name(code)}.so"
    if not library.exists():
        path = library.with_suffix(f".{os.getpid()}.cpp")
        path.write_text(code, encoding="utf-8")
        made = str(path.with_suffix(".o"))
        _run([*COMPILE, *INSTRUMENTED, "-c", "-o", made, str(path)])
        # The attribute for this is without effect on variables of templates.
        _run(["objcopy", "--rename-section", ".bss=cuda_shared,alloc,load,contents,data", made])
        # Without the library of -fsanitize=thread: memory.cpp is in its place.
        _make(library, ["g++", "-shared", made, *_runtime()])
        path.unlink()
        Path(made).unlink()
    return Compiled(kernel, library)


def forget() -> None:
    """Compile kernels anew, whose source has changed."""
    source.cache_clear()
    compiled.cache_clear()


@cache
def _runtime() -> tuple[str, ...]:
    objects = [(HERE / name, _folder() / f"{Path(name).stem}.{_name('')}.o") for name in RUNTIME]
    for path, compiled_path in objects:
        if not compiled_path.exists():
            _make(compiled_path, [*COMPILE, "-O2", "-c", str(path)])
    return tuple(str(compiled_path) for _, compiled_path in objects)


def _make(path: Path, command: list[str]) -> None:
    """Write a file by a command that takes ``-o``, at once, since another process may make and use the same file."""
    part = path.with_suffix(f".{os.getpid()}.part")
    _run([*command, "-o", str(part)])
    part.rename(path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"g++ refuses a kernel:\n{done.stderr}")
