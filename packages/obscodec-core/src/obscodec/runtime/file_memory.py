"""Memory in files: bytes that are read as memory, and lie on a disk."""

import ctypes
import mmap
import os
import tempfile
from typing import BinaryIO

import numpy as np

from obscodec.errors import SnapshotError
from obscodec.runtime.disk import folder_path
from obscodec.segments import Bytes


def in_file(content: Bytes, folder: str) -> Bytes:
    """A copy of ``content``, ``u8[nbytes]`` of one byte or more, in a file of its own in a folder.

    The file has no name: a killed process leaves nothing behind, and the disk has its space back when the last array
    that views the copy goes. Pages that are read are copies of the disk, which the system drops when it needs memory.

    Raises:
        OSError: the disk is full or refuses, or there is no such folder; the text says what to do.
    """
    try:
        with tempfile.TemporaryFile(dir=folder_path(folder), buffering=0) as file:
            rest = content.data
            while rest:
                rest = rest[file.write(rest) :]
            return np.asarray(_FileMemory(file.fileno(), len(content)))
    except OSError as error:
        text = f"{len(content)} bytes can't be moved to a file in {folder!r}: {error.strerror}"
        raise OSError(error.errno, f"{text}; make room there, or choose another folder") from error


def is_in_file(memory: Bytes) -> bool:
    """Whether :func:`in_file` returned this array."""
    return isinstance(memory.base, _FileMemory)


class MappedFile(mmap.mmap):
    """The first bytes of a file that has a name, as memory; writes to it are private.

    The system ends a process that reads where such a file does not reach any more (SIGBUS). So whoever reads the memory
    calls :meth:`check` first. A file that is shortened between the two still ends the process.
    """

    name: str

    @classmethod
    def of(cls, file: BinaryIO, name: str, nbytes: int) -> Bytes:
        """The first ``nbytes`` of an open file, which has as many, ``u8[nbytes]``."""
        made = cls(file.fileno(), nbytes, access=mmap.ACCESS_COPY)
        made.name = name
        return np.frombuffer(made, np.uint8)

    @staticmethod
    def behind(memory: Bytes) -> "MappedFile | None":
        """The file that a part of its memory is of, None if it is other memory."""
        base: object = memory
        while isinstance(base, np.ndarray):
            base = base.base
        of = base.obj if isinstance(base, memoryview) else base
        return of if isinstance(of, MappedFile) else None

    def check(self) -> None:
        """Make sure that the file still reaches to the end of the memory; it takes half a microsecond."""
        if (nbytes := self.size()) < len(self):
            raise SnapshotError(
                f"{self.name} has {nbytes} bytes of the {len(self)} that load(mmap=True) reads in place: somebody has "
                "shortened it, and what it had is lost. Load a whole copy of the snapshot, or load without mmap: then "
                "nobody needs the files any more"
            )


class _FileMemory:
    """A private mapping of a file.

    ``mmap.mmap`` would keep the file open, and a process has few open files. Windows has no other way.
    """

    def __init__(self, file: int, nbytes: int) -> None:
        address = self._map_by_python(file, nbytes) if _libc is None else self._map(_libc, file, nbytes)
        interface = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (address, False)}
        self.__array_interface__ = interface  # numpy holds this object as long as an array views its memory

    def _map_by_python(self, file: int, nbytes: int) -> int:
        self._mapping = mmap.mmap(file, nbytes, access=mmap.ACCESS_COPY)
        memory = np.frombuffer(self._mapping, np.uint8)
        return int(memory.ctypes.data)

    def _map(self, libc: ctypes.CDLL, file: int, nbytes: int) -> int:
        address: int = libc.mmap(None, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE, file, 0)
        if address == _FAILED:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._unmap, self._mapped = libc.munmap, (address, nbytes)
        libc.madvise(address, nbytes, mmap.MADV_RANDOM)  # read no neighbours: streams are read in any order
        return address

    def __del__(self) -> None:
        if hasattr(self, "_mapped"):
            self._unmap(*self._mapped)


def _new_libc() -> ctypes.CDLL | None:
    """The functions of C that map files; None on Windows."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return libc


_libc = _new_libc()
_FAILED = ctypes.c_void_p(-1).value
