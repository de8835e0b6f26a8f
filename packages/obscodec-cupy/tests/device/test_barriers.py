"""Every barrier of the kernels is needed: without it, some data is found to be in a race, or comes out wrong."""

import re
from collections.abc import Callable, Iterator
from importlib.resources import files

import numpy as np
import pytest
from _pytest.mark.structures import ParameterSet
from cuda_on_cpu.build import forget
from cuda_on_cpu.device import SimulatedDevice
from mirrors import DeviceTables, launch
from obscodec import CorruptStream, FrameStack, FrameStore, Layout
from obscodec_cupy.device import sources
from obscodec_cupy.frames.gather import Gather, Source
from side_by_side import Pair

Scenario = Callable[[pytest.MonkeyPatch], None]
Harm = Callable[[bytes], bytes]

BARRIER = re.compile(r"__sync(?:threads(?:_or|_and|_count)?|warp)\(")
NO_BARRIER = "static inline int no_barrier(int own = 0) { return own; }\n#line 1\n"
NBYTES = 60_000  # of a frame, so that its runs and its literals do not fit into what is loaded at a time
FEW_NBYTES = 9_000  # of one of which five fit into shared memory, so that a gather jumps to those that are wanted


def moving(n: int) -> np.ndarray:
    """Frames of which the next one differs in thousands of short runs, in a long one, or in a few bytes."""
    rng = np.random.default_rng(0)
    frames = np.zeros((n, NBYTES), np.uint8)
    for i in range(1, n):
        frames[i] = frames[i - 1]
        changed = [slice(i, None, 9), slice(i * 1000, i * 1000 + 30_000), slice(300 * i, 300 * i + 2)][i % 3]
        frames[i, changed] = rng.integers(256, size=len(frames[i, changed]))
    return frames


def jumping(n: int) -> np.ndarray:
    """Small frames of which the next one differs in some short runs, in a long one, too, or everywhere."""
    rng = np.random.default_rng(0)
    frames = np.zeros((n, FEW_NBYTES), np.uint8)
    for i in range(1, n):
        frames[i] = frames[i - 1]
        for begin in rng.integers(FEW_NBYTES, size=40):
            frames[i, begin : begin + rng.integers(1, 40)] += 1
        if i % 3 == 1:
            frames[i, 2000:7000] += rng.integers(1, 256, size=5000).astype(np.uint8)
        elif i == 8:
            frames[i] += 1
    return frames


def crowded(n: int) -> np.ndarray:
    """Small frames of which the next one differs in so many runs that a gather does not jump."""
    return (np.arange(FEW_NBYTES) % 30 == 0) * np.arange(1, n + 1, dtype=np.uint8)[:, None]


def noise(n: int) -> np.ndarray:
    """Small frames that are stored as they are, since patches would be larger."""
    return np.random.default_rng(0).integers(256, size=(n, FEW_NBYTES), dtype=np.uint8)


def a_codec(spec: str) -> Scenario:
    def run(_: pytest.MonkeyPatch) -> None:
        frames = moving(5).reshape(1, -1)
        pair = Pair(SimulatedDevice(seed=1), spec, Layout((5, NBYTES), np.uint8))
        pair.check(frames)
        stream = pair.encode_on_cpu(frames)[0].tobytes()
        for at in (40, len(stream) // 8, len(stream) // 4):
            pair.compare(stream[:at] + b"\xff\xff\x7f" + stream[at + 3 :])

    return run


def a_gather(
    codec: str,
    dtype: str | None = None,
    harm: Harm = bytes,
    play: Callable[[int], np.ndarray] = moving,
    depth: int = 1,
) -> Scenario:
    def run(_: pytest.MonkeyPatch) -> None:
        device, played = SimulatedDevice(seed=1), play(11 + depth)
        stack, block_frames = FrameStack(depth), 1 if codec == "rle" else 3 if play is moving else 8
        played = np.stack([played[i : i + depth] for i in range(12)])
        layout = Layout(played.shape[1:], np.uint8)
        store = FrameStore(layout, frame_stack=stack, codec=codec, block_frames=block_frames)
        ids = device.upload(store.append(played).astype(np.int32))
        store.stats()  # which stores full blocks
        mirror = DeviceTables(device, store)
        mirror = DeviceTables(device, store, [harm(stream) for stream in mirror.streams])
        gather = Gather(device, layout, block_frames, frame_stack=stack, codec=codec, dtype=dtype)
        outs = [device.empty((5, *layout.shape), np.uint8 if dtype is None else np.float16) for _ in range(2)]
        sources = [Source(ids[field:], out) for field, out in enumerate(outs)]
        places = np.array([5, 2, 8, 9, 0])  # two frames of one block, or one frame each of two blocks
        scratch = device.empty((gather.scratch_nbytes(5),), np.uint8)
        launch(gather, mirror.header, 5, sources, device.upload(places), scratch)
        mirror.check()
        for field, out in enumerate(outs):
            np.testing.assert_array_equal(device.download(out), played[places + field])

    return run


def in_a_run(stream: bytes) -> bytes:
    return stream[:50] + b"\xff\xff\x7f" + stream[53:]


def in_the_last_frame(stream: bytes) -> bytes:
    return stream[:-1]


def in_the_version(stream: bytes) -> bytes:
    return b"\1" + stream[1:]


def refused(scenario: Scenario) -> Scenario:
    def run(monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(CorruptStream):
            scenario(monkeypatch)

    return run


SCENARIOS: list[tuple[tuple[str, ...], Scenario]] = [
    (("encode.cu", "rle.cu"), a_codec("rle")),
    (("encode.cu", "delta_decode.cu"), a_codec("delta-rle")),
    (("gather.cu",), a_gather("delta-rle")),
    (("gather.cu",), a_gather("delta-rle", "float16")),
    (("gather.cu",), a_gather("raw", "float16")),
    (("gather.cu",), a_gather("rle")),
    (("gather.cu",), a_gather("delta-rle", play=jumping)),
    (("gather.cu",), a_gather("delta-rle", "float16", play=jumping)),
    (("gather.cu",), a_gather("delta-rle|lz4:9", play=jumping)),
    (("gather.cu",), a_gather("delta-rle", play=crowded)),
    (("gather.cu",), a_gather("delta-rle", play=jumping, depth=8)),
    (("gather.cu",), a_gather("delta-rle", play=noise, depth=8)),
    (("gather.cu",), a_gather("raw", play=noise, depth=8)),
    (("gather.cu",), a_gather("delta-rle|lz4:9")),
    (("gather.cu",), refused(a_gather("rle", harm=in_a_run))),
    (("gather.cu",), refused(a_gather("delta-rle", harm=in_a_run))),
    (("gather.cu",), refused(a_gather("delta-rle", harm=in_the_last_frame))),
    (("gather.cu",), refused(a_gather("delta-rle", harm=in_the_version))),
    (("gather.cu",), refused(a_gather("delta-rle", harm=in_a_run, play=jumping))),
    (("gather.cu",), refused(a_gather("delta-rle", harm=in_the_last_frame, play=jumping))),
    (("gather.cu",), refused(a_gather("delta-rle", harm=in_a_run, depth=8))),
]


def barriers() -> list[ParameterSet]:
    """The file and the line of each."""
    found = []
    for name in sorted(file.name for file in files("obscodec_cupy").joinpath("kernels").iterdir()):
        lines = [line.partition("//")[0].strip() for line in sources.read(name).split("\n")]
        for i in range(1, len(lines)):
            if BARRIER.search(lines[i]):
                found.append(pytest.param((name, i + 1), id=f"{name}:{i + 1}"))
    return found


@pytest.fixture
def without_barrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a file of which one line has lost its barrier."""
    changed, number = request.param
    read = sources.read

    def read_changed(name: str) -> str:
        lines = read(name).split("\n")
        if name != changed:
            return read(name)
        lines[number - 1] = BARRIER.sub("no_barrier(", lines[number - 1])
        return NO_BARRIER + "\n".join(lines)

    monkeypatch.setattr(sources, "read", read_changed)
    forget()
    yield changed
    forget()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: "-".join(scenario[0]))
def test_all_is_well_with_all_barriers(scenario: tuple[tuple[str, ...], Scenario], monkeypatch) -> None:
    scenario[1](monkeypatch)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("without_barrier", barriers(), indirect=True)
def test_a_barrier_is_needed(without_barrier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for units, run in SCENARIOS:
        if not any(f'"{without_barrier}"' in sources.source(unit) for unit in units):
            continue
        try:
            run(monkeypatch)
        except (AssertionError, CorruptStream) as error:
            print(str(error).strip().partition("\n")[0])  # noqa: T201
            return
    pytest.fail("no data shows that this barrier is needed")
