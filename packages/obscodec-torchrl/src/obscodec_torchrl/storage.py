"""CompressedStorage: TorchRL's LazyTensorStorage, with images in compressed stores."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Mapping
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from inspect import signature
from numbers import Integral
from typing import Any, NoReturn, Self, TypeVar, Unpack, cast

import obscodec
import torch
from obscodec.arguments import as_count, as_envs, as_flag, kind_of, refuse_unknown
from obscodec.arrays import DrawnArray
from obscodec.buffers import BufferKeywords, BufferOptions, Memory, TorchBatch, making_room
from obscodec.devices import check_place
from obscodec.fixed import Fixed, Option
from obscodec.runtime import LockOrder, PicklableLock, says_memory_error
from obscodec.state import State, versioned
from obscodec.stats import BufferStats
from obscodec.stores import Store, load_ahead
from obscodec.torch import DEVICE_BATCH, DRAWING, CompressedTensor, Device, as_index, decode
from tensordict import is_tensor_collection
from torch.utils._pytree import tree_leaves, tree_map
from torchrl.data import LazyTensorStorage, ReplayBuffer, RoundRobinWriter
from torchrl.data.replay_buffers.storages import _flip_list

from obscodec_torchrl.checkpointer import CompressedStorageCheckpointer
from obscodec_torchrl.device_batch import DeviceBatch, DeviceReader
from obscodec_torchrl.leaves import Key, as_key, leaves, selected, timeless, with_leaves
from obscodec_torchrl.loading import load_dict, state_dict_of
from obscodec_torchrl.remote_object import RemoteObject
from obscodec_torchrl.sending import sent_encoded
from obscodec_torchrl.state import WRITTEN_BY, arguments_of, as_arguments, fill, state_of
from obscodec_torchrl.writing import check_items, end_episodes, end_loaded_episodes, new_stores, of_one_moment, write

_F = TypeVar("_F", bound=Callable[..., object])
_MAKE_ANOTHER = "make another storage, and extend its buffer with the items of this one"


def not_compiled(function: _F) -> _F:
    """A function that compiled code calls with a graph break."""
    reason = "a CompressedStorage is called from compiled code, but not compiled: leave fullgraph=True out"
    return cast("_F", torch.compiler.disable(function, reason=reason))  # type: ignore[no-untyped-call]


@RemoteObject.forward(
    methods=(
        *("get", "set", "end_episodes", "_empty", "flatten", "stats"),
        *("dumps", "loads", "state_dict", "load_state_dict"),
    ),
    attributes=("initialized", "max_size", "device", "_total_shape"),
)
class RemoteStorage(LazyTensorStorage):  # type: ignore[misc]
    """The stand-in for a ``CompressedStorage`` in a worker: it reads and writes the storage in the process that has it.

    Slices are copies: a write into a slice changes no storage.
    """

    __getstate__ = object.__getstate__  # TorchRL's looks for contents


class CompressedStorage(LazyTensorStorage):  # type: ignore[misc]
    """A storage that keeps images compressed, without loss, and gives the items that ``LazyTensorStorage`` gives.

    Leaves of 1 KiB or more per item are compressed, smaller ones are plain tensors. Leaves of a step and of the next
    one, such as ``"pixels"`` and ``("next", "pixels")``, or ``"next_pixels"``, share a store, which stores each frame
    once. A sampled batch is decoded after the lock of the buffer is released; a GPU decodes it at once.

    Args:
        max_size: how many items the storage has room for.
        ndim: how many leading axes of a batch count items, as in ``LazyTensorStorage``.
        device: the device of sampled tensors. Written tensors are on this device, or on the CPU. ``"auto"`` takes the
            device of the first tensordict, or of its leaves if the tensordict has none.
        compilable: see ``LazyTensorStorage``. Compiled code may call this storage, but the storage is not compiled.
        shared_init: without effect: a worker may make the first write in any case.
        consolidated: False: compressed leaves lie in no common block of memory.
        cleanup_memmap: without effect, since nothing is memory-mapped. It is True if ``shared_init`` is.
        spill: a folder for the oldest blocks when all memory of the storage exceeds ``max_bytes``: they move to files
            there, without names, and are read as before; no item is dropped. The files end with the process.
        continue_episodes: whether the episodes that were running when a checkpoint was written go on after it was
            loaded, such as those of a simulator that was saved with it. Otherwise the first write ends them: see
            :meth:`end_episodes`.
        **options: the attributes of ``obscodec.buffers.BufferOptions``. Keys in mappings are names or nested tuples.

            - ``codec``: the codec of leaves of 1 KiB or more, such as ``"zstd:3"``; ``"auto"``, the default, finds the
              best one for the first items; None compresses nothing. A mapping from keys to codecs holds for leaves of
              any size; leaves that it does not name have ``"auto"``.
            - ``min_nbytes``: compress leaves from this size on, instead of 1 KiB.
            - ``decide_after``: from how many tensors, next observations included, a store decides how to keep them.
            - ``block_frames``: how many frames are encoded together.
            - ``max_bytes``: the most bytes of memory for the whole storage, which one write may exceed. It needs
              ``spill``.
            - ``buffer_device``: where compressed items are kept and decoded. The default is ``device`` if it is a GPU,
              which needs obscodec-cupy, else ``"cpu"``. From ``"cpu"``, decoded batches are copied to ``device``.
            - ``heap``: ``"pinned"`` keeps compressed items in host memory that the GPU reads.

    Raises:
        SpecError: there is no such device or heap, or this storage can't do what an option asks for; or ``max_bytes``
            or ``spill`` is given without the other one.
        DTypeError: an option is of the wrong type, or ``buffer_device`` is another GPU than ``device``.
        ShapeError: ``max_size``, ``ndim``, ``decide_after`` or ``block_frames`` is less than 1, or ``min_nbytes`` less
            than 0.
        BackendUnavailable: ``device`` or ``buffer_device`` can't be used; the text names what is missing.
        TypeError: there is no such option.

    Example:
        >>> from tensordict import TensorDict
        >>> from torchrl.data import TensorDictReplayBuffer
        >>> buffer = TensorDictReplayBuffer(storage=CompressedStorage(1000), batch_size=32)
        >>> pixels = torch.zeros(64, 4, 84, 84, dtype=torch.uint8)
        >>> steps = TensorDict(pixels=pixels, next=TensorDict(pixels=pixels, batch_size=64), batch_size=64)
        >>> indices = buffer.extend(steps)
        >>> buffer.sample()["next", "pixels"].shape
        torch.Size([32, 4, 84, 84])
    """

    _default_checkpointer = CompressedStorageCheckpointer
    written_by = WRITTEN_BY
    arguments, state, restore = arguments_of, state_of, fill  # see ``obscodec.snapshots.Saved``
    state_dict, load_state_dict = state_dict_of, load_dict
    ndim: Fixed[int] = Fixed(_MAKE_ANOTHER)
    codec, min_nbytes, frame_stack, budget = Option(), Option(), Option(), Option()
    decide_after, block_frames, buffer_device, heap = Option(), Option(), Option(), Option()
    max_bytes, spill = Option(), Option()
    _reader: DeviceReader | None = None

    def __init__(
        self,
        max_size: int,
        *,
        ndim: int = 1,
        device: Device = "cpu",
        compilable: bool = False,
        shared_init: bool = False,
        consolidated: bool = False,
        cleanup_memmap: bool = True,
        spill: str | os.PathLike[str] | None = None,
        continue_episodes: bool = False,
        **options: Unpack[BufferKeywords[Any]],
    ) -> None:
        for is_refused, why in (
            (consolidated, "consolidated=True asks for all leaves in one block of memory, and compressed leaves are in "
             "none: leave it out"),
            (shared_init and not cleanup_memmap, "cleanup_memmap=False asks to keep memory-mapped files of "
             "shared_init=True, which writes none: leave it out"),
            (shared_init and compilable, "compilable=True is for a storage of one process, shared_init=True for one of "
             "several: leave one out"),
        ):  # fmt: skip
            if is_refused:
                raise obscodec.SpecError(why)
        *own, _ = signature(CompressedStorage).parameters
        known = [*own, *BufferKeywords.__annotations__]
        refuse_unknown(type(self).__name__, [name for name in options if name not in known], known)
        max_size, ndim = as_count("max_size", max_size), as_count("ndim", ndim)
        try:
            super().__init__(max_size, device=device, ndim=ndim, compilable=compilable)
        except (RuntimeError, TypeError, AssertionError):  # of torch, about the device
            if device != "auto":
                TorchBatch(device)  # which says what to do
            raise
        self.shared_init = shared_init  # TorchRL's constructor would make locks and files for it
        given: dict[str, Any] = {
            name: {as_key(k): x for k, x in of.items()} if isinstance(of, Mapping) else of
            for name, of in options.items()
        }
        given.setdefault("buffer_device", self.device if str(self.device).startswith("cuda") else "cpu")
        self._memory = Memory(given.pop("max_bytes", None), spill, [given.get("heap", "device")])
        load_ahead()  # here, and not in the first write, which makes the stores
        if self._memory.drops_steps:
            raise obscodec.SpecError(
                "max_bytes needs spill, a folder for blocks that exceed it: pass spill, or leave max_bytes out and "
                "make max_size smaller; obscodec.estimate(env, max_size) says how many bytes the full storage will take"
            )
        self.options = BufferOptions[Key](**given)
        self._given = {**vars(self.options), "max_bytes": self._memory.max_bytes, "spill": self._memory.folder}
        new_batch = None if self.device == "auto" else lambda: torch.empty(1, device=TorchBatch(self.device).device)
        check_place(self.options.buffer_device, self.options.heap, new_batch)
        self.continue_episodes = as_flag("continue_episodes", continue_episodes)
        self._is_loaded = False  # until an item is written
        self.lock = PicklableLock(LockOrder.CHANGING)

    @property
    def max_size(self) -> int:
        """How many items the storage has room for: since the first write, whole rows if ``ndim`` is more than 1."""
        return self._max_size

    @max_size.setter
    def max_size(self, n: int) -> None:
        if vars(self).get("initialized"):
            what = f"max_size of a {type(self).__name__} can't be changed, it is {self.max_size}"
            raise AttributeError(f"{what}: {_MAKE_ANOTHER}")
        self._max_size = n

    def empty_copy(self) -> CompressedStorage:
        """An empty storage with the same options."""
        made = CompressedStorage.from_arguments({**self.arguments(), "spill": self._memory.folder})
        made.device = self.device  # None if the first tensordict had no device
        return made

    @classmethod
    def from_arguments(cls, arguments: State) -> Self:
        """An empty storage with the :meth:`arguments` of another one."""
        return cls(**as_arguments(arguments))

    def __reduce_ex__(self, protocol: Any) -> Any:
        sent = RemoteObject.stand_in(self, RemoteStorage, without=("_storage", "_rng"))
        return sent or versioned(super().__reduce_ex__(protocol), "obscodec_torchrl")

    def __deepcopy__(self, memo: dict[int, Any]) -> CompressedStorage:
        made = memo[id(self)] = self.__new__(type(self))
        with self.lock:
            copied = {path: deepcopy(leaf, memo) for path, leaf in leaves(self._storage).items()}
            memo[id(self._storage)] = with_leaves(self._storage, copied)  # deepcopy of a tensordict would decode
            made.__setstate__(deepcopy(self.__getstate__(), memo))
        return made

    def _make_init_directory(self) -> None:
        """Make no directory: a collector's workers would share memory maps in it, but ours call this process."""
        del self._init_lock, self._init_event  # which a collector has set, and which can't be pickled

    def _init(self, data: Any) -> None:
        self._init_standard(data)

    def _wait_for_init(self) -> None:
        """Do not wait for a first write: reading before it is refused."""

    def attach(self, buffer: Any) -> None:
        """Attach a buffer. It will decode its samples when it collates them, after it has released its lock.

        A buffer that is an actor of Ray does not decode them: it sends them encoded.
        """
        super().attach(buffer)
        if getattr(buffer, "_init_collate_fn", self) is None:
            is_actor = hasattr(type(buffer), "__ray_actor_class__")
            buffer._init_collate_fn = sent_encoded if is_actor else decoded

    @not_compiled
    @says_memory_error
    def get(self, index: Any) -> Any:
        """The items that ``index`` selects; for an integer or a slice views, which write through.

        Raises:
            RuntimeError: nothing was ever written.
            IndexError: the index is out of range. An index on a GPU that decodes is not looked at: what is out of range
                has no meaning then, and the next read raises ``SlotError``.
        """
        context = copy_context()
        if isinstance(index, tuple) and len(index) == 1:
            index = index[0]  # a buffer's index is a tuple of one tensor, which tensordict takes longer for
        with self.lock:
            if (batch := self._device_batch(index)) is not None:
                context.run(DEVICE_BATCH.set, batch)
                items = context.run(selected, self._storage, batch.index[0] if self.ndim == 1 else batch.index)
                batch.read()
                return items
            context.run(DRAWING.set, True)
            items = context.run(super().get, index)
        at_work = self.buffers_at_work()
        collate_fns = [x._collate_fn for x in at_work]
        if sent_encoded in collate_fns:
            if any(len(x._transform or ()) for x in at_work):  # which may change pixels in place
                return decoded(items)
            return sent_encoded(items) if isinstance(index, Integral) else items  # a buffer does not collate one item
        return items if decoded in collate_fns else decoded(items)

    def _device_batch(self, index: Any) -> DeviceBatch | None:
        """The items that ``index`` selects, if the GPU that decodes them has the index, too."""
        if not self.initialized or not str(self.device).startswith("cuda"):
            return None
        if self._reader is None or self._reader.data is not self._storage:
            self._reader = DeviceReader(self._storage, tuple(self._total_shape))
        return self._reader.batch(index, self._len_along_dim0)

    @not_compiled
    @says_memory_error
    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Store items, all of them or none; see ``Storage.set``.

        Raises:
            FieldError: a key of the first write is missing, or a key that ``codec`` names; or a new leaf has 1 KiB or
                more.
            ShapeError: a leaf has another shape than before; or, at the first write, what is not compressed will
                exceed ``max_bytes`` when the storage is full.
            DTypeError: a compressed leaf has another dtype than before, or is on another device.
            IndexError: the index is out of range.
            SpecError: a spec names no codec.
            HeapFull: the storage exceeds ``max_bytes``, and no block is left that could move to a file.
            OSError: blocks can't be written to the folder ``spill``.
        """
        try:
            # Before this storage is locked, since this locks another storage that the data are from.
            data, given = of_one_moment(_flip_list(data) if isinstance(data, list) else data)
            with self.lock:
                if not self.initialized:
                    with making_room(lambda: self.max_size):
                        self._init(data if isinstance(cursor, Integral) else selected(data, 0))
                own = leaves(self._storage)
                self._check(cursor, given, own)
                if set_cursor and len(self) >= self._memory.next_look:
                    self._memory.look(self.__len__, self.memory_bytes, self.stores(), self.stats, _drop_none)
                plain = {
                    path: x.to(self.device)
                    for path, x in given.items()
                    if not isinstance(own.get(path), CompressedTensor)
                }
                data = with_leaves(data, plain)
                if is_tensor_collection(data):
                    data = data.exclude(*(given.keys() - plain.keys()), inplace=True)
                if set_cursor and self._is_loaded:
                    end_loaded_episodes(self, cursor)
                    self._is_loaded = False
                write(self, own, given, cursor, partial(super().set, cursor, data, set_cursor=set_cursor))
        except BaseException as error:
            for writer in [buffer._writer for buffer in self.buffers_at_work() if set_cursor]:
                rows, size = torch.as_tensor(cursor).reshape(-1), self._total_shape
                # A writer moves its cursor before it writes: move it back.
                if isinstance(writer, RoundRobinWriter) and (not size or writer._cursor == (rows[-1] + 1) % size[0]):
                    writer._cursor, writer._write_count = int(rows[0]), writer._write_count - len(rows)
            if isinstance(data, list) and isinstance(error, Exception):
                raise RuntimeError(f"Stacking the elements of the list resulted in an error: {error}") from error
            raise

    @says_memory_error
    def _apply_conditional_patch(self, index: torch.Tensor, patch: Mapping[Any, torch.Tensor]) -> None:
        # Before the lock is held, as in `set`.
        patch = {key: x.decoded() if isinstance(x, CompressedTensor) else x for key, x in patch.items()}
        changed = {key: self._conditional_patch_leaf(key) for key in patch}
        plain = {key: x for key, x in patch.items() if not isinstance(changed[key], CompressedTensor)}
        given = plain | {key: patch[key].to(changed[key].dtype) for key in patch.keys() - plain.keys()}
        with self.lock:
            at = tuple(index.unbind(-1)) if index.ndim > 1 else (index,)
            write(self, changed, given, at, partial(super()._apply_conditional_patch, index, plain))

    @not_compiled
    @says_memory_error
    def end_episodes(self, envs: Any = None) -> None:
        """End the running episodes, as truncated ones: the next items begin others.

        ``("next", "done")`` and ``("next", "truncated")`` become true in the items that were written last: TorchRL's
        samplers of slices look for them. Call this after a reset that no item has announced. The first write after a
        checkpoint was loaded does so, unless ``continue_episodes`` is True.

        Args:
            envs: where ``ndim`` is more than 1, the places along the other axes that count items, as if these were one:
                a number or ``i64[n]``; None for all.

        Raises:
            ShapeError: there is no such place.
            DTypeError: ``envs`` are no integers.
        """
        with self.lock:
            if len(self):
                last = self._last_cursor_index
                row = self._len_along_dim0 - 1 if last is None else last
                end_episodes(self, row, as_envs(envs, self.n_per_row))

    def note_loaded(self) -> None:
        """Remember that the next item begins an episode, unless those that were running go on."""
        self._is_loaded = bool(len(self)) and not self.continue_episodes

    @property
    def n_per_row(self) -> int:
        """How many items there are in a row."""
        return math.prod(self._total_shape[1:]) if self.initialized else 1

    def _set_tree_map(self, cursor: Any, data: Any, storage: Any) -> None:
        """Write the plain leaves of a pytree; ``write`` writes the compressed ones."""

        def write_leaf(x: Any, leaf: Any) -> None:
            if not (isinstance(x, torch.Tensor) and isinstance(leaf, CompressedTensor)):
                leaf[cursor] = x

        tree_map(write_leaf, data, storage)

    def decide(self) -> None:
        """Wait until the codecs are chosen, by the rows so far, and all tensors are compressed with them.

        Without this call, both happen in the background as soon as there are ``decide_after`` tensors.
        """
        for store in self.stores():
            store.decide()

    def stats(self) -> BufferStats:
        """Statistics of the storage and of each leaf; see ``obscodec.stats.BufferStats``."""
        rows = {".".join(path): leaf[: self._len_along_dim0] for path, leaf in leaves(self._storage).items()}
        arrays = {name: leaf.array for name, leaf in rows.items() if isinstance(leaf, CompressedTensor)}
        stored = {store: store.stats() for store in self.stores()}
        stats = BufferStats(
            {name: stored[arrays[name].store] if name in arrays else leaf.nbytes for name, leaf in rows.items()},
            id_bytes=sum(array.ids.nbytes for array in arrays.values()),
            waiting_bytes=0,
            other_bytes=0,
            raw_bytes=sum(leaf.nbytes for leaf in rows.values()),
        )
        return self._memory.stats(stats, len(self), self.memory_bytes())

    def __repr__(self) -> str:
        return f"{super().__repr__().removesuffix(')')}, \n    size={self.stats().summary})"

    def manifest(self) -> State:
        """See ``obscodec.snapshots.Saved``."""
        layouts = {
            ".".join(path): f"{str(leaf.dtype).removeprefix('torch.')}{[*leaf.shape[self.ndim :]]}"
            for path, leaf in leaves(self._storage).items()
        }
        return self.stats().manifest(layouts, len(self), None)

    def memory_bytes(self) -> int:
        """About the memory of all items, known at once."""
        of_rows, n_rows = 0.0, int(self._len_along_dim0 or 0)
        for leaf in leaves(self._storage).values():
            array = leaf.array.ids if isinstance(leaf, CompressedTensor) else leaf
            of_rows += array.nbytes / len(array)
        return sum(store.memory_bytes for store in self.stores()) + int(of_rows * n_rows)

    def stores(self) -> frozenset[Store]:
        """The stores of compressed leaves, each once."""
        return frozenset(leaf.array.store for leaf in self.compressed().values())

    def compressed(self) -> dict[Key, CompressedTensor]:
        """The leaves that are compressed, by their paths; ``leaf.array.store.stats()`` tells their memory."""
        return {path: leaf for path, leaf in leaves(self._storage).items() if isinstance(leaf, CompressedTensor)}

    def _empty(self) -> None:
        with self.lock:
            super()._empty()
            self._set_last_cursor(None)
            self.note_loaded()  # nothing
            for leaf in self.compressed().values():
                leaf.array.clear()

    def _init_standard(self, data: Any) -> None:
        others = [] if is_tensor_collection(data) else [x for x in tree_leaves(data) if not isinstance(x, torch.Tensor)]
        if others:
            what = f"a storage takes tensors of PyTorch, got {kind_of(others[0])}"
            raise obscodec.DTypeError(f"{what}: convert it, as in torch.as_tensor(x)")
        self.allocate(data, {path: timeless(path) for path in leaves(data)})

    def allocate(self, data: Any, groups: Mapping[Key, Hashable]) -> None:
        """Make room for items like those of a row; see :func:`new_stores` for the groups.

        TorchRL allocates an id for each compressed item; then compressed tensors take the places of the ids. Raises
        ShapeError if what is not compressed exceeds ``max_bytes``.
        """
        stores, ids, item_nbytes = new_stores(data, groups, self.options, self.ndim)
        self._memory.check(self.max_size, lambda n: int(n * item_nbytes))
        for store in stores.values():
            store.changing = self.lock
        super()._init_standard(with_leaves(data, ids))
        given, own = leaves(data), leaves(self._storage)
        arrays = {path: obscodec.TensorArray.zeros(own[path].shape, store) for path, store in stores.items()}
        made = {path: CompressedTensor(array, self.device or given[path].device) for path, array in arrays.items()}
        self._storage: Any = with_leaves(self._storage, made)

    def _check(self, index: Any, given: Mapping[Key, torch.Tensor], own: Mapping[Key, torch.Tensor]) -> None:
        """Refuse items that can't be written as a whole."""
        if given:  # else the data are one number for all leaves
            rows = torch.empty(()).expand(self._total_shape)[as_index(index)].shape  # by one of the CPU
            check_items(given, own, rows, self.ndim, self.options.large_nbytes)

    def buffers_at_work(self) -> list[ReplayBuffer]:
        """The buffers whose lock this thread holds."""
        return [x for x in self._attached_entities if isinstance(x, ReplayBuffer) and x._replay_lock._is_owned()]


def _drop_none(n: int) -> NoReturn:
    """With a folder to spill to, nothing is dropped."""
    raise AssertionError(n)


@not_compiled
def decoded(data: Any) -> Any:
    """``data`` with all leaves that were drawn from a storage decoded in place, those of each store together."""
    drawn = {k: x for k, x in leaves(data).items() if isinstance(getattr(x, "array", None), DrawnArray)}
    return with_leaves(data, decode(drawn), in_place=True)
