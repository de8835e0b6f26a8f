"""Mirror: a copy of the frames of a store in device memory, as kernels read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from obscodec import HeapFull
from obscodec.frames import NEEDED, ROOM, ROOM_NBYTES, Copied, WatchedLog, stage_blocks
from obscodec.heap import Chunk, HeapChanges
from obscodec.segments import Ints

from obscodec_cupy.codecs.codec import check_failure
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.writes import Writes

# The header, see kernels/tables.cuh.
_HEADER_WORDS: Final = 16
# Of each table, its address and its rows.
_WORDS: Final = {"blocks": 0, "previous": 2, "listed": 4, "references": 6, "dictionaries": 9}
_N_IDS, _N_REFERENCES, _FAILURE, _N_VERSIONS = 3, 7, 8, 10

_LEAST_LISTED: Final = 1 << 8
_LEAST_ROOM_NBYTES: Final = 1 << 12
_LIKELY_REFERENCES: Final = 8


@dataclass(slots=True)
class _Chunk:
    """A chunk of the host's heap, and where the device reads it: ``nbytes`` of it are there.

    If the chunk moves to a file, its bytes stay the same, and so does their copy.
    """

    source: Chunk
    copy: DeviceArray | None
    address: int
    nbytes: int = 0


class Mirror:
    """The chunks of the heap of a log, its open blocks, and its tables, on a device.

    The heap of the host is the master. It writes a chunk from front to back, and never changes what it wrote, so that
    a sync copies the new end of a chunk to the same place of its copy. The header, which says where the tables are,
    stays at one place: a launch that was recorded sees tables that grew.

    Whoever calls this holds the lock of the log, and is in one order with all launches that read the mirror. With
    ``pinned``, the device reads the chunks of the host in place.
    """

    def __init__(self, device: Device, log: WatchedLog, *, pinned: bool) -> None:
        self._device, self._log, self._pinned = device, log, pinned
        self._chunks: dict[int, _Chunk] = {}
        self._bases = np.zeros(1, np.int64)  # the address of each chunk, by number
        self._known = np.zeros((0, NEEDED + 1), np.int64)  # of open blocks, see stage_blocks; so are the next three
        self._pieces = np.empty((0, 2), np.int64)
        self._staged = np.empty(0, np.uint8)
        self._blocks = np.zeros(2, np.int64)
        self._rooms: dict[int, DeviceArray] = {}  # for the open block of each sequence
        self._tables: dict[str, DeviceArray] = {}
        self._versions: set[int] = set()  # of LZ4, whose dictionaries are there
        self.retired: list[object] = []  # what the last sync replaced, to be kept until nobody reads it
        self._n_rows = [0, 0, 0]  # of the tables of blocks, references and listed stacks
        self._n_references = 0
        self.n_changes = -1  # WatchedLog.n_changes at the last sync
        self.failure = device.pinned(16).view(np.uint64)  # of the host, in which kernels report what they found wrong
        self.failure[:] = 0
        self.header = device.zeros((_HEADER_WORDS,), np.uint64)  # see kernels/tables.cuh
        self._header_is_old = True
        # All memory that kernels read or write, now and later. It does not hold this mirror.
        self.memories = self._chunks, self._rooms, self._tables, self.retired, self.header, self.failure

    def check(self) -> None:
        """Raise what kernels found wrong, once: CorruptStream for a block, SlotError for an id of no frame."""
        if word := int(self.failure[0]):
            self.failure[0] = 0
            check_failure(word)

    def sync(self, writes: Writes, n_items: int = 0) -> None:
        """Have ``writes`` write all that has changed, some at once; :meth:`forget` must follow if that is not queued.

        Tables get room at once for ``n_items``, those of the largest array of ids in the store. Raises HeapFull if the
        device has not enough free memory, or the host.
        """
        log = self._log
        if log.begins():
            self._begin()
        tables, listed = log.tables, log.changed_stacks()
        n_blocks, n_known, (most_blocks, most_known, most_listed) = tables.n_blocks, tables.n_references, self._n_rows
        has_room = n_blocks <= most_blocks and n_known <= most_known and (not len(listed) or listed[-1] < most_listed)
        if not has_room:
            self._reserve(tables, n_items)
            listed = log.changed_stacks()
        changes = log.changed_blocks()
        self._write_chunks(writes, changes.chunks)
        self._write_blocks(writes, tables, changes)
        if self._n_references < n_known:
            self._write_rows(writes, "references", np.arange(self._n_references, n_known), tables.references)
            self._n_references, self._header_is_old = n_known, True
        if len(listed):
            self._write_rows(writes, "listed", listed, tables.stacks)
        if dictionaries := log.dictionaries:
            self._write_dictionaries(writes, dictionaries)
        if self._header_is_old:
            writes.add_rows(self._device.address(self.header), 8, np.arange(_HEADER_WORDS), self._new_header())
            self._header_is_old = False
        self.n_changes = log.n_changes

    def forget(self) -> None:
        """Let the next :meth:`sync` write everything."""
        self.n_changes = -1
        self._log.forget()

    def give_up(self) -> None:
        """:meth:`forget`, and give back what was replaced; until the next :meth:`sync`, kernels find nothing."""
        self.forget()
        header = np.zeros(_HEADER_WORDS, np.uint64)
        header[_FAILURE] = self.failure.ctypes.data
        self._device.write(header, self.header)
        self._device.synchronize()
        self.retired.clear()

    def _begin(self) -> None:
        """Know nothing of the log, all of which counts as changed."""
        self._known[:, 0] = -1
        self._n_rows, self._n_references, self._header_is_old = [0, 0, 0], 0, True
        for chunk in self._chunks.values():
            chunk.nbytes = 0
        self._versions = set()

    def _reserve(self, tables: Copied, n_items: int) -> None:
        """Have as many rows as the tables of the log, or as ``n_items`` are likely to need."""
        log, nbytes, block_frames, n_blocks = self._log, self._log.frame_nbytes, self._log.block_frames, tables.n_blocks
        likely = log.first + n_items // block_frames * 9 // 8 + 2 * len(tables.sequences)
        blocks = self._has_grown("blocks", (2,), np.uint64, n_blocks, likely)
        if self._has_grown("previous", (block_frames,), np.int32, n_blocks, likely) or blocks:
            self._blocks[:] = [self._device.address(self._tables[name]) for name in ("blocks", "previous")]
            log.note_blocks()
            self._known[:, 0] = -1
        likely = min(len(tables.references), _LIKELY_REFERENCES) if log.has_references else 1
        if self._has_grown("references", (nbytes,), np.uint8, tables.n_references, likely):
            self._n_references = 0
        likely = max(_LEAST_LISTED, n_items // 64) if log.depth > 1 else 1
        self._has_grown("listed", (log.depth,), np.int32, len(tables.stacks), likely)
        log.note_stacks()  # somebody has asked what changed
        self._n_rows = [len(self._tables[name]) for name in ("previous", "references", "listed")]

    def _has_grown(self, name: str, row: tuple[int, ...], dtype: type[np.generic], least: int, likely: int) -> bool:
        """Whether a table is another one now, of zeros, as it had fewer than ``least`` rows."""
        before = self._tables.get(name)
        if before is not None and len(before) >= least:
            return False
        n_rows = max(least, likely, 0 if before is None else 2 * len(before))
        try:
            self._tables[name] = self._device.zeros((n_rows, *row), dtype)
        except HeapFull:
            self._tables[name] = self._device.zeros((least, *row), dtype)
        self._retire(before)
        self._header_is_old = True
        return True

    def _retire(self, thing: object) -> None:
        self.retired += [] if thing is None else [thing]

    def _write_chunks(self, writes: Writes, chunks: dict[int, Chunk]) -> None:
        """Write what is new at the end of each chunk."""
        for number in self._chunks.keys() - chunks.keys():
            self._retire(self._chunks.pop(number))
        for number, chunk in chunks.items():
            here = self._chunks.get(number)
            if here is None or here.source is not chunk:
                self._retire(here)
                copy = None if self._pinned else self._device.empty((len(chunk.memory),), np.uint8)
                address = chunk.memory.ctypes.data if copy is None else self._device.address(copy)
                if number >= len(self._bases):
                    self._bases = np.concatenate([self._bases, np.zeros(number, np.int64)])
                self._bases[number] = address
                here = self._chunks[number] = _Chunk(chunk, copy, address)
            if here.nbytes < chunk.end:
                if here.copy is not None:
                    writes.add_long(here.address + here.nbytes, chunk.memory[here.nbytes : chunk.end])
                here.nbytes = chunk.end

    def _write_blocks(self, writes: Writes, of_log: Copied, changes: HeapChanges) -> None:
        """Write the open blocks that have changed, where changed blocks are, and which frames are before theirs."""
        rows = of_log.sequences
        if len(rows) > len(self._known):
            added = np.full((len(rows) - len(self._known), NEEDED + 1), -1, np.int64)
            self._known = np.concatenate([self._known, added])
        while True:
            tables = self._bases, of_log.previous, self._blocks, self._pieces, self._staged
            n, nbytes, is_all = stage_blocks(rows, self._known, changes.slots, changes.entries, *tables)
            if is_all:
                break
            self._make_room(n, nbytes)
        if n:
            writes.add(self._pieces[:n], self._staged[:nbytes])

    def _make_room(self, n: int, nbytes: int) -> None:
        """Make room for so many pieces and bytes, and for the open blocks that need more."""
        if n > len(self._pieces):
            self._pieces = np.empty((2 * n, 2), np.int64)
        if nbytes > len(self._staged):
            self._staged = np.empty(2 * nbytes, np.uint8)
        (small,) = (self._known[:, NEEDED] > self._known[:, ROOM_NBYTES]).nonzero()
        for sequence in small.tolist():
            room_nbytes = max(_LEAST_ROOM_NBYTES, 1 << int(self._known[sequence, NEEDED]).bit_length())
            room = self._device.empty((room_nbytes,), np.uint8)
            self._known[sequence, [ROOM, ROOM_NBYTES]] = self._device.address(room), room_nbytes
            self._retire(self._rooms.get(sequence))
            self._rooms[sequence] = room

    def _write_dictionaries(self, writes: Writes, dictionaries: dict[int, bytes]) -> None:
        """Write the dictionaries of all versions behind a table of them, if these are others than at the last sync."""
        if dictionaries.keys() == self._versions:
            return
        table = np.zeros((1 + max(dictionaries), 2), np.uint64)  # where each ends, and its bytes
        there = self._device.empty((table.nbytes + sum(map(len, dictionaries.values())),), np.uint8)
        end = self._device.address(there) + table.nbytes
        for version, dictionary in dictionaries.items():
            end += len(dictionary)
            table[version] = end, len(dictionary)
        data = b"".join([table.tobytes(), *dictionaries.values()])
        writes.add_long(self._device.address(there), np.frombuffer(data, np.uint8))
        self._retire(self._tables.get("dictionaries"))
        self._tables["dictionaries"] = there
        self._versions, self._header_is_old = {*dictionaries}, True

    def _write_rows(self, writes: Writes, name: str, rows: Ints, table: npt.NDArray[np.generic]) -> None:
        """Write rows of a table of the host into the same rows of its copy."""
        copy = self._tables[name]
        writes.add_rows(self._device.address(copy), copy.strides[0], rows, table[rows])

    def _new_header(self) -> npt.NDArray[np.uint64]:
        header = np.zeros(_HEADER_WORDS, np.uint64)
        for name, table in self._tables.items():
            header[_WORDS[name]], header[_WORDS[name] + 1] = self._device.address(table), len(table)
        header[_N_IDS] *= self._log.block_frames
        header[_N_REFERENCES], header[_FAILURE] = self._n_references, self.failure.ctypes.data
        header[_N_VERSIONS] = 1 + max(self._versions, default=0)
        return header
