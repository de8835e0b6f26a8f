"""DeviceBatch: items of a storage, by places on the GPU that decodes its compressed leaves."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

import torch
from obscodec.devices import backend
from obscodec.torch import CompressedTensor

from obscodec_torchrl.leaves import leaves


class DeviceReader:
    """Reads the compressed leaves of a storage on their GPU. The caller holds the lock of the storage.

    Its ``BatchReader`` belongs to the storage alone, so its lock may come after that of the storage, against the order.
    ``data`` are those of the storage; its items have one axis for each of ``shape``, the first one of rows.
    """

    def __init__(self, data: Any, shape: tuple[int, ...]) -> None:
        self.data, self._shape = data, shape
        self.tensors = [x for x in leaves(data).values() if isinstance(x, CompressedTensor)]
        self._stores = list(dict.fromkeys(x.array.store for x in self.tensors))
        arrays = [x.array for x in self.tensors]
        self._fits = bool(arrays) and all(array.ids.shape == shape for array in arrays)
        self._reader: Any = None

    def batch(self, index: Any, n_rows: int) -> DeviceBatch | None:
        """The items that ``index`` selects of the first ``n_rows`` rows; None if the CPU must look at it."""
        parts = index if isinstance(index, tuple) else (index,)
        if not self._fits or len(parts) != len(self._shape) or not all(map(self._are_places, parts)):
            return None
        if not all(store.has_device_reader for store in self._stores):
            return None
        if self._reader is None:
            self._reader = backend(self._stores[0].device).batch_reader([x.array for x in self.tensors])
        # As torch counts them, from the end if they are negative.
        sizes = n_rows, *self._shape[1:]
        counted = tuple(part.add(part.lt(0), alpha=n) for part, n in zip(parts, sizes, strict=True))
        return DeviceBatch(self.tensors, self._reader, counted, self._places(counted, sizes))

    def _are_places(self, part: Any) -> bool:
        device = self.tensors[0].device
        return isinstance(part, torch.Tensor) and part.device == device and part.ndim == 1 and part.dtype == torch.int64

    def _places(self, index: tuple[torch.Tensor, ...], sizes: tuple[int, ...]) -> torch.Tensor:
        """The places ``i64[n]`` of items in an array; -1 for one that is out of range along an axis.

        The kernel itself looks at whether a place is in the array.
        """
        places, *others = index
        for part, n in zip(others, sizes[1:], strict=True):
            places = part.add(places, alpha=n)
        for part, n, size in zip(index, sizes, self._shape, strict=True):
            if others or n < size:
                places = places.masked_fill(part.lt(0).logical_or_(part.ge(n)), -1)
        return places

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        return type(None), ()  # a copy of a storage makes its own


class DeviceBatch:
    """Items of which the compressed leaves are decoded with one launch, after all of them were indexed.

    While it is in ``DEVICE_BATCH``, indexing a compressed tensor with its ``index`` returns room for the items.

    Args:
        tensors: the compressed leaves.
        reader: of their arrays, a ``BatchReader``.
        index: for each axis before the items ``i64[n]``, on the GPU.
        places: in the arrays, on the GPU.
    """

    def __init__(
        self, tensors: Sequence[CompressedTensor], reader: Any, index: tuple[torch.Tensor, ...], places: torch.Tensor
    ) -> None:
        self._reader, self.index, self._places = reader, index, places
        self._rooms = {id(x.array): _room(x, len(self._places)) for x in tensors}

    def room_for(self, array: object, index: Any) -> torch.Tensor | None:
        """Room for items of a compressed leaf; None if ``index`` is not that of the batch."""
        parts = index if isinstance(index, tuple) else (index,)
        is_own = len(parts) == len(self.index) and all(map(is_, parts, self.index))
        return self._rooms.get(id(array)) if is_own else None

    def read(self) -> None:
        """Queue the decoding of all leaves on the current stream."""
        self._reader.sync(self._places)
        self._reader.read(self._places, [*self._rooms.values()])


def _room(tensor: CompressedTensor, n: int) -> torch.Tensor:
    return torch.empty((n, *tensor.array.layout.shape), dtype=tensor.dtype, device=tensor.device)
