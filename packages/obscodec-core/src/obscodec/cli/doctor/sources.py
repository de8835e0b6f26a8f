"""Sources: where the doctor gets its data from."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from obscodec.buffers import MIN_COMPRESSED_NBYTES
from obscodec.cli.doctor.played import Played
from obscodec.errors import DTypeError, ObscodecError, SourceError
from obscodec.layout import Layout, storable
from obscodec.recordings import ENDINGS, Array, Part, parts_in, told
from obscodec.snapshots import find_snapshot, named, opened_steps

Advance = Callable[[int], None]
LEAST_ITEMS = 64  # a few blocks; figures of fewer items tell nothing about many
_AXIS_0 = "Axis 0 of each array is taken for time, with its steps in their order: frames compress by what changes."
_CHANNELS, _OF_PIXELS = (1, 2, 3, 4), ("uint8", "uint16")
_NEXT = re.compile(r"(^|[/.])next[_ /.]")  # in the name of what is one step later


@dataclass(frozen=True)
class Request:
    """What to read.

    Attributes:
        source: a path, an id of an environment, ``module:function``, or ``minari:`` and the id of a data set.
        n: the most items to read of each field, or steps to take.
        wrappers: of an environment, the innermost first.
        stack: how many frames to stack, 1 for none.
        n_envs: how many environments the program to paste has.
        advance: called with a number of items as they are read.
    """

    source: str
    n: int
    wrappers: tuple[str, ...]
    stack: int
    seed: int
    advance: Advance
    n_envs: int = 1


class Following(NamedTuple):
    """What an observation is one step later, as the source has it: the name, and items ``[n, *shape]``."""

    name: str
    items: Array


@dataclass(frozen=True)
class Content:
    """What was read of a source.

    Attributes:
        items: the fields, ``[n, *shape]`` in the order of time, by name.
        left_out: why a field was left out, by its name.
        presumed: what was taken for granted, in sentences.
        following: the next observations that share frames, which are none of the ``items``, by the name of theirs.
        has_episodes: whether the items are of episodes, one after the other, and no field need say where one ends.
        played: the environments that the items are of, None for others.
    """

    items: Mapping[str, Array]
    left_out: Mapping[str, str]
    presumed: tuple[str, ...] = ()
    following: Mapping[str, Following] = field(default_factory=dict)
    has_episodes: bool = False
    played: Played | None = None


def read(request: Request) -> Content:
    """The fields of a source that can be tried, and why others can't."""
    try:
        found = _reader(request)(request)
    except ObscodecError:
        raise
    except Exception as error:  # of numpy, h5py, zarr, Minari, Gymnasium, an environment or a file of the user
        raise SourceError(f"{request.source} can't be read: {told(error)}") from error
    reasons = {name: _why_not(array) for name, array in found.items.items()}
    left_out = {**found.left_out, **{name: reason for name, reason in reasons.items() if reason}}
    items = {name: array for name, array in found.items.items() if name not in left_out}
    if not items:
        listed = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
        raise SourceError(f"{request.source} has no field to try, {listed or 'it is empty'}")
    following = _following(items)
    said = [
        f"{of.name} are {name} one step later, but at the ends of episodes: a buffer stores each frame once."
        for name, of in following.items()
    ]
    own = items.keys() - {of.name for of in following.values()}
    items = {name: array for name, array in items.items() if name in own}
    return Content(items, left_out, (*found.presumed, *said), following, found.has_episodes, found.played)


def module_of_user(name: str) -> Any:
    """A module that the user named, whose name may be that of a stranger's package."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if missing != name and not name.startswith(f"{missing}."):
            raise SourceError(f"the module {name} needs {missing}, which is not installed") from None
        raise SourceError(
            f"there is no module {name}: if it is in this folder, run python -m obscodec doctor in place of obscodec "
            "doctor; if it is of a package, install that"
        ) from None


def _reader(request: Request) -> Callable[[Request], Content]:
    """The function that reads a source; it must not ignore an option that was given."""
    path = Path(request.source)
    if not (request.source.startswith("minari:") or path.name.endswith(ENDINGS) or path.exists()):
        return import_module("obscodec.cli.doctor.environments").steps_of  # type: ignore[no-any-return]
    if request.wrappers or request.stack > 1 or request.n_envs > 1:
        raise SourceError(
            f"{request.source} is data, --wrapper, --stack and --n-envs are for environments: leave them out; "
            "stacks take as much as their frames, each of which a buffer stores once"
        )
    return _from_path


def _why_not(array: Array) -> str:
    """Why a field can't be tried, "" if it can."""
    if array.dtype == object:
        return "its items are Python objects or differ in length, give all items one shape and a dtype of numbers"
    with suppress(DTypeError):
        storable(array.dtype)
        if array.size == 0 and len(array):
            return f"its items have no numbers, their shape is {array.shape[1:]}"
        few = "1 item tells" if len(array) == 1 else f"{len(array)} items tell"
        return f"{few} too little, give {LEAST_ITEMS} or more" if len(array) < LEAST_ITEMS else ""
    return f"its dtype is {array.dtype}, a buffer takes numbers, booleans and times"


def _following(items: Mapping[str, Array]) -> dict[str, Following]:
    """The next observations among some fields that take no memory of their own, by the name of the observations.

    Most of them must equal the observation of the step after; the last ones of episodes do not.
    """
    found = {}
    for name, array in items.items():
        of = _NEXT.sub(r"\1", name, count=1)
        before = items.get(of)
        if of == name or before is None or (before.shape, before.dtype) != (array.shape, array.dtype):
            continue
        layout = Layout(array.shape[1:], array.dtype)
        same = (layout.rows(array[:-1]) == layout.rows(before[1:])).all(axis=1)
        if 2 * same.sum() >= len(same) and layout.nbytes >= MIN_COMPRESSED_NBYTES:
            found[of] = Following(name, array)
    return found


def _from_path(request: Request) -> Content:
    """The content of a snapshot, or of recorded data."""
    path, name = Path(request.source), request.source.removeprefix("minari:")
    if name != request.source:
        path = Path(os.environ.get("MINARI_DATASETS_PATH") or "~/.minari/datasets", name).expanduser()
        if not path.exists():
            raise SourceError(f"Minari has no data set {name!r} here, {path} does not exist: minari download {name}")
    if path.is_dir() and (folder := find_snapshot(path)):
        content = of_snapshot(folder, request.n)
        request.advance(max(map(len, content.items.values()), default=0))
        return content
    no_snapshot = f"{path} has no snapshot (generation-*.json, in it or up to three folders deeper). "
    try:
        parts = parts_in(path)
    except SourceError as error:
        raise SourceError(f"{no_snapshot * path.is_dir()}{error}") from None
    return _recorded(parts, request)


def of_snapshot(path: Path, n: int) -> Content:
    """The oldest ``n`` items of a snapshot, of the first environment.

    The whole snapshot is read, which finds damage. Large fields that share frames are the observations but for one.

    Raises:
        SnapshotError: the snapshot has no items, a file is damaged, or an item can't be decoded.
        MissingPackage: a package has written it that is not installed.
    """
    with opened_steps(path) as steps, named(path):
        oldest = np.arange(min(n, steps.n))
        own = [x for x, of in steps.layouts.items() if x not in steps.shared or of.nbytes < MIN_COMPRESSED_NBYTES]
        items = {name: steps.read(name, oldest, np.zeros_like(oldest)) for name in own}
        return Content(items, dict(steps.left_out))


def _recorded(parts: Iterator[Part], request: Request) -> Content:
    """The first items of each field of recorded data: arrays of one name in all episodes are one field."""
    arrays, left_out, episodes = dict[str, list[Array]](), dict[str, str](), dict[str, list[Part]]()
    kinds: dict[str, dict[str, str]] = {}  # the dtype and shape of the items of a field, and where they are first
    for part in parts:
        if part.kind:
            episodes.setdefault(part.kind, []).append(part)
        for name, stored in part.fields.items():
            of = arrays.setdefault(name, [])
            try:
                array = stored.read(request.n - sum(map(len, of)))
                if not array.ndim:
                    raise SourceError("it is one value, without time along axis 0")
            except SourceError as error:  # other arrays may be readable
                left_out.setdefault(name, str(error))
            else:
                of.append(array)
                kinds.setdefault(name, {}).setdefault(f"{array.dtype} {array.shape[1:]}", part.name)
                request.advance(len(array))
        if part.kind and any(sum(map(len, arrays[name])) >= request.n for name in part.fields):
            break
    for name, of_name in kinds.items():
        if len(of_name) > 1:
            listed = " and ".join(f"{kind} in {place}" for kind, place in of_name.items())
            left_out.setdefault(name, f"its items are {listed}, give all the same")
    with_fields = [part.fields for of in episodes.values() for part in of]
    for name, n in Counter(name for fields in with_fields for name in fields).items():
        if n < len(with_fields):
            said = f"it is in {n:,} of the {len(with_fields):,} episodes that were read, give all the same arrays"
            left_out.setdefault(name, said)
    items = {name: np.concatenate(of) for name, of in arrays.items() if name not in left_out}
    taken = [
        f"{len(of):,} of {of[0].total:,} {kind}, {of[0].name} to {of[-1].name}, are taken for episodes, one after the "
        "other."
        for kind, of in episodes.items()
    ]
    pictures = [said for name, array in items.items() for said in _of_one_image(name, array)]
    return Content(items, left_out, (*taken, _AXIS_0, *pictures), has_episodes=bool(episodes))


def _of_one_image(name: str, array: Array) -> list[str]:
    """What to say of an array with the shape of a picture, which many steps of vectors have, too."""
    sides = array.shape[:-1] if array.ndim == 3 and array.shape[-1] in _CHANNELS else array.shape
    if array.dtype not in _OF_PIXELS or len(sides) != 2 or min(sides) < LEAST_ITEMS:
        return []
    n, *item = array.shape
    taken = f"{name} is taken for {n:,} steps of {array.dtype}{item}: if it is one image, or time is another axis"
    return [f"{taken}, save an array with time first, as np.stack(images) and np.moveaxis(array, axis, 0) make it."]
