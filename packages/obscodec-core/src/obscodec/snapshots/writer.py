"""Writing a generation of a snapshot: only what its folder does not have yet."""

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import numpy as np
import xxhash

from obscodec.errors import SnapshotError
from obscodec.segments import Segments
from obscodec.snapshots.folder import FORMAT, NO_NUMBER, VERSION, Folder, NewerVersion
from obscodec.snapshots.folder_lock import FolderLock
from obscodec.snapshots.known import FILE, NOWHERE, OFFSET, Hashes, Known, Places, SegmentFile, hashes_of
from obscodec.snapshots.segment_file import write_streams
from obscodec.trees import Arrays, Tree, format_arrays

_SEGMENT_NBYTES: Final = 1 << 26  # a file has so many, if its first stream does not have more
_MOST_FILES: Final = 64  # of one kind that could be larger; with more, the smaller half is written into one
_SPARE_NBYTES: Final = 1 << 12  # in a file besides streams, at least
_PAGE_NBYTES: Final = 1 << 16
_MIN_PAGED_NBYTES: Final = 1 << 17  # smaller arrays are written whole each time

Groups = dict[str, tuple[Segments, Places]]  # streams by name, and where they are


def write_generation(
    folder: Folder, tree: Tree, head: dict[str, Any], known: Known, number: int | None, keep: int
) -> Known:
    """Write another generation, then remove the oldest ones. Whatever ends this call, the last generation stays.

    ``head`` has JSON values for the manifest. ``known`` is what the folder has of this state, and what it has then is
    returned. ``number``: None for the next one; see :func:`before_generation`. ``keep`` is how many generations stay.

    Raises:
        SnapshotError: the folder has other files, or another process writes to it, or a later generation,
            or the snapshot of something else.
        OSError: the disk refused; the generation is not there.
    """
    folder.make()
    with FolderLock(folder.path):
        before = dict([*before_generation(folder, known, number).items()][-keep:])  # a cut off write may have left more
        if before.get(known.generation) != known.manifest:
            known = Known()
            _refuse_other_kind(folder, reversed(before.values()), head["kind"])
        folder.remove_all_but(before.values())
        number = 1 + folder.highest_number() if number is None else number
        folder.remove(number)
        writer = _Writer(folder, number, known)
        streams = {name: (group, known.places_of(name, group)) for name, group in tree.streams.items()}
        writer.place("blocks", streams)
        arrays = tree.arrays | _index(streams)
        large = {name for name, array in arrays.items() if array.nbytes >= _MIN_PAGED_NBYTES}
        pages = {name: _pages(arrays[name]) for name in sorted(large)}
        hashes = {name: hashes_of(some) for name, some in pages.items()}
        of_pages = {name: (some, known.places_of_pages(name, hashes[name])) for name, some in pages.items()}
        writer.place("pages", of_pages)
        small = {name: array for name, array in arrays.items() if name not in large}
        small |= _index(of_pages) | {f"{name}/xxh3": hashed for name, hashed in hashes.items()}
        file, content = f"arrays-{number:08}.safetensors", format_arrays(small)
        with folder.new_file(file) as of_arrays:
            of_arrays.write(content)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            **head,
            "generation": number,
            "values": tree.values,
            "streams": [*streams],
            "pages": {name: {"dtype": arrays[name].dtype.str, "shape": [*arrays[name].shape]} for name in pages},
            "arrays": {"file": file, "nbytes": len(content), "xxh3": xxhash.xxh3_64_hexdigest(content)},
            "segments": [None if written is None else written._asdict() for written in writer.files],
        }
        name = folder.write_manifest(number, manifest)
        folder.remove_all_but([*folder.generations().values()][-keep:])
    places_of_pages: dict[str, tuple[Hashes, Places]] = {name: (hashes[name], of_pages[name][1]) for name in pages}
    return known.after(name, number, writer.files, streams, places_of_pages)


def before_generation(folder: Folder, known: Known, number: int | None) -> dict[int, str]:
    """The generations that stay until a new one is written.

    A buffer that was loaded from a generation replaces those after the new one: another training wrote them, which it
    does not go on. Any other buffer is refused, and what a newer version has written.
    """
    if number is not None and number >= NO_NUMBER:
        raise SnapshotError(f"the number of a generation is less than {NO_NUMBER}, got {number}")
    generations = folder.generations()
    later = [k for k in generations if number is not None and k >= number]
    is_base = generations.get(known.generation) == known.manifest and known.generation not in later
    if later and not is_base:
        raise SnapshotError(
            f"{folder.path} has generation {max(later)} already, and what is written as generation {number} was not "
            "loaded from an earlier one there: load that, or name another folder"
        )
    for manifest in () if is_base else generations.values():
        try:
            folder.read_manifest(manifest)
        except SnapshotError as error:
            if isinstance(error, NewerVersion):  # the oldest generations would go
                raise
    return {k: manifest for k, manifest in generations.items() if k not in later}


def _refuse_other_kind(folder: Folder, manifests: Iterable[str], kind: str) -> None:
    """Refuse to write to a folder whose last generation that can be read is of another kind."""
    for manifest in manifests:
        with suppress(SnapshotError):  # it is damaged: nobody misses it
            other = folder.read_manifest(manifest).get("kind")
            break
    else:
        return
    if other != kind:
        found = f"{folder.path} has a snapshot of a {other}"
        raise SnapshotError(f"{found}, and a {kind} would replace it: name another folder")


class _Writer:
    """Writes streams to new segment files of a generation; ``files`` are those that it needs, as ``Known`` has them."""

    def __init__(self, folder: Folder, number: int, known: Known) -> None:
        self._folder, self._number = folder, number
        self.files = [*known.files]

    def place(self, kind: str, groups: Groups) -> None:
        """Write the streams that are nowhere, and fill their places."""
        moved = self._leave_files(kind, groups)
        for _, places in groups.values():
            places[FILE, np.isin(places[FILE], moved)] = NOWHERE
        new = [np.flatnonzero(places[FILE] == NOWHERE) for _, places in groups.values()]
        parts = [group.take(at) for (group, _), at in zip(groups.values(), new, strict=True)]
        streams = Segments.joined(parts or [Segments.of([])])
        order = np.lexsort((streams.offsets, streams.which))  # as they lie in memory
        where, ends = np.empty((2, len(streams)), np.int64), np.cumsum(streams.lengths[order])
        first = 0
        while first < len(streams):
            begin = int(ends[first] - streams.lengths[order[first]])
            last = max(first + 1, int(np.searchsorted(ends, begin + _SEGMENT_NBYTES, side="right")))
            at = order[first:last]
            name = self._folder.new_segment(kind, self._number)
            where[FILE, at], where[OFFSET, at] = self._write(name, streams.take(at))
            first = last
        for (_, places), at, found in zip(
            groups.values(), new, np.split(where, np.cumsum([*map(len, new)]), axis=1)[:-1], strict=True
        ):
            places[:, at] = found

    def _write(self, name: str, streams: Segments) -> tuple[int, Places]:
        number = int.from_bytes(os.urandom(8))
        with self._folder.new_file(name) as file:
            offsets = write_streams(file, number, streams)
            written = SegmentFile(name, file.tell(), f"{number:016x}")
        k = self.files.index(None) if None in self.files else len(self.files)
        self.files[k : k + 1] = [written]
        return k, offsets

    def _leave_files(self, kind: str, groups: Groups) -> list[int]:
        """Leave out files with few live streams, and some of many: their streams are written again; their numbers."""
        live = np.zeros(len(self.files) + 1, np.int64)
        for group, places in groups.values():
            np.add.at(live, places[FILE], group.lengths)  # the last one for NOWHERE
        mine = {k: file.nbytes for k, file in enumerate(self.files) if file is not None and file.file.startswith(kind)}
        left = [k for k, nbytes in mine.items() if 2 * live[k] + _SPARE_NBYTES < nbytes]
        small = sorted((k for k in mine.keys() - {*left} if 2 * mine[k] <= _SEGMENT_NBYTES), key=mine.__getitem__)
        if len(small) > _MOST_FILES:
            left += small[: len(small) // 2]
        for k in left:
            self.files[k] = None
        return left


def _pages(array: Any) -> Segments:
    """The bytes of an array, in pages."""
    content = array.reshape(-1).view(np.uint8)
    begins = np.arange(0, len(content), _PAGE_NBYTES)
    return Segments.packed(content, np.diff(begins, append=len(content)))


def _index(groups: Groups) -> Arrays:
    """Arrays that tell where the streams of groups are."""
    made: Arrays = {}
    for name, (group, places) in groups.items():
        made |= {f"{name}/file": places[FILE], f"{name}/offset": places[OFFSET], f"{name}/length": group.lengths}
    return made
