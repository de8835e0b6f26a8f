"""Compiling kernels ahead: a few steps of each kind are run once, after which numba has their kernels on disk.

A package with kernels of its own names a function that runs them as an entry point of ``obscodec.warm``.
"""

import logging
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_option
from obscodec.arrays import TensorArray, WriteBuffer
from obscodec.buffers import Field, Prioritized, RingBuffer
from obscodec.codecs import decode, encode
from obscodec.columns import Column, ColumnReader
from obscodec.devices import codec
from obscodec.kernels import KernelNames, cache_folder, kernels_here
from obscodec.layout import Layout
from obscodec.runtime import n_processors, temporary_folder
from obscodec.snapshots import load, save
from obscodec.stores import AutoStore, FrameStore, compile_here

ENTRY_POINT_GROUP = "obscodec.warm"
_SIDE = 32  # of frames, which have the 1 KiB from which fields are compressed
_N_STEPS = 300
_BATCH = 32
_SPECS = "auto", "zstd:3", "delta-rle|lz4:6", "delta-rle|zstd:3"
_FEW_BYTES = 8 << 20


@dataclass(frozen=True)
class Warmed:
    """What :func:`warm` did.

    Attributes:
        kernels: name and types of each kernel that was compiled, loaded, or compiled and not kept.
        folder: where numba keeps compiled kernels; None if it can write nowhere, and nothing was done.
    """

    kernels: KernelNames
    folder: str | None
    seconds: float


def warm(processes: int | None, report: Callable[[int, int, float], None]) -> Warmed:
    """Compile the kernels of buffers, stores and codecs, so that later processes load them from disk.

    Args:
        processes: how many processes compile, each another part; None for one for each usable processor. Threads would
            not help: numba compiles one kernel at a time in a process.
        report: called as it begins, and when a part is done, with the number of parts that are done, that of all parts,
            and the seconds so far.
    """
    begin = time.perf_counter()
    parts = [*PARTS, *entry_points(group=ENTRY_POINT_GROUP)]
    folder, of_parts = cache_folder(), [kernels_here()]
    if folder is not None:
        n = min(as_option("processes", processes) or n_processors(), len(parts))
        with ProcessPoolExecutor(n, get_context("spawn")) as pool:
            jobs = [pool.submit(run_part, part) for part in parts]
            try:
                report(0, len(jobs), time.perf_counter() - begin)
                for n_done, job in enumerate(as_completed(jobs), 1):
                    job.result()  # or its error, before the other parts are done
                    report(n_done, len(jobs), time.perf_counter() - begin)
                of_parts = [job.result() for job in jobs]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    kernels = KernelNames(*(frozenset[tuple[str, str]]().union(*names) for names in zip(*of_parts, strict=True)))
    return Warmed(kernels, folder, time.perf_counter() - begin)


def run_part(part: Callable[[], None] | EntryPoint) -> KernelNames:
    """Run a part, and return the kernels that this process has so far."""
    logging.getLogger("obscodec").setLevel(logging.ERROR)  # who calls this knows that it compiles
    compile_here()
    run: Callable[[], None] = part.load() if isinstance(part, EntryPoint) else part
    run()
    return kernels_here()


def compile_buffers() -> None:
    """Run what compiles the kernels of buffers, for a process whose buffers wait for it."""
    compile_here()
    write_and_sample()
    read_and_decode()


def write_and_sample() -> None:
    """Fill ring buffers past their capacity with frames and with stacks of them, sample, save and load them."""
    frames = _frames()
    shape = frames.shape[2:]
    of_frames = {spec: Field(shape, np.uint8, spec) for spec in _SPECS}
    of_stacks = {"obs": Field((4, *shape), np.uint8), "next_obs": Field((4, *shape), np.uint8, shares="obs")}
    last = {"obs": Field((*shape, 4), np.uint8)}
    buffers = [
        RingBuffer(
            _N_STEPS // 2,
            {**of_frames, "done": Field((), np.bool_)},
            2,
            stack=dict.fromkeys(of_frames, 4),
            pad="edge",
            episode_end="done",
        ),
        RingBuffer(_N_STEPS // 2, of_stacks, 2),
        RingBuffer(_N_STEPS // 2, last, 2, max_bytes=_FEW_BYTES),
    ]
    for i in range(4, _N_STEPS):
        obs, next_obs = (frames[j - 4 : j].swapaxes(0, 1) for j in (i, i + 1))
        buffers[0].append(**dict.fromkeys(of_frames, frames[i]), done=np.full(2, i % 50 == 0))
        buffers[1].append(obs=obs, next_obs=next_obs)
        buffers[2].append(obs=np.moveaxis(obs, 1, -1))
        if i == _N_STEPS // 2:
            for buffer in buffers:
                buffer.decide()
    for buffer in buffers:
        buffer.sample(_BATCH, 0)
        with temporary_folder() as folder:
            save(buffer, folder)
            load(folder).sample(_BATCH, 0)


def read_and_decode() -> None:
    """Read stores that are empty, and use each codec that is compiled: what needs no kernel of writing."""
    frames = _frames()[:, 0]
    layout = Layout((4, *frames.shape[1:]), frames.dtype)
    store = FrameStore(layout, frame_stack=4)
    store.read(np.zeros(2, np.int64))
    with store.guard():
        store.release(np.zeros(2, np.int64))  # which waits
    plain = AutoStore(layout)
    array = TensorArray.zeros((1, 1), plain, WriteBuffer(plain, 1))
    for _ in range(2):  # the second one is compared with the first, which waits
        array[0] = np.ones((1, *layout.shape), layout.dtype)
    rewards = Column.zeros((2, 2), np.float32)
    ColumnReader([rewards]).take(np.zeros(2, np.int64), np.zeros(2, np.int64))
    priorities = Prioritized(2)
    priorities.advance(0, 2)
    priorities.update(priorities.sample(1), [1])
    decode(encode(frames[:4]))
    for spec in ("delta-rle", "delta-rle|lz4:4", "rle"):
        decode(encode(frames[:4], spec))
        codec(spec, Layout(frames.shape[1:], frames.dtype)).fit(frames)


def narrow_numbers() -> None:
    """Append images of floats to a ring buffer."""
    for dtype in (np.float32, np.float64):
        frames = (_frames() / 255).astype(dtype)
        buffer = RingBuffer(_N_STEPS, {"frame": Field(frames.shape[2:], dtype)}, 2)
        for i, frame in enumerate(frames):
            buffer.append(frame=frame)
            if i == _N_STEPS // 2:
                buffer.decide()
        buffer.sample(_BATCH, 0)


def images() -> None:
    """Encode and decode images with the codecs that are made for them, which no other part does."""
    compile_codec("pred")
    compile_codec("palette")


def compile_codec(spec: str) -> None:
    """Train a codec of images, encode and decode images of few and of many colours."""
    few = _frames()[:16].repeat(3, -1).reshape(16, 2, _SIDE, _SIDE, 3)
    many = np.arange(few.size, dtype=np.uint32).view(np.uint8)[::4].reshape(few.shape) * np.array([1, 3, 7], np.uint8)
    of_images = codec(spec, Layout(few.shape[1:], np.uint8)).fit(np.concatenate([few, many]))
    for x in (few[0], many[0]):
        of_images.decode(of_images.encode(x))


PARTS = write_and_sample, images, read_and_decode, narrow_numbers  # the longest first


def _frames() -> npt.NDArray[np.uint8]:
    """``u8[_N_STEPS, 2, _SIDE, _SIDE]``: frames of two environments, in which a pixel changes now and then."""
    changes = np.zeros((_N_STEPS, 2, _SIDE * _SIDE), np.uint8)
    for i in range(0, _N_STEPS, 2):
        changes[i, :, 7 * i % (_SIDE * _SIDE)] = 1 + i % 200
    return changes.cumsum(0, np.uint8).reshape(_N_STEPS, 2, _SIDE, _SIDE)
