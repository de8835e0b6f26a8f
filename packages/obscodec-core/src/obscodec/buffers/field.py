"""Field: shape and dtype of one part of a step, and how a buffer keeps it."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import among, as_count, as_of, as_option, check_kind, closest, kind_of, says_arguments, warn
from obscodec.errors import FieldError, ShapeError, SpecError
from obscodec.layout import ArrayLike, Layout, as_dtype, as_numbers, is_common
from obscodec.state import State, part_of
from obscodec.stores import AutoStore, Store, StoreOptions

MIN_COMPRESSED_NBYTES = 1024  # below, a field is mostly a vector, and takes little as it is
_MIN_SHARED_NBYTES = 128  # below, sharing saves less than a third, and a step takes ten times as long to store
_PAGE_NBYTES = 4096  # at most, as saved buffers have it
_MOST_DEPTH = 4  # of a stack, in most cases

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class _Items:
    """What stands before the options of a :class:`Field`."""

    shape: tuple[int | None, ...]
    dtype: npt.DTypeLike


@says_arguments
@dataclass(frozen=True)
class Field(StoreOptions, _Items):
    """One part of a step of one environment, such as its observation.

    Attributes:
        shape: its shape, ``()`` for a scalar. With None in front, as in ``(None, 3)``, the length differs from step to
            step, as of point clouds, texts and graphs. It is stored in pages of 4 KiB.
        dtype: its dtype.
        codec: the spec of its codec, such as ``"delta-rle"``; ``"auto"`` to find the best codec, if the field has
            ``min_nbytes`` or more; None for a plain numpy array.
        frame_stack: how an observation is made of frames, None to find out; a number for so many along axis 0.
        budget: for ``"auto"``, ``"fast"`` to try only codecs that read as fast as plain arrays, by a fixed table.
        min_nbytes: for ``"auto"``, the least bytes of a step to compress, None for 1 KiB, or 128 bytes if the next step
            is stored, too: then each frame is stored once, with a codec of the budget ``"fast"``.
        decide_after: how many tensors its store looks at before it decides how to keep them, None for 256, or as many
            as have 16 MB, but 16 at least.
        block_frames: how many frames are encoded together, None for 16 with ``delta-rle``, 1 with other codecs, and the
            best of both with ``"auto"``. Larger blocks take less memory, and more time to read a single frame.
        max_bytes: the most bytes to reserve for its streams, None for no limit.
        shares: a field of the same shape and dtype whose store keeps this field, too, with all its options. If
            ``next_obs`` shares the store of ``obs``, each frame is stored once.
        next_of: the field that this field is one step later: ``Field((84, 84), "uint8", next_of="obs")``. It shares the
            store of that field, so that no compressed frame is kept twice. In a RingBuffer, it is stacked as that field
            is, and with ``n_step`` it is the one after the last of the steps.
        device: where it is decoded, ``"cpu"`` or a GPU such as ``"cuda"``; ``"auto"`` takes a codec that the GPU
            decodes. What it can't decode is decoded on the CPU and copied; a warning says so. A field that is not
            compressed is a numpy array all the same. bfloat16, float8 and times stay on the CPU.
        heap: where a GPU reads the streams: in a copy in its own memory, ``"device"``, or in ``"pinned"`` host memory.
        recent: with how many of the last frames of its environment a new frame is compared, so that none is stored
            twice; None to find out.
        interleaved: whether blocks have the frames of all environments, one after the other, which takes less memory
            for many environments with few steps each. A RingBuffer with 64 steps or fewer of 16 environments or more
            does so anyway.
        after: how many steps later the field is than that in ``next_of``, for loops that store the observation at the
            end of some steps, with the sum of their rewards.

    Raises:
        SpecError: the spec names no codec, or a level that the codec does not offer; the budget is malformed, or is
            given for another codec than ``"auto"``; or there is no such device or heap.
        BackendUnavailable: the device can't be used; the text names what is missing.
        ShapeError: a shape or a number is out of range.
        DTypeError: the dtype can't be stored, or an argument has another type.
        FieldError: a field that shares a store has options of its own, or both ``shares`` and ``next_of``.

    Example:
        >>> Field((84, 84), np.uint8, "zstd:1").codec
        'zstd:1'
    """

    codec: str | None = "auto"  # again, since it may be given without its name
    min_nbytes: int | None = field(default=None, kw_only=True)
    shares: str | None = field(default=None, kw_only=True)
    next_of: str | None = field(default=None, kw_only=True)
    after: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        vars(self)["shape"] = (None, *self.layout.shape[1:]) if self.is_ragged else self.layout.shape
        if self.is_ragged and (self.codec is None or self.min_nbytes is not None or self.frame_stack is not None):
            raise SpecError("a field of different lengths has pages: name a codec, and no min_nbytes and frame_stack")
        super().__post_init__()
        vars(self)["min_nbytes"] = as_option("min_nbytes", self.min_nbytes, 0)
        vars(self)["after"] = as_count("after", self.after)
        if self.next_of is None and self.after != 1:
            raise FieldError("after tells how many steps later a field is than another one: pass next_of, too")
        if self.owner is not None:
            if self.shares is not None and self.next_of is not None:
                raise FieldError("next_of shares the store of the field it names: leave out shares")
            options = [of for of in fields(self) if of.name not in ("shape", "dtype", "shares", "next_of", "after")]
            if named := [of.name for of in options if getattr(self, of.name) != of.default]:
                what = "a field that shares a store takes the options of the field that owns it"
                raise FieldError(f"{what}: leave out {', '.join(named)}")

    @property
    def owner(self) -> str | None:
        """The field whose store keeps this field, None for one of its own."""
        return self.shares if self.next_of is None else self.next_of

    @cached_property
    def is_ragged(self) -> bool:
        """Whether its length differs from step to step."""
        return isinstance(self.shape, (list, tuple)) and len(self.shape) > 0 and self.shape[0] is None

    @cached_property
    def layout(self) -> Layout:
        """The layout of one step of one environment, or of a page."""
        fixed = self.shape[1:] if self.is_ragged else self.shape
        try:
            row = Layout(fixed, self.dtype)  # type: ignore[arg-type]  # no None
        except ShapeError as error:
            if isinstance(fixed, (list, tuple)) and any(n is None or (type(n) is int and n < 0) for n in fixed):
                raise ShapeError(f"{error}: of an axis whose length differs, write None, in front: (None, 3)") from None
            raise
        if not self.is_ragged:
            return row
        if not row.nbytes:
            raise ShapeError(f"a row has at least one byte, got {self.shape}")
        return Layout((max(1, _PAGE_NBYTES // row.nbytes), *row.shape), self.dtype)

    @property
    def described(self) -> str:
        """Dtype and shape, for a reader."""
        return f"{self.layout.dtype}{[*self.shape]}" if self.is_ragged else str(self.layout)

    def config(self) -> State:
        """Plain values that :meth:`from_config` takes."""
        options = {of.name: getattr(self, of.name) for of in fields(self) if of.name not in ("shape", "dtype")}
        return {"layout": self.layout, **({"is_ragged": True} if self.is_ragged else {}), **options}

    @classmethod
    def from_config(cls, config: State) -> Self:
        """The field that :meth:`config` described."""
        layout, options = part_of(config, "layout", Layout), {**config}
        shape = (None, *layout.shape[1:]) if options.pop("is_ragged", False) else layout.shape
        del options["layout"]
        return cls(shape, layout.dtype, **options)

    def new_store(
        self, threads: int | None = None, *, twice: bool = False, interleaved: bool = False, after: int = 1
    ) -> Store | None:
        """A store for its tensors, which codec and frame stack must take; None if they are not compressed.

        Args:
            threads: see ``RingBuffer``.
            twice: whether nearly each tensor comes twice, as the next one of a step, too.
            interleaved: whether few tensors of each of many sequences are kept.
            after: how many steps later a tensor comes first.
        """
        layout, least = self.layout, MIN_COMPRESSED_NBYTES if self.min_nbytes is None else self.min_nbytes
        options: dict[str, Any] = {of.name: getattr(self, of.name) for of in fields(StoreOptions)}
        if self.codec == "auto" and layout.nbytes < least:
            if not twice or self.min_nbytes is not None or layout.nbytes < _MIN_SHARED_NBYTES:
                return None
            options["budget"] = "fast"
        if self.codec is None or layout.nbytes == 0:
            return None
        options["interleaved"] |= interleaved
        if self.is_ragged:
            options["frame_stack"] = 1  # a page that moves by a row is none
        if self.recent is None and after > 1:
            options["recent"] = 2 * after + _MOST_DEPTH
        if self.device != "cpu" and not is_common(layout.dtype):
            warn(f"items of {layout.dtype} are kept on the CPU: GPU libraries lack this dtype")
            options |= {"device": "cpu", "heap": "device"}
        return AutoStore(layout, threads=threads, **options)

    def fitted(self, value: ArrayLike | npt.ArrayLike, n_envs: int, *, many: bool = False) -> Array:
        """A step ``[n_envs, *shape]``, or ``many`` steps ``[n_steps, n_envs, *shape]``, of the dtype.

        If it :attr:`is_ragged`, an array of arrays, ``object[n_envs]`` or ``object[n_steps, n_envs]``.

        Args:
            value: anything that numpy or DLPack can read. Of a step, the first axis may be missing if there is one
                environment, the last one if the shape is ``(1,)``.
            n_envs: how many environments step together.
            many: whether ``value`` has an axis more, of steps.

        Raises:
            ShapeError: it has another shape.
            DTypeError: the dtype would change a number.
        """
        if self.is_ragged:
            steps: Any = value
            if many and not np.iterable(value):
                raise ShapeError(f"expected an array of steps, got {kind_of(value)}")
            return _each([self._fitted(of, n_envs) for of in steps]) if many else self._fitted(value, n_envs)
        array: Array = as_numbers(value)
        if many and array.ndim == 0:
            raise ShapeError("expected an array of steps, got a number")
        layout, of_step = self.layout, array.shape[many:]
        shape = (*array.shape[:many], n_envs, *layout.shape)
        missing = (n_envs == 1 and of_step == layout.shape) or (layout.shape == (1,) and of_step in ((), (n_envs,)))
        if missing and array.size == math.prod(shape):
            array = array.reshape(shape)
        elif array.shape != shape:
            wanted, given = ([side for side in of if side != 1] for of in (shape, array.shape))
            is_turned = wanted != given and sorted(wanted) == sorted(given)
            hint = ": its axes are in another order, so transpose it, or declare its shape" if is_turned else ""
            raise ShapeError(f"expected shape {shape}, got {array.shape}{hint}")
        return as_dtype(array, layout.dtype)

    def _fitted(self, value: Any, n_envs: int) -> npt.NDArray[np.object_]:
        """Observations of different lengths, a list or an array of them, or the one of one environment."""
        axes, given = len(self.shape), value
        if not isinstance(value, (list, tuple)):
            value = value if getattr(value, "dtype", None) == np.object_ else as_numbers(value)
            if value.ndim == 0:
                raise ShapeError(f"expected {n_envs} arrays of shape {self.shape}, got {kind_of(given)}")
        if n_envs == 1 and (not len(value) or _n_axes(value[0]) < axes):
            value = [value]
        if len(value) != n_envs:
            raise ShapeError(f"expected {n_envs} arrays of shape {self.shape}, got {len(value)}")
        arrays = [as_numbers(array) for array in value]
        for array in arrays:
            if array.ndim != axes or array.shape[1:] != self.shape[1:]:
                raise ShapeError(f"expected shape {self.shape}, got {array.shape}")
        return _each([as_dtype(array, self.layout.dtype) for array in arrays])


def _n_axes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return 1 + (_n_axes(value[0]) if len(value) else 0)
    return int(getattr(value, "ndim", 0))


def _each(arrays: Sequence[Any]) -> npt.NDArray[np.object_]:
    """An array of arrays, or of the steps ``object[n_envs]`` of them."""
    shape = arrays[0].shape if arrays and arrays[0].dtype == object else ()
    made = np.empty((len(arrays), *shape), object)
    for k, array in enumerate(arrays):
        made[k] = array
    return made


def check_fields(fields: Mapping[str, Field]) -> None:
    """Refuse a mapping to something else than fields, and fields that can't share a store."""
    check_kind("fields", fields, Mapping, "a mapping from names to Fields, such as {'frame': Field((84, 84), 'uint8')}")
    for name, of in fields.items():
        described = "a Field, such as Field((84, 84), 'uint8')"
        check_kind(f"field {name!r}", of, Field, described, as_of("Field", of))
    for name, of in fields.items():
        if (owner := of.owner) is None:
            continue
        if not isinstance(owner, Hashable) or owner not in fields:
            others = (other for other in fields if other != name)
            raise FieldError(f"field {name!r} needs {owner!r}: {_no_field(owner, others)}")
        shared = fields[owner]
        if owner == name or shared.owner is not None:
            what = f"{name!r} can't share the store of {owner!r}, which has none of its own"
            raise FieldError(f"{what}: name the field that owns the store")
        if (shared.layout, shared.is_ragged) != (of.layout, of.is_ragged):
            what = f"{name!r} is {of.described}, {owner!r} is {shared.described}"
            raise ShapeError(f"fields that share a store have one shape and dtype, {what}")


def lengths_of(name: str) -> str:
    """The name of the lengths of a field whose length differs."""
    return f"{name}_lengths"


def with_lengths(fields: Mapping[str, Field]) -> dict[str, Field]:
    """Fields, and fields of the lengths of those whose length differs."""
    lengths = {lengths_of(name): Field((), np.int32) for name, of in fields.items() if of.is_ragged}
    if taken := lengths.keys() & fields.keys():
        raise FieldError(f"a batch has {listed(taken)} of fields of different lengths: give this field another name")
    return {**fields, **lengths}


def check_name(name: object, fields: Mapping[str, Field]) -> None:
    """Refuse a name that no field has, be it a list: FieldError."""
    with suppress(TypeError):  # of what has no hash
        if name in fields:
            return
    raise _no_field(name, fields)


def _no_field(name: object, fields: Iterable[str]) -> FieldError:
    names = [*fields]
    meant = closest(name, names) if isinstance(name, str) else None
    return FieldError(among(f"no field is named {name!r}", names, meant))


def listed(names: Iterable[object]) -> str:
    """Names, for an error text."""
    return ", ".join(map(str, names)) or "none"
