"""DeviceTables: the tables of a store of frames in device memory, as kernels read them."""

from typing import Any

import numpy as np
from obscodec.devices import FrameChanges, FrameForm, ListedChanges

from obscodec_cupy.codecs.failures import check_failure
from obscodec_cupy.device.array import DeviceArray
from obscodec_cupy.memory.heap_memory import CudaHeapMemory
from obscodec_cupy.memory.tables import DeviceTable, PendingWrites

_HEADER_WORDS = 16  # see kernels/tables.cuh
_MIN_ROOM_NBYTES = 1 << 10


class DeviceTables:
    """Where blocks are, which frames follow each other, listed stacks and reference frames; and the open blocks.

    The header, which says where all that is, stays at one place: a launch that was recorded sees tables that grew.
    Whoever calls this holds the lock of the heap, and is in the order of its memory.

    Args:
        form: what the blocks of the store are.
        memory: where they are.

    Attributes:
        header: ``u64[16]`` on the device.
    """

    def __init__(self, form: FrameForm, memory: CudaHeapMemory[Any]) -> None:
        device = memory.device
        self._memory = memory
        self._blocks = DeviceTable(device, 16)
        self._previous = DeviceTable(device, 4 * form.block_frames)
        self._block_frames = form.block_frames
        self._listed: DeviceTable | None = None
        self._references = DeviceTable(device, form.layout.nbytes, 1)  # the first one is zeros
        self._rooms: dict[int, DeviceArray] = {}  # of the open block of each stream of frames
        self._failure = device.pinned(16).view(np.uint64)
        self._held: object = None
        self.header = device.zeros((_HEADER_WORDS,), np.uint64)
        self._known_header = np.zeros(_HEADER_WORDS, np.uint64)

    def check(self) -> None:
        """Complain of what kernels found wrong, once.

        Raises:
            CorruptStream: a block is damaged.
            SlotError: an id is of no frame.
        """
        word, self._failure[0] = int(self._failure[0]), 0
        check_failure(word)

    def update(self, changes: FrameChanges, listed: ListedChanges | None, *, hold: bool) -> None:
        """See ``FrameReader.update``."""
        device = self._memory.device
        blocks = self._blocks.with_rows(changes.n_blocks)
        previous = self._previous.with_rows(changes.n_blocks)
        references = self._references.with_rows(changes.first_reference + len(changes.references))
        stacks = self._listed
        if listed is not None:
            stacks = (stacks or DeviceTable(device, 4 * listed.frames.shape[1])).with_rows(listed.n_rows)
        rooms = self._roomy(changes)

        writes = PendingWrites(device)
        self._write_blocks(writes, changes, blocks, rooms)
        writes.add_rows(previous.address, previous.row_nbytes, changes.blocks, changes.previous)
        first = references.address + changes.first_reference * references.row_nbytes
        writes.add(first, changes.references)
        if listed is not None and stacks is not None:
            writes.add_rows(stacks.address, stacks.row_nbytes, listed.rows, listed.frames)
        header = self._header_of(blocks, previous, stacks, references)
        if not np.array_equal(header, self._known_header):
            writes.add(device.address(self.header), header)
        writes.launch()

        before = self._blocks, self._previous, self._listed, self._references, self._rooms
        self._blocks, self._previous, self._listed, self._references, self._rooms = (
            blocks, previous, stacks, references, rooms,
        )  # fmt: skip
        self._known_header = header
        self._retire(before, changes.memories if hold or self._held is not None else None)

    def _write_blocks(
        self, writes: PendingWrites, changes: FrameChanges, blocks: DeviceTable, rooms: dict[int, DeviceArray]
    ) -> None:
        """Write where streams are, and the open blocks themselves."""
        entries = np.stack([changes.addresses, changes.lengths.astype(np.uint64)], axis=1)
        for at, stream, content in zip(changes.opened, changes.of_sequences.tolist(), changes.contents, strict=True):
            entries[at] = self._memory.device.address(rooms[stream]), len(content)
            writes.add(int(entries[at, 0]), content)
        writes.add_rows(blocks.address, blocks.row_nbytes, changes.blocks, entries)

    def _header_of(
        self, blocks: DeviceTable, previous: DeviceTable, stacks: DeviceTable | None, references: DeviceTable
    ) -> Any:
        header = np.zeros(_HEADER_WORDS, np.uint64)
        header[:4] = blocks.address, blocks.n_rows, previous.address, previous.n_rows * self._block_frames
        if stacks is not None:
            header[4:6] = stacks.address, stacks.n_rows
        header[6:9] = references.address, references.n_rows, self._failure.ctypes.data
        return header

    def _roomy(self, changes: FrameChanges) -> dict[int, DeviceArray]:
        """The rooms, with enough for each open block."""
        rooms = dict(self._rooms)
        for stream, nbytes in zip(changes.of_sequences.tolist(), changes.contents.lengths.tolist(), strict=True):
            if stream not in rooms or nbytes > rooms[stream].nbytes:
                room_nbytes = max(_MIN_ROOM_NBYTES, 1 << (nbytes - 1).bit_length())
                rooms[stream] = self._memory.device.empty((room_nbytes,), np.uint8)
        return rooms

    def _retire(self, before: tuple[Any, ...], held: object) -> None:
        """Give back what was replaced, as soon as nobody reads it."""
        *tables, rooms = before
        now = {id(table) for table in (self._blocks, self._previous, self._listed, self._references)}
        replaced = [table for table in tables if id(table) not in now]
        replaced += [room for stream, room in rooms.items() if room is not self._rooms[stream]]
        if held is not self._held:
            replaced.append(self._held)
            self._held = held
        if replaced:
            self._memory.keep(replaced)
