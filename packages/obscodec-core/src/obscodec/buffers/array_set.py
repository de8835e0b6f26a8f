"""ArraySet: the arrays of a buffer, which share stores."""

from collections import Counter
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_option, check_kind
from obscodec.arrays import DeferredRead, Index, TensorArray, WriteBuffer, places_together
from obscodec.buffers.field import Array, Field, check_fields, check_name, lengths_of, with_lengths
from obscodec.buffers.ragged_array import RaggedArray
from obscodec.buffers.rearranged import NOTHING, Rearranged, places_before
from obscodec.devices import from_device
from obscodec.errors import CorruptStream, LayoutError, ObscodecError, SpecError
from obscodec.layout import ArrayLike
from obscodec.segments import Ints
from obscodec.state import State, array_of, number_of, part_of
from obscodec.stats import BufferStats, StoreStats
from obscodec.stores import Store

_COPIED_NBYTES = 1 << 24  # of items that are decoded at a time
_MOST_SEQUENCES = 1 << 16  # of a store that is read from a file
_FEW_STEPS, _MANY_ENVS = 64, 16  # a block of each environment would mostly stay open


class ArraySet:
    """The arrays of a buffer, compressed field by field.

    Arrays of one field, such as observations and next observations, share a store. So do fields of which one names the
    other in ``shares`` or ``next_of``. The store keeps each frame once.

    Args:
        fields: the fields of a step of one environment.
        n_envs: how many environments step together.
        threads: how many threads decode a batch, None for half of the usable processors.
        n_steps: how many steps the arrays have, None for many.
        twice: whether each field has two arrays, of a step and of the next one.

    Attributes:
        owners: for each field the name of the field that has its store.
        stores: for each field its store, None if it is not compressed.

    Raises:
        SpecError: the codec of a field does not take its tensors.
        ShapeError: a field does not divide into its frame stack, a number is out of range, or fields that share a
            store differ in shape or dtype.
        DTypeError: an argument has another type.
        FieldError: a field shares the store of a field that does not exist, or that has no store of its own.
    """

    def __init__(
        self,
        fields: Mapping[str, Field],
        n_envs: int = 1,
        threads: int | None = None,
        *,
        n_steps: int | None = None,
        twice: bool = False,
    ) -> None:
        check_fields(fields)
        self.fields = fields = with_lengths(fields)
        self.n_envs = n_envs = as_count("n_envs", n_envs)
        threads = as_option("threads", threads)
        self.owners = {name: field.owner or name for name, field in fields.items()}
        later = {owner: field.after for name, field in fields.items() if (owner := field.owner) is not None}
        self._stored_twice = {*fields} if twice else {*later}
        self.has_few_steps = n_steps is not None and n_steps <= _FEW_STEPS and self.n_envs >= _MANY_ENVS
        own = dict[str, Store | None]()
        for name, field in fields.items():
            if field.owner is not None:
                continue
            twice, after = name in self._stored_twice, later.get(name, 1)
            interleaved = self.has_few_steps and not twice
            try:
                own[name] = field.new_store(threads, twice=twice, interleaved=interleaved, after=after)
            except (SpecError, LayoutError) as error:
                raise _of_field(name, error) from None
        self.stores: dict[str, Store | None] = {name: own[owner] for name, owner in self.owners.items()}
        self._rows = {name: ((n_envs, *field.layout.shape), field.layout.dtype) for name, field in fields.items()}
        self._write_buffers: dict[tuple[str, int], WriteBuffer] = {}  # by owner, and of its n-th page
        self._n_waiting: dict[str, int] = {}  # rows of one step, by owner
        self._arrays: dict[tuple[str, str], Array | TensorArray] = {}
        self._ragged: dict[str, RaggedArray] = {}
        self.n_samples, self.sample_s = 0, 0.0

    @property
    def names(self) -> set[str]:
        """The names of the arrays."""
        return {array for array, _ in self._arrays}

    def zeros(self, array: str, field: str, n_steps: int, *, waiting: int, page: int = 0) -> Array | TensorArray:
        """An array ``[n_steps, n_envs, *field_shape]``, which takes no memory until it is written.

        Args:
            array: a name for the array. The former array of this name and field is emptied; do not use it any more.
            field: the name of its field.
            n_steps: how many steps it has.
            waiting: how many assigned steps may wait in a write buffer, so that some are stored together; small steps
                wait in larger numbers, and large ones not with 0; :meth:`reserve` and :meth:`forget` then do nothing
                for these. Arrays that share a store share its write buffer. A store with ``max_bytes`` has none, since
                it could refuse steps long after they were assigned.
            page: which page of the field the array has: each has a write buffer, and sequences, of its own.
        """
        check_kind("array", array, str, "a name")
        check_name(field, self.fields)
        n_steps, waiting = as_count("n_steps", n_steps, 0), as_count("waiting", waiting, 0)
        former, store = self._arrays.pop((array, field), None), self.stores[field]
        if isinstance(former, TensorArray):
            former.clear()
        made: Array | TensorArray
        if store is None:
            shape, dtype = self._rows[field]
            made = np.zeros((n_steps, *shape), dtype)
        else:
            owner = self.owners[field]
            key = owner, page
            if self.fields[owner].max_bytes is None and key not in self._write_buffers:
                min_rows = waiting if owner in self._stored_twice else 0
                first = page % max(1, _MOST_SEQUENCES // self.n_envs) * self.n_envs
                self._write_buffers[key] = WriteBuffer(store, self.n_envs, min_rows, first)
            made = TensorArray.zeros((n_steps, self.n_envs), store, self._write_buffers.get(key))
        self._arrays[array, field] = made
        self._n_waiting = dict(Counter(self.owners[of] for _, of in self._arrays))
        return made

    def ragged(self, field: str, n_steps: int, *, waiting: int) -> RaggedArray:
        """:meth:`zeros` for a field of different lengths; an array of its lengths is there."""
        lengths: Any = self._arrays[lengths_of(field), lengths_of(field)]
        self._ragged[field] = RaggedArray(lengths, partial(self._new_page, field, n_steps, waiting))
        return self._ragged[field]

    def _new_page(self, field: str, n_steps: int, waiting: int, number: int) -> TensorArray:
        page = self.zeros(f"{field}/{number}", field, n_steps, waiting=waiting, page=number)
        assert isinstance(page, TensorArray)
        return page

    def with_array(self, name: str, field: Field, array: TensorArray) -> Self:
        """These arrays and one more, ``[n_steps, n_envs, *field_shape]``, with a new field of its name.

        The array has a store of its own, and a write buffer.
        """
        made, store = copy(self), array.store
        made.fields, made.owners = {**self.fields, name: field}, {**self.owners, name: name}
        made.stores = {**self.stores, name: store}
        made._rows = {**self._rows, name: ((self.n_envs, *field.layout.shape), field.layout.dtype)}
        made._write_buffers = dict(self._write_buffers)
        if array.write_buffer is not None:
            made._write_buffers[name, 0] = array.write_buffer
        made._n_waiting, made._arrays = {**self._n_waiting, name: 1}, {**self._arrays, (name, name): array}
        return made

    def step(
        self, field: str, value: ArrayLike | npt.ArrayLike, n_envs: int | None = None, *, many: bool = False
    ) -> Array:
        """``value`` as a step of all environments, or of ``n_envs``, or as ``many`` steps; see ``Field.fitted``.

        For a compressed field on a GPU, ``value`` may also be an array on that GPU; it is downloaded.
        """
        shape, dtype = self._rows[field]
        if n_envs is None and not many and type(value) is np.ndarray and value.shape == shape and value.dtype == dtype:
            return value
        store = self.stores[field]
        if store is not None:
            value = from_device(store.device, value)
        try:
            return self.fields[field].fitted(value, self.n_envs if n_envs is None else n_envs, many=many)
        except LayoutError as error:
            raise _of_field(field, error) from None

    def reserve(self, row: int) -> None:
        """Make room for a step in ``row`` of all arrays; see ``WriteBuffer.reserve``."""
        for (owner, _), write_buffer in self._write_buffers.items():
            write_buffer.reserve(row, self._n_waiting[owner])

    def forget(self, row: int) -> None:
        """Undo the assignment of a step to ``row`` of all compressed arrays; without write buffer, it is zero then."""
        for write_buffer in self._write_buffers.values():
            write_buffer.forget(row)
        for array in self._arrays.values():
            if isinstance(array, TensorArray) and array.write_buffer is None:
                array.clear(row)

    def drop(self, index: Index) -> None:
        """Set the items that an index selects of each compressed array to zero, and release their tensors."""
        for array in self._arrays.values():
            if isinstance(array, TensorArray):
                array.clear(index)

    @property
    def own_stores(self) -> set[Store]:
        """The stores of all compressed fields, each once."""
        return {store for store in self.stores.values() if store is not None}

    def memory_bytes(self, n_steps: int) -> int:
        """About the memory of the arrays, if ``n_steps`` of their rows were ever used; known at once."""
        of_row = 0
        for (_, field), array in self._arrays.items():
            row = array.id_nbytes if isinstance(array, TensorArray) else self.fields[field].layout.nbytes
            of_row += row * self.n_envs
        waiting = sum(write_buffer.memory_bytes for write_buffer in self._write_buffers.values())
        return n_steps * of_row + waiting + sum(store.memory_bytes for store in self.own_stores)

    def state(self, n_steps: int) -> State:
        """The first ``n_steps`` of all arrays, all stores, and the count of samples: see ``obscodec.state``."""
        stores = {owner: self.stores[owner] for owner in dict.fromkeys(self.owners.values())}
        of_stores = {owner: store.state() for owner, store in stores.items() if store is not None}
        arrays: list[State] = []
        for (name, field), array in self._arrays.items():
            items = array.ids if isinstance(array, TensorArray) else array
            arrays.append({"name": name, "field": field, "items": items[:n_steps].copy()})
        return {"stores": of_stores, "arrays": arrays, "n_samples": self.n_samples, "sample_s": self.sample_s}

    def restore(self, state: State, rows: Ints) -> None:
        """Fill the arrays, which are new: step ``k`` of the state, of equal arrays, goes to row ``rows[k]``."""
        of_stores, arrays = part_of(state, "stores", dict), part_of(state, "arrays", list)
        own = {owner for owner in self.owners.values() if self.stores[owner] is not None}
        for of in arrays:
            if of["field"] in self._ragged and (of["name"], of["field"]) not in self._arrays:
                self._ragged[of["field"]].grow(self._ragged[of["field"]].n_pages + 1)
        by_key = {(of["name"], of["field"]): of for of in arrays}
        if not {*of_stores} <= own or by_key.keys() != self._arrays.keys():
            raise CorruptStream(f"the arrays are {[*self._arrays]}, with stores of {own}, got others")
        for owner, store in self.stores.items():
            if store is not None and owner in of_stores:
                store.restore(part_of(of_stores, owner, dict))
        plain: list[tuple[TensorArray, Array]] = []  # what a former version has not compressed
        for key, array in self._arrays.items():
            was_stored = self.owners[key[1]] in of_stores
            items = array.ids if was_stored and isinstance(array, TensorArray) else array
            found = array_of(by_key[key], "items", items.dtype, (len(rows), *items.shape[1:]))
            if isinstance(items, TensorArray):
                plain.append((items, found))
            else:
                items[rows] = found
        for k, row in enumerate(rows.tolist() if plain else ()):  # step by step, so that a next observation is known
            for tensors, found in plain:
                tensors[row] = found[k]
        for ragged in self._ragged.values():
            ragged.check()
        self.n_samples, self.sample_s = number_of(state, "n_samples"), part_of(state, "sample_s", float)

    def restore_rearranged(self, state: State, numbers: Ints) -> None:
        """Fill the arrays, which are new, with the steps of other environments.

        Only a step that has a second place is decoded, and stored once more; the ids of the others move. ``state`` is
        of arrays with another number of environments, ``numbers`` are ``Rearranged.numbers`` of the rows of the state.
        """
        arrays, places = part_of(state, "arrays", list), places_before(numbers)
        once = np.where(places == NOTHING, numbers, NOTHING)  # a place owns its reference
        filled = [{**of, "items": Rearranged.picked(of["items"], once)} for of in arrays]
        self.restore({**state, "arrays": filled}, np.arange(len(numbers)))
        self.put_copies(self, places)
        for of, array in zip(arrays, self._arrays.values(), strict=True):
            if isinstance(array, TensorArray):
                array.store.release(np.delete(of["items"].reshape(-1), once[once != NOTHING]))

    def put_copies(self, other: "ArraySet", numbers: Ints) -> None:
        """Store items of equal arrays of another set once more; compressed ones are decoded, some at a time.

        ``numbers``, ``i64[n_rows, n_envs]``, are those of the items that go there, row by row of the other set; -1 for
        none. What several arrays have is decoded together, and stored in the order of time.
        """
        rows, envs = np.nonzero(numbers != NOTHING)
        for name, ragged in self._ragged.items():
            ragged.grow(other._ragged[name].n_pages)
        for owner in self.stores:
            # None if it has no store of its own; another set may have fewer pages.
            keys = [key for key in self._arrays if self.owners[key[1]] == owner and key in other._arrays]
            n = max(1, _COPIED_NBYTES // max(1, len(keys) * self.fields[owner].layout.nbytes))
            for begin in range(0, len(rows) if keys else 0, n):
                at = rows[begin : begin + n], envs[begin : begin + n]
                self._put_copies(keys, at, other, np.divmod(numbers[at], other.n_envs))

    def _put_copies(
        self, keys: list[tuple[str, str]], at: tuple[Ints, Ints], other: "ArraySet", there: tuple[Ints, Ints]
    ) -> None:
        """:meth:`put_copies` for some arrays, which share a store or are plain, and rows and environments of both."""
        items: list[Array] = DeferredRead(lambda: [other._arrays[key][there] for key in keys], _new_items).result()
        arrays = [self._arrays[key] for key in keys]
        compressed = [array for array in arrays if isinstance(array, TensorArray)]
        if not compressed:
            for array, of_array in zip(arrays, items, strict=True):
                array[at] = of_array
            return
        store, n = compressed[0].store, len(arrays)
        tensors = np.stack(items, 1).reshape(-1, *store.layout.shape)
        which = np.arange(len(tensors)).reshape(-1, n).T.reshape(-1)
        with store.changing:
            store.exchange(places_together(compressed, at)[0], tensors, which, np.repeat(at[1], n))

    def forget_damaged(self) -> Ints:
        """Set the rows of all arrays whose tensors can't be decoded to zero; ``i64[n, 2]``, their steps and envs."""
        arrays = [array for array in self._arrays.values() if isinstance(array, TensorArray)]
        lost: Ints = np.unique(
            np.concatenate([np.empty((0, 2), np.int64), *(a.forget_damaged() for a in arrays)]), axis=0
        )
        return lost

    def flush(self) -> None:
        """Store the steps that wait."""
        for write_buffer in self._write_buffers.values():
            write_buffer.flush()

    def stats(self, n_tensors: int) -> BufferStats:
        """What the arrays hold, if ``n_tensors`` items of each were written. Steps that wait are stored first."""
        self.flush()
        plain = dict.fromkeys(self.fields, 0)
        for _, field in self._arrays:
            if field not in self._ragged:
                plain[field] += n_tensors * self.fields[field].layout.nbytes
        plain |= {field: round(n_tensors * ragged.mean_nbytes) for field, ragged in self._ragged.items()}
        stored = {store: store.stats() for store in self.stores.values() if store is not None}
        fields = {name: plain[name] if store is None else stored[store] for name, store in self.stores.items()}
        return BufferStats(
            fields,
            id_bytes=sum(n_tensors * a.id_nbytes for a in self._arrays.values() if isinstance(a, TensorArray)),
            waiting_bytes=sum(write_buffer.memory_bytes for write_buffer in self._write_buffers.values()),
            other_bytes=0,
            raw_bytes=sum(plain.values()),
            n_samples=self.n_samples,
            sample_s=self.sample_s,
        )

    def described(self, stats: BufferStats) -> str:
        """The size and the fields for a reader, in two lines: their layouts, and how they are kept."""
        texts = []
        for name, field in self.fields.items():
            of, kept = stats.fields[name], f" with {field.owner}"
            if field.owner is None:
                kept = "" if isinstance(of, int) else f" {of.codec}"
                kept += f" ({of.waits_for})" if isinstance(of, StoreStats) and of.waits_for else ""
            texts.append(f"{name}: {field.described}{kept}" if name else f"{field.described}{kept}")
        return f"{stats.summary}\n  {'; '.join(texts)}"


def _new_items(store: Store, n: int) -> Array:
    return store.layout.tensors(np.empty((n, store.layout.nbytes), np.uint8))


def _of_field(name: str, error: ObscodecError) -> ObscodecError:
    """The same error, and which field it is about: in a buffer of an adapter, one without a name has observations."""
    return type(error)(f"field {name!r}: {error}" if name else f"observations: {error}")
