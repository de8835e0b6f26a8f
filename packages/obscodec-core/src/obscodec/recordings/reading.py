"""The episodes of recorded data, one after the other."""

import os
from collections.abc import Collection, Iterator
from itertools import chain, pairwise
from pathlib import Path

import numpy as np

from obscodec.errors import FieldError, SourceError
from obscodec.recordings.layouts import FIRST, Part, parts_in
from obscodec.recordings.stored import Array

Steps = dict[str, Array]


def episodes(path: str | os.PathLike[str], names: Collection[str] | None = None) -> Iterator[Steps]:
    """The episodes of recorded data, to fill a buffer with, each read when it is asked for.

    So the memory holds one episode, and the one before while you do. What is read:

    - a folder with an ``.npz`` or HDF5 file for each episode, as Dreamer, ACT and ALOHA write them; with chunks of
      DreamerV3, named ``time-id-successor-length.npz``, the memory holds the chunks of an episode;
    - an HDF5 file with a group for each episode, as of robomimic, Minari and ManiSkill (``data/demo_0``, ``episode_0``,
      ``traj_0``), or with other groups that differ by a number, or a folder with several of the former;
    - the folder of a Minari data set, whose images are decoded if they are JPEG;
    - a ``.zarr`` folder or ``.zarr.zip`` of diffusion_policy (``data/*`` and ``meta/episode_ends``), or with groups;
    - an ``.npz``, ``.npy`` or HDF5 file, or zarr, without such groups: one episode.

    Where an array ``is_first`` is true, an episode begins. Files and groups come in the order of the numbers in their
    names. Of several kinds of files in a folder, those of which there are most are read. Arrays beside the groups of
    episodes, and single values, are left out. JPEG images of ALOHA come as rows of bytes.

    Args:
        path: the file or folder.
        names: which arrays to read, all if None.

    Yields:
        Arrays ``[n_steps, *shape]`` by name, as ``obscodec doctor`` prints it: with slashes between groups, and ``*``
        for the number of the episode, as ``data/demo_*/obs/image``. Some may have one item more than others, as
        observations of Gymnasium and Minari, which end with what the last step led to.

    Raises:
        SourceError: there is nothing of these; the text says what was looked for, and what is there. Or, later: a file
            is damaged or empty, an array can't be read or needs pickle, or those of an episode differ in length.
        FieldError: an episode lacks one of the ``names``.
        MissingPackage: h5py, zarr, or Pillow for JPEG, is not installed.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/episode_0.npz", image=np.zeros((4, 64, 64, 3), np.uint8), action=np.zeros(3))
        ...     [(name, array.shape) for episode in episodes(folder) for name, array in episode.items()]
        [('image', (4, 64, 64, 3)), ('action', (3,))]
    """
    wanted = [names] if isinstance(names, str) else None if names is None else [*names]
    return _episodes(parts_in(Path(path)), wanted)


def _episodes(parts: Iterator[Part], names: Collection[str] | None) -> Iterator[Steps]:
    begun: list[Steps] = []  # the pieces of an episode that a chunk has not ended
    for part in parts:
        if part.is_beside:
            continue
        pieces = _pieces(part, names)
        while pieces:
            if begun and pieces[0].get(FIRST, np.ones(1))[:1].any():
                yield _taken(begun, names)
            begun.append(pieces.pop(0))
            if pieces or not part.goes_on:
                yield _taken(begun, names)


def _pieces(part: Part, names: Collection[str] | None) -> list[Steps]:
    """The arrays of a part and of the episodes in it, with ``is_first``."""
    if unknown := sorted(set(names or ()) - part.fields.keys()):
        raise FieldError(f"{part.name} has no {', '.join(unknown)}, it has {', '.join(part.fields)}")
    steps: Steps = {}
    for name, of in part.fields.items():
        if names is None or name in names or name == FIRST:
            try:
                array = of.read()
            except SourceError as error:
                raise SourceError(f"{of.file}, {of.name}: {error}; names=[...] reads some arrays only") from error
            if array.ndim:
                steps[name] = array
    if not steps:
        raise SourceError(f"{part.name} has no array with time along axis 0")
    if FIRST in steps and steps[FIRST].size != len(steps[FIRST]):
        raise SourceError(
            f"{FIRST} of {part.name} has shape {steps[FIRST].shape}: a value for each step says which begin"
        )
    lengths = {len(array) for array in steps.values()}
    if max(lengths) > min(lengths) + (FIRST not in steps):
        listed = ", ".join(f"{part.fields[name].name} {len(array):,}" for name, array in steps.items())
        raise SourceError(f"arrays of {part.name} differ in length: {listed}; names=[...] reads some arrays only")
    begins = np.flatnonzero(steps[FIRST][1:]) + 1 if FIRST in steps else ()
    bounds = [0, *begins, max(lengths)]
    return [{name: array[begin:end] for name, array in steps.items()} for begin, end in pairwise(bounds)]


def _taken(begun: list[Steps], names: Collection[str] | None) -> Steps:
    """Take an episode away that has ended."""
    wanted = [name for name in dict.fromkeys(chain(*begun)) if names is None or name in names]
    try:
        arrays = {name: [steps[name] for steps in begun] for name in wanted}
        episode = {name: np.concatenate(of, casting="no") if of[1:] else of[0] for name, of in arrays.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"chunks of an episode differ in names, dtypes or shapes of arrays: {error}") from error
    begun.clear()
    return episode
