"""Batches that leave a process encoded: their pickles are one message, which becomes plain tensors where it arrives."""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem
from typing import Any

import numpy as np
import torch
from obscodec import FrameStore, Layout, TensorArray
from obscodec.arrays import DeferredRead
from obscodec.buffers import MIN_COMPRESSED_NBYTES
from obscodec.layout import FrameStack
from obscodec.stores import BATCH_MEMORY, find_frame_stack
from obscodec.torch import (
    PINNED_MEMORY,
    CompressedTensor,
    as_tensor,
    drawn_together,
    stored_array,
)
from obscodec.wire import SENDING_CODEC, EncodedBatch
from tensordict import is_tensor_collection
from torch.utils._pytree import tree_leaves

from obscodec_torchrl.leaves import Key, in_time, leaves, stacked, timeless, with_leaves
from obscodec_torchrl.new_tensors import append_together

_N_LOOKED_AT = 32  # steps


class SentLeaves:
    """The leaves of a batch, of which those of compressed items are encoded when they are pickled."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors

    def __reduce__(self) -> tuple[Any, ...]:
        tensors = dict(enumerate(self._tensors))
        drawn = drawn_together({k: x for k, x in tensors.items() if isinstance(x, CompressedTensor)})
        read = DeferredRead(lambda: [stored_array(x)[...] for x in (tensors | drawn).values()])
        return _received, (EncodedBatch.of(read).to_bytes(), [str(x.device) for x in self._tensors])


class SentTensor(torch.Tensor):
    """A tensor of the CPU that is pickled with the other leaves of its batch. What is computed from it is plain."""

    sent_with: tuple[SentLeaves, int]  # and which of these it is

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return getitem, self.sent_with


class SentCompressedTensor(CompressedTensor):
    """A compressed tensor that is pickled with the other leaves of its batch, and without its store."""

    sent_with: tuple[SentLeaves, int]

    def __reduce_ex__(self, protocol: Any) -> Any:
        return getitem, self.sent_with


def sent_encoded(batch: Any) -> Any:
    """A batch from a storage, which can be used as if it were decoded, and is encoded when it is pickled."""
    found = leaves(batch)
    if not any(isinstance(x, CompressedTensor) for x in found.values()):
        return batch
    sent = {key: made for key, x in found.items() if (made := _sent(x)) is not None}
    together = SentLeaves([found[key] for key in sent])
    for k, x in enumerate(sent.values()):
        x.sent_with = together, k
    return with_leaves(batch, sent)  # not in place: a slice of all items is the storage's own


def is_sent_encoded(batch: Any) -> bool:
    """Whether some tensors of a batch, maybe with what a sampler tells about it, are encoded when it is pickled."""
    return any(isinstance(x, SentCompressedTensor) for x in tree_leaves(batch))


def _frame_stack(observations: torch.Tensor, following: torch.Tensor | None) -> FrameStack | None:
    """How the large leaves of a group are made of frames, judged by some steps of it."""
    first, n = stored_array(observations[:_N_LOOKED_AT]), min(len(observations), _N_LOOKED_AT)
    if following is None:
        return find_frame_stack(first[...], np.zeros(n, np.int64))
    pairs = np.stack([first[...], stored_array(following[:n])[...]], axis=1)
    return find_frame_stack(pairs.reshape(2 * n, *first.shape[1:]), np.arange(n).repeat(2))


def _sent(x: torch.Tensor) -> SentTensor | SentCompressedTensor | None:
    if isinstance(x, CompressedTensor):
        return SentCompressedTensor(x.array, x.device)
    is_plain = type(x) is torch.Tensor and x.device.type == "cpu" and not x.requires_grad
    return x.as_subclass(SentTensor) if is_plain else None


def _received(message: bytes, devices: Sequence[str]) -> list[torch.Tensor]:
    """The leaves of a message, decoded with PyTorch's threads; in pinned memory if this process works with a GPU."""
    memory = PINNED_MEMORY if torch.cuda.is_initialized() else BATCH_MEMORY  # type: ignore[no-untyped-call]
    batch = EncodedBatch.from_bytes(message, max_bytes=None)  # pickles come from friends
    read = batch.read(new_array=memory.array, threads=torch.get_num_threads())
    return [as_tensor(x).to(device) for x, device in zip(read, devices, strict=True)]


def encoded(items: Any) -> Any:
    """A copy of items ``[*batch]`` that is sent encoded, without the rest of what they are slices of.

    Their leaves of 1 KiB or more are compressed, each frame once for the leaves of a step and of the next one.
    Data that are no tensordict are returned as they are.
    """
    if not is_tensor_collection(items) or not items.batch_size.numel():
        return items
    items = stacked(items).to("cpu")
    flat = items.reshape(-1)  # the store sees a step after the other
    given = {path: x for path, x in leaves(flat).items() if x[0].nbytes >= MIN_COMPRESSED_NBYTES}
    stores: dict[object, FrameStore] = {}
    arrays: dict[Key, TensorArray] = {}
    for path in in_time(given):
        layout = Layout(tuple(given[path].shape[1:]), str(given[path].dtype).removeprefix("torch."))
        group = timeless(path), layout
        if group not in stores:
            following = next((x for k, x in given.items() if k != path and timeless(k) == group[0]), None)
            is_alike = following is not None and (following.shape, following.dtype) == (
                given[path].shape,
                given[path].dtype,
            )
            stack = _frame_stack(given[path], following if is_alike else None)
            stores[group] = FrameStore(layout, codec=SENDING_CODEC, frame_stack=stack)
        arrays[path] = TensorArray.zeros((len(flat),), stores[group])
    for new in append_together({path: stored_array(given[path]) for path in arrays}, arrays, (slice(None),)):
        new.put()
        new.close()
    for store in stores.values():
        store.log.compress()  # else the blocks that wait for others are sent as they are
    drawn = drawn_together({path: CompressedTensor(array) for path, array in arrays.items()})
    batch = items.batch_size
    plain = {path: x.clone() for path, x in leaves(items).items() if path not in drawn}
    return sent_encoded(
        with_leaves(items, plain | {path: x.reshape(*batch, *x.shape[1:]) for path, x in drawn.items()})
    )
