"""BatchReader: batches of compressed arrays, drawn and read on the device alone."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from obscodec import DTypeError, HeapFull, ShapeError, SpecError, TensorArray
from obscodec.arguments import kind_of
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.stores import AutoStore, Store

from obscodec_cupy.device import opened
from obscodec_cupy.device.array import DeviceArray, checked
from obscodec_cupy.device.device import Device
from obscodec_cupy.device.writes import Writes
from obscodec_cupy.frames.frame_reader import MOST_KNOWN, CudaFrameReader
from obscodec_cupy.frames.gather import Gather, Source, form_of

_FIELDS = 2  # that one launch reads, such as an observation and the next one


class DeviceIds:
    """A copy on a device of the ids of an array, those of the store that decodes its items; ShapeError for a view."""

    def __init__(self, device: Device, array: TensorArray) -> None:
        self.device, self.array = device, array
        self.copy: DeviceArray | None = None  # i32[n_items], since it was first written
        self.address = 0  # where it begins
        self.watch = array.watch()  # the rows that have changed since it was written


def write_ids(store: Store, arrays: Sequence[DeviceIds], writes: Writes) -> None:
    """Store what was assigned to arrays of a store since the last call; HeapFull if it has no room.

    If it is not queued, all rows must be noted in the watches.
    """
    changed, somes = [], []
    with store.changing:
        for one in arrays:
            ids = one.array.ids  # what waited to be stored is noted then
            changed.append(rows := one.watch.drain())
            somes.append(ids[rows].reshape(-1))
    _, inner = store.device_reader(np.concatenate(somes).astype(np.int64))
    values = inner.astype(np.int32)
    for one, rows, some in zip(arrays, changed, somes, strict=True):
        if one.copy is None:
            one.copy = one.device.empty((one.array.ids.size,), np.int32)
            one.address = one.device.address(one.copy)
        writes.add_rows(one.address, 4 * (len(some) // max(1, len(rows))), rows, values[: len(some)])
        values = values[len(some) :]


class _Group(NamedTuple):
    """Arrays that one reader reads."""

    reader: CudaFrameReader
    gather: Gather
    which: list[int]
    ids: dict[Store, list[DeviceIds]]  # by the stores of the arrays
    n_items: int  # of the largest array
    rooms: list[DeviceArray]  # that launches work in, each larger than the one before


class BatchReader:
    """Reads items of compressed arrays of a GPU by places that are there too, converts and shifts them on the way.

    :meth:`sync` has the device know what was assigned to the arrays. From then on, until something else is assigned,
    :meth:`read` takes one launch for two arrays of one store, or a few if it needs much memory to work in. It neither
    allocates nor waits, and can be recorded in a CUDA graph, which goes on to be right after later calls of
    :meth:`sync`: what grows there has its place in device memory. Call it once before it is recorded, so that its
    kernel is compiled.

    :meth:`sync` and :meth:`read` are in the right order on whichever streams they are called. A graph is not: replay it
    on the stream on which :meth:`sync` is called and the stores are read in other ways, or have the streams wait for
    each other.

    Args:
        arrays: of stores of frames or stacks of frames on one GPU, of the codec ``delta-rle``, ``delta-rle|lz4``,
            ``rle`` or ``raw``, such as the observations and next observations of a replay buffer; or a dictionary of
            such arrays, by the names of fields. No views of arrays.
        dtype: ``"float16"``, ``"bfloat16"`` or ``"float32"``, what uint8 is converted to; None for no conversion.
        scale: what is converted is multiplied with this in float32, then rounded to nearest even.
        shifted_axes: the axes of an item that are its rows and columns, for :meth:`read` to shift items along.

    Raises:
        ShapeError: there are no arrays, or one is a view; or the axes are not such ones.
        DTypeError: items that are not uint8 are to be converted, or to another dtype; or an array is no TensorArray.
        SpecError: an array is of a store on the CPU, or on another GPU than the first one, or of one that has decided
            to keep tensors in a way that the GPU does not decode; or there is a scale, but no dtype.

    Example:
        On a machine with a GPU::

            store = obscodec.AutoStore(obscodec.Layout((4, 84, 84), np.uint8), codec="delta-rle", device="cuda")
            obs, next_obs = (obscodec.TensorArray.zeros((100_000, 8), store) for _ in range(2))
            ...  # assign steps
            reader = BatchReader({"obs": obs, "next_obs": next_obs}, dtype="float32", scale=1 / 255)
            places = torch.randint(n_steps * 8, (256,), device="cuda")  # step * 8 + environment
            reader.sync(places)
            batch = reader.read(places)  # {"obs": tensor, "next_obs": tensor}
    """

    def __init__(
        self,
        arrays: Sequence[TensorArray] | Mapping[str, TensorArray],
        *,
        dtype: str | None = None,
        scale: float = 1.0,
        shifted_axes: tuple[int, int] | None = None,
    ) -> None:
        self._names = tuple(arrays) if isinstance(arrays, Mapping) else None
        arrays = [*arrays.values()] if isinstance(arrays, Mapping) else arrays
        if not isinstance(arrays, Sequence) or not all(isinstance(array, TensorArray) for array in arrays):
            raise DTypeError(f"a BatchReader is for a list of TensorArrays, got {kind_of(arrays)}")
        if not arrays:
            raise ShapeError("a BatchReader is for one array or more, got none")
        if scale != 1 and dtype is None:
            raise SpecError(f"a scale needs a dtype, such as 'float32', got {scale} without one")
        for array in arrays:
            form_of(array.layout, 1, dtype=dtype, shifted_axes=shifted_axes)
        names = sorted({array.store.device for array in arrays})
        devices = [] if "cpu" in names else list({opened.device(name) for name in names})
        if len(devices) != 1:
            raise SpecError(f"a BatchReader is for arrays of stores on one GPU, got them on {', '.join(names)}")
        self._device = devices[0]
        for array in arrays:
            if not (isinstance(array.store, AutoStore) and not array.store.has_moved):  # else the first sync asks
                array.store.device_reader(np.zeros(0, np.int64))
        self._ids = [DeviceIds(self._device, array) for array in arrays]
        self._dtype, self._scale, self._shifted_axes = dtype, scale, shifted_axes
        self._groups: list[_Group] = []
        self._n_syncs: dict[CudaFrameReader, int] = {}  # of each reader, at the last sync of this one
        self._writes = Writes(self._device)
        self._known: dict[Hashable, list[tuple[_Group, Callable[[], None]]]] = {}
        self._lock = PicklableLock(LockOrder.BATCHES)

    def sync(self, like: object = None) -> None:
        """Bring the device up to date with the arrays: if anything changed, by one copy and one short kernel.

        Args:
            like: a tensor of torch to work on the current stream of torch, such as ``places``; else that of CuPy.

        Raises:
            SpecError: a store has not decided yet how it keeps its tensors, or decodes them on the CPU; or something
                changed, and the current stream is captured into a graph.
            HeapFull: the device has not enough free memory; what a graph reads then is undefined until a sync succeeds.
            CorruptStream: an earlier :meth:`read` found a damaged block.
            SlotError: an earlier :meth:`read` was given a place outside of the arrays.
        """
        self._device.require_process()
        if self._is_current():
            return
        with self._lock, self._device.on_stream_of(like):
            groups = self._groups or self._find_groups()
            for group in groups:
                try:
                    self._sync(group)
                except HeapFull:
                    self._sync(group)  # what was replaced has been given back now
            if not self._groups:
                for group in groups:
                    used = [self._ids[i].copy for i in group.which], group.gather, group.rooms
                    self._device.park_with(self, used, group.reader.order)
            self._groups = groups  # a read before that finds nothing on the device

    def _sync(self, group: _Group) -> None:
        """Have the device know the ids of a group, and what they stand for, while others may assign to the arrays.

        Guards keep what was assigned before.
        """
        guards = [store.guard() for store in group.ids]
        try:
            for store, some in group.ids.items():
                write_ids(store, some, self._writes)
            self._n_syncs[group.reader] = group.reader.sync(self._writes, group.n_items)
        except BaseException:
            self._writes = Writes(self._device)
            for ids in self._ids:
                ids.watch.note(())
            raise
        finally:
            guards.clear()  # closes them, with no call for each

    def _is_current(self) -> bool:
        """Whether nothing has changed since the last sync. Complains of what reads have found wrong."""
        for group in self._groups:
            if group.reader.mirror.failure[0]:
                group.reader.check()
            if group.reader.mirror.n_changes != group.reader.log.n_changes:
                return False
        waiting = [ids for ids in self._ids if ids.array.ids is None or ids.watch.has_changed]
        return bool(self._groups) and not waiting

    def _find_groups(self) -> list[_Group]:
        """The arrays of each store that decodes them."""
        readers = [ids.array.store.device_reader(np.zeros(0, np.int64))[0] for ids in self._ids]
        groups = []
        for reader in dict.fromkeys(readers):
            assert isinstance(reader, CudaFrameReader)
            gather = reader.gather(dtype=self._dtype, scale=self._scale, shifted_axes=self._shifted_axes)
            which = [i for i, one in enumerate(readers) if one is reader]
            of_stores: dict[Store, list[DeviceIds]] = {}
            for i in which:
                of_stores.setdefault(self._ids[i].array.store, []).append(self._ids[i])
            n_items = max(self._ids[i].array.ids.size for i in which)
            groups.append(_Group(reader, gather, which, of_stores, n_items, []))
        return groups

    def read(
        self,
        places: object,
        outs: Sequence[object] | Mapping[str, object] | None = None,
        shifts: Sequence[object] | Mapping[str, object] | None = None,
    ) -> Any:
        """Read one item of each array for each place, as they were at the last :meth:`sync`.

        If something else has read from the store on the device since then, as they are now; a graph that was recorded
        is not told of that: call :meth:`sync` before it is replayed.

        Args:
            places: ``i64[n]`` on the device, of any library with DLPack: indices of the items of each array, as if the
                axes before those of an item were one. Where a place is out of range, the item is zeros, and
                :meth:`check` or the next :meth:`sync` raises.
            outs: for each array ``[n, *shape]`` on the device, contiguous: of its dtype, or of what it is converted to;
                ``uint16`` also stands for ``bfloat16``. A dictionary if the arrays are one. None for new ones, of the
                library of ``places``; a graph that was recorded then has its own, which later replays fill again.
            shifts: for each array ``i32[n, 2]`` on the device, by how many rows and columns to shift each item: the
                pixel ``[y, x]`` is that of ``[y + dy, x + dx]``, or the nearest one that there is (the random shift of
                DrQ, https://arxiv.org/abs/2004.13649). Only with ``shifted_axes``, and always then. A dictionary if
                the arrays are one.

        Returns:
            ``outs``, or the new arrays: a list, or a dictionary if the arrays are one.

        Raises:
            ShapeError: an array has another shape, or there are not as many of them.
            DTypeError: an array has another dtype, or is in other memory; or one of ``outs`` is read-only.
            SpecError: :meth:`sync` was never called.
            HeapFull: something else has read from the store since then, and the device has not enough free memory.
        """
        self._device.require_process()
        if not self._groups:
            raise SpecError("the device knows nothing of the arrays yet: call sync() first")
        by = [] if shifts is None else self._in_order("shifts", shifts)
        given = [] if outs is None else self._in_order("outs", outs)
        with self._lock, self._device.on_stream_of(places, *given):
            made = self._new(places) if outs is None else []
            targets = given or [target for target, _ in made]
            key = (len(targets), *map(self._device.key, (places, *targets, *by)))
            for group, launch in self._known.get(key) or self._prepared(key, places, targets, by):
                while not self._launched(group, launch):
                    self._sync(group)
            if outs is not None:
                return outs
            arrays = [give() for _, give in made]
        return arrays if self._names is None else dict(zip(self._names, arrays, strict=True))

    def _new(self, places: object) -> list[tuple[Any, Callable[[], Any]]]:
        """For each array an array to write to, and what makes of it one of the library of ``places``."""
        n = self._device.view(places).size
        layouts = [ids.array.layout for ids in self._ids]
        shapes = [((n, *layout.shape), self._dtype or layout.dtype.name) for layout in layouts]
        return [self._device.new_for(places, *of) for of in shapes]

    def _in_order(self, what: str, given: Any) -> list[object]:
        """The arrays that were given for the arrays of this reader, in their order."""
        names, is_named = self._names or (), isinstance(given, Mapping)
        if is_named != (self._names is not None) or (is_named and given.keys() != {*names}):
            expected = f"a dictionary of {', '.join(map(str, names))}" if names else "a list"
            found = f"one of {', '.join(map(str, given))}" if is_named else kind_of(given)
            raise ShapeError(f"{what} must be {expected}, as the arrays are, got {found}")
        return [given[name] for name in names] if is_named else [*given]

    def _launched(self, group: _Group, launch: Callable[[], None]) -> bool:
        """Launch, unless something else has told the device since the last sync of other frames than the ids are of."""
        with group.reader.lock, group.reader.order:
            if is_current := group.reader.n_syncs == self._n_syncs[group.reader]:
                launch()
        return is_current

    def _prepared(
        self, key: tuple[Hashable, ...], places: object, outs: Sequence[object], shifts: Sequence[object]
    ) -> list[tuple[_Group, Callable[[], None]]]:
        """The launches that read items, each of arrays of one group."""
        view = self._device.view
        at = view(places)
        checked("places", at, (at.size,), "int64")
        targets = [self._device.writable_view("out", out) for out in outs]
        sources = self._sources(at.size, targets, [view(shift) for shift in shifts])
        launches = []
        for group in self._groups:
            for first in range(0, len(group.which), _FIELDS):
                fields = [sources[i] for i in group.which[first : first + _FIELDS]]
                scratch = self._room(group, at.size)
                launch = group.gather.prepared(group.reader.mirror.header, at.size, fields, places=at, scratch=scratch)
                launches.append((group, launch))
        if None not in key:
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            self._known[key] = launches
        return launches

    def check(self) -> None:
        """Raise, once, what finished reads found wrong.

        Raises:
            CorruptStream: a block is damaged.
            SlotError: a place was outside of the arrays.
        """
        for group in self._groups:
            group.reader.check()

    def _sources(self, n: int, outs: Sequence[DeviceArray], shifts: Sequence[DeviceArray]) -> list[Source]:
        for what, given, n_wanted in [
            ("outs", outs, len(self._ids)),
            ("shifts", shifts, 0 if self._shifted_axes is None else len(self._ids)),
        ]:
            if len(given) != n_wanted:
                raise ShapeError(f"{what} must have {n_wanted} arrays, got {len(given)}")
        sources = []
        for i, (ids, out) in enumerate(zip(self._ids, outs, strict=True)):
            layout, as_bits = ids.array.layout, ["uint16"] * ("bfloat16" in (self._dtype, ids.array.layout.dtype.name))
            checked("out", out, (n, *layout.shape), self._dtype or layout.dtype.name, *as_bits)
            shift = checked("shifts", shifts[i], (n, 2), "int32") if shifts else None
            assert ids.copy is not None
            sources.append(Source(ids.copy, out, shift))
        return sources

    def _room(self, group: _Group, n: int) -> DeviceArray | None:
        """Memory that a launch works in, used again by the next one.

        Smaller rooms stay, as a graph may have been recorded with one: of powers of two, together they are no larger.
        """
        nbytes = group.gather.scratch_nbytes(1 << (n - 1).bit_length())
        if nbytes == 0:
            return None
        if not group.rooms or group.rooms[-1].nbytes < nbytes:
            group.rooms.append(self._device.empty((nbytes,), np.uint8))
        return group.rooms[-1]
