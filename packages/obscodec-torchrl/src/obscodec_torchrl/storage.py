"""CompressedStorage: TorchRL's LazyTensorStorage with its images in compressed stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import copy_context
from copy import deepcopy
from functools import partial
from numbers import Integral
from typing import Any, TypeVar, cast

import obscodec
import torch
from obscodec.arguments import as_count
from obscodec.buffers import BufferOptions, BufferStats
from obscodec.runtime import PicklableLock, says_memory_error
from tensordict import TensorDict, is_tensor_collection
from torch.utils._pytree import tree_map
from torchrl.data import LazyTensorStorage, ReplayBuffer, RoundRobinWriter
from torchrl.data.replay_buffers.storages import _flip_list

from obscodec_torchrl.arrays import DrawnArray, append_together, shared_stores, stats_of
from obscodec_torchrl.checkpointer import CompressedStorageCheckpointer
from obscodec_torchrl.checks import check_items
from obscodec_torchrl.compressed_tensor import (
    DRAWING,
    CompressedTensor,
    Device,
    as_index,
    decode,
    drawn_together,
    stored_array,
)
from obscodec_torchrl.leaves import Key, as_key, leaves, n_batch_axes, stacked, with_leaves
from obscodec_torchrl.remote_object import RemoteObject
from obscodec_torchrl.saving import Contents, contents_of, restore

_MIN_NBYTES = 1024  # below, a leaf is no image, and takes little as it is
_F = TypeVar("_F", bound=Callable[..., object])


def _not_compiled(function: _F) -> _F:
    reason = "a CompressedStorage is called from compiled code, but not compiled: leave fullgraph=True out"
    return cast("_F", torch.compiler.disable(function, reason=reason))  # type: ignore[no-untyped-call]


@RemoteObject.methods("get", "set", "_empty", "flatten", "stats", "dumps", "loads", "state_dict", "load_state_dict")
@RemoteObject.attributes("initialized", "max_size", "device", "_total_shape")
class RemoteStorage(LazyTensorStorage):  # type: ignore[misc]
    """What a worker is sent in place of a ``CompressedStorage``: it reads and writes that one, in the process of it.

    Slices are copies: what is written into them is in no storage.
    """

    __getstate__ = object.__getstate__  # that of TorchRL looks for contents


class CompressedStorage(LazyTensorStorage):  # type: ignore[misc]
    """A storage that keeps images compressed, without loss, and gives what ``LazyTensorStorage`` gives.

    Leaves of 1 KiB or more per item, or ``min_nbytes``, are compressed, the others are plain tensors. Leaves that
    differ in ``"next"`` only, such as ``"pixels"`` and ``("next", "pixels")``, share a store, in which each frame is
    stored once. A sampled batch is decoded after the lock of the buffer is released.

    Args:
        max_size: the most items to keep.
        ndim: how many axes of what is written are counted, as in ``LazyTensorStorage``.
        device: where sampled tensors are put; what is written is there, or on the CPU. ``"auto"`` is where the first
            tensordict is, or its leaves if it has no device.
        compilable: see ``LazyTensorStorage``. Compiled code calls this storage; what the storage does is not compiled.
        shared_init: whether a worker may make the first write, which it may here in any case.
        consolidated: False; compressed leaves are in no common block of memory.
        cleanup_memmap: without effect, since nothing is memory-mapped, and True if ``shared_init`` is.
        **options: those of ``obscodec.buffers.BufferOptions``, under keys that are names or nested tuples. ``codec`` is
            the spec of the codec of large leaves, such as ``"zstd:3"``; ``"auto"``, the default, to find the best one
            on the first items; None to compress nothing. Or it is a mapping from keys to specs for leaves of any size;
            the leaves that it does not name have ``"auto"``. ``decide_after`` is how many tensors, next ones included,
            are looked at before a store decides how it keeps them, and ``block_frames`` how many frames are encoded
            together. ``max_bytes`` is the most to reserve for the compressed items of each store. ``buffer_device`` is
            where they are, and are decoded: the GPU that is ``device``, which is the default if that is one, and needs
            obscodec-cupy; or ``"cpu"``, from where batches are copied. ``heap="pinned"`` keeps what is compressed in
            host memory that the GPU reads.

    Raises:
        SpecError: there is no such device or heap, or an option of ``LazyTensorStorage`` asks for what is not there.
        DTypeError: a number is none, or ``buffer_device`` is another GPU than ``device``.
        ShapeError: ``max_size``, ``ndim``, ``decide_after`` or ``block_frames`` is no whole number of 1 or more, or
            ``min_nbytes`` none of 0 or more.
        BackendUnavailable: ``buffer_device`` can't be used; the text names what is missing.
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
        **options: Any,
    ) -> None:
        if consolidated:
            raise obscodec.SpecError(
                "consolidated=True asks for all leaves in one block of memory, and compressed leaves are in none: "
                "leave it out"
            )
        if shared_init and not cleanup_memmap:
            raise obscodec.SpecError(
                "cleanup_memmap=False asks to keep memory-mapped files of shared_init=True, which writes none: "
                "leave it out"
            )
        if shared_init and compilable:
            raise obscodec.SpecError(
                "compilable=True is for a storage of one process, shared_init=True for one of several: leave one out"
            )
        max_size, ndim = as_count("max_size", max_size), as_count("ndim", ndim)
        super().__init__(max_size, device=device, ndim=ndim, compilable=compilable)
        self.shared_init = shared_init  # TorchRL's constructor would make locks and files for it
        options |= {n: {as_key(k): x for k, x in of.items()} for n, of in options.items() if isinstance(of, Mapping)}
        options.setdefault("buffer_device", self.device if str(self.device).startswith("cuda") else "cpu")
        self.options = BufferOptions[Key](**options)
        self.options.check(None if self.device == "auto" else lambda: torch.empty(1, device=self.device))
        self.lock = PicklableLock()

    def empty_copy(self) -> CompressedStorage:
        """A storage like this one, to which nothing was ever written."""
        device = "auto" if self.device is None else self.device  # None is what a tensordict without one leaves
        return CompressedStorage(
            self.max_size, ndim=self.ndim, device=device, compilable=self._compilable, **vars(self.options)
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        sent = RemoteObject.stand_in(self, RemoteStorage, without=("_storage", "_rng"))
        return sent or super().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompressedStorage:
        made = memo[id(self)] = self.__new__(type(self))
        with self.lock:
            copied = {path: deepcopy(leaf, memo) for path, leaf in leaves(self._storage).items()}
            memo[id(self._storage)] = with_leaves(self._storage, copied)  # deepcopy of a tensordict would decode
            made.__setstate__(deepcopy(self.__getstate__(), memo))
        return made

    def _make_init_directory(self) -> None:
        """Make none: a collector's workers would share there what one initializes, and ours call this process."""
        del self._init_lock, self._init_event  # which collectors set, and which can't be pickled

    def _init(self, data: Any) -> None:
        self._init_standard(data)

    def _wait_for_init(self) -> None:
        """Wait for nobody: what was never written is refused."""

    def attach(self, buffer: Any) -> None:
        """Attach a buffer, and have it decode what it samples when it collates, which it does without its lock."""
        super().attach(buffer)
        if getattr(buffer, "_init_collate_fn", self) is None:
            buffer._init_collate_fn = decoded

    @_not_compiled
    @says_memory_error
    def get(self, index: Any) -> Any:
        """The items that ``index`` selects; views, which write through, if that is an integer or a slice.

        Raises:
            RuntimeError: nothing was ever written.
            IndexError: the index is out of range.
        """
        context = copy_context()
        context.run(DRAWING.set, True)
        with self.lock:  # tensordict takes longer for the tuple of one tensor that a buffer gives
            items = context.run(super().get, index[0] if isinstance(index, tuple) and len(index) == 1 else index)
        return items if any(x._collate_fn is decoded for x in self._buffers_at_work()) else decoded(items)

    @_not_compiled
    @says_memory_error
    def set(self, cursor: Any, data: Any, *, set_cursor: bool = True) -> None:
        """Store items, all of them or none; see ``Storage.set``.

        Raises:
            FieldError: a key is missing, or one that ``codec`` names, or a leaf of 1 KiB or more was not there in the
                first write.
            ShapeError: a leaf has another shape than before.
            DTypeError: a leaf that is compressed has another dtype than before, or is on another device.
            IndexError: the index is out of range.
            SpecError: a spec names no codec.
            HeapFull: there is not enough room below ``max_bytes``.
        """
        try:
            # Before the lock is held: what is of another storage is read under that of it.
            data, given = _of_one_moment(_flip_list(data) if isinstance(data, list) else data)
            with self.lock:
                if not self.initialized:
                    first = data
                    if not isinstance(cursor, Integral):
                        first = data[0] if is_tensor_collection(data) else tree_map(lambda x: x[0], data)
                    self._init(first)
                own = leaves(self._storage)
                self._check(cursor, given, own)
                plain = {path: x.to(self.device) for path, x in given.items() if not _is_compressed(own.get(path))}
                data = with_leaves(data, plain)
                if is_tensor_collection(data):
                    data = data.exclude(*(given.keys() - plain.keys()), inplace=True)
                write = partial(super().set, cursor, data, set_cursor=set_cursor)
                self._write(own, given, cursor, write)
        except BaseException as error:
            for writer in [buffer._writer for buffer in self._buffers_at_work() if set_cursor]:
                rows, size = torch.as_tensor(cursor).reshape(-1), self._total_shape
                # it moves before it writes: back to where it was
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
        plain = {key: x for key, x in patch.items() if not _is_compressed(changed[key])}
        given = plain | {key: patch[key].to(changed[key].dtype) for key in patch.keys() - plain.keys()}
        with self.lock:
            at = tuple(index.unbind(-1)) if index.ndim > 1 else (index,)
            self._write(changed, given, at, partial(super()._apply_conditional_patch, index, plain))

    def _write(
        self,
        changed: Mapping[Any, torch.Tensor],
        given: Mapping[Any, torch.Tensor],
        index: Any,
        write_plain: Callable[[], None],
    ) -> None:
        """Write all that is given into some rows, or none of it if an exception ends that.

        Args:
            changed: the leaves of this storage that change.
            given: what is written into those that are compressed.
            index: which rows of each.
            write_plain: writes into the others, and notes how many items there are.
        """
        arrays = {key: x.array for key, x in changed.items() if isinstance(x, CompressedTensor)}
        new = append_together({key: stored_array(given[key]) for key in arrays if key in given}, arrays)
        at = as_index(index)
        compressed = {key: DrawnArray(array, at) for key, array in arrays.items()}
        plain = {key: x[index].clone() for key, x in changed.items() if key not in arrays}
        length, last = len(self), self._last_cursor_index
        try:
            write_plain()
            for tensors in new:
                tensors.put(at)
        except BaseException:
            for tensors in append_together(compressed, arrays):
                tensors.put(at)
            for key, rows in plain.items():
                changed[key][index] = rows
            self._len = length
            self._set_last_cursor(last)
            raise

    def _set_tree_map(self, cursor: Any, data: Any, storage: Any) -> None:
        """Write what is no tensordict, but for tensors that are stored compressed; :meth:`_write` does that."""

        def write(x: Any, leaf: Any) -> None:
            if not (isinstance(x, torch.Tensor) and _is_compressed(leaf)):
                leaf[cursor] = x

        tree_map(write, data, storage)

    def stats(self) -> BufferStats:
        """What the storage holds, for each leaf; see ``obscodec.buffers.BufferStats``."""
        written = {".".join(path): leaf[: self._len_along_dim0] for path, leaf in leaves(self._storage).items()}
        return stats_of({key: getattr(leaf, "array", leaf.nbytes) for key, leaf in written.items()})

    def state_dict(self) -> dict[str, Any]:
        """All that is stored, compressed leaves as messages in tensors of bytes; tensors, numbers and strings only."""
        saved = contents_of(self).as_tensordict().state_dict() if self.initialized else {}
        return {"_storage": saved, "initialized": self.initialized, "_len": len(self)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` gave, here or of a ``LazyTensorStorage`` or ``LazyMemmapStorage``.

        Raises:
            RuntimeError: nothing was ever written here, and what is stored are no tensordicts.
            ShapeError, FieldError, DTypeError or HeapFull: this storage can't hold these items, and keeps those it has.
            CorruptStream: a message is damaged.
        """
        if not state_dict["initialized"]:
            self._empty()
        elif isinstance(stored := state_dict["_storage"], Mapping):
            saved = TensorDict().load_state_dict(stored, strict=False)
            restore(self, Contents.of_tensordict(saved, state_dict["_len"], self.ndim), new_tensor=True)
        else:
            super().load_state_dict(state_dict)

    def compressed(self) -> dict[Key, CompressedTensor]:
        """The leaves that are compressed, by their paths; ``leaf.array.store.stats()`` tells their memory."""
        return {path: leaf for path, leaf in leaves(self._storage).items() if isinstance(leaf, CompressedTensor)}

    def _empty(self) -> None:
        with self.lock:
            super()._empty()
            for leaf in self.compressed().values():
                leaf.array.clear()

    def _init_standard(self, data: Any) -> None:
        """Let TorchRL allocate ids in place of what is compressed, and put compressed tensors of that shape there."""
        given = leaves(data)
        batches = {path: leaf.shape[: n_batch_axes(data, path, self.ndim - 1)] for path, leaf in given.items()}
        layouts = {
            path: obscodec.Layout(tuple(leaf.shape[len(batches[path]) :]), str(leaf.dtype).removeprefix("torch."))
            for path, leaf in given.items()
        }
        fields = self.options.fields_of(layouts, min_nbytes=_MIN_NBYTES)
        stores = shared_stores(fields, group=lambda path: (batches[path], *(name for name in path if name != "next")))
        for store in stores.values():
            store.changing = self.lock
        super()._init_standard(
            with_leaves(data, {path: torch.zeros(batches[path], dtype=torch.int32) for path in stores})
        )
        ids = leaves(self._storage)
        arrays = {path: obscodec.TensorArray.zeros(ids[path].shape, store) for path, store in stores.items()}
        made = {path: CompressedTensor(array, self.device or given[path].device) for path, array in arrays.items()}
        self._storage: Any = with_leaves(self._storage, made)

    def _check(self, index: Any, given: Mapping[Key, torch.Tensor], own: Mapping[Key, torch.Tensor]) -> None:
        """Refuse what could not be written as a whole."""
        if given:  # else it is a number for all leaves
            rows = torch.empty(()).expand(self._total_shape)[index].shape
            check_items(given, own, rows, self.ndim, self.options.large_nbytes)

    def _buffers_at_work(self) -> list[ReplayBuffer]:
        """The buffers whose lock this thread holds."""
        return [x for x in self._attached_entities if isinstance(x, ReplayBuffer) and x._replay_lock._is_owned()]


def _is_compressed(leaf: Any) -> bool:
    return isinstance(leaf, CompressedTensor)


def _of_one_moment(data: Any) -> tuple[Any, dict[Key, Any]]:
    """``data``, stacked if it is so lazily, with its compressed leaves as they are at one time; and its leaves."""
    data = stacked(data)
    given = leaves(data)
    compressed = {path: leaf for path, leaf in given.items() if isinstance(leaf, CompressedTensor)}
    if compressed:
        drawn = drawn_together(compressed)
        return with_leaves(data, drawn), given | drawn
    return data, given


@_not_compiled
def decoded(data: Any) -> Any:
    """``data``, with all that was drawn from a storage decoded in place, the leaves of each store together."""
    drawn = {k: x for k, x in leaves(data).items() if isinstance(getattr(x, "array", None), DrawnArray)}
    return with_leaves(data, decode(drawn), in_place=True)
