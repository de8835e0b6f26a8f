"""Field: shape and dtype of one part of a step, and how a buffer keeps it."""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import among, as_of, as_option, check_kind, closest, says_arguments, warn
from obscodec.errors import FieldError, ShapeError
from obscodec.layout import ArrayLike, Layout, as_dtype, as_numbers, is_common
from obscodec.state import State, part_of
from obscodec.stores import AutoStore, Store, StoreOptions

MIN_COMPRESSED_NBYTES = 1024  # below, a field is mostly a vector, and takes little as it is

Array = npt.NDArray[np.generic]


@dataclass(frozen=True)
class _Items:
    """What stands before the options of a :class:`Field`."""

    shape: tuple[int, ...]
    dtype: npt.DTypeLike


@says_arguments
@dataclass(frozen=True)
class Field(StoreOptions, _Items):
    """One part of a step of one environment, such as its observation.

    Attributes:
        shape: its shape, ``()`` for a scalar.
        dtype: its dtype.
        codec: the spec of its codec, such as ``"delta-rle"``; ``"auto"`` to find the best codec, if the field has
            ``min_nbytes`` or more; None for a plain numpy array.
        frame_stack: how an observation is made of frames, None to find out; a number for so many along axis 0.
        budget: for ``"auto"``, ``"fast"`` to try only codecs that read as fast as plain arrays, by a fixed table.
        min_nbytes: for ``"auto"``, the least bytes of a step to compress, None for 1 KiB.
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

    def __post_init__(self) -> None:
        vars(self)["shape"] = self.layout.shape
        super().__post_init__()
        vars(self)["min_nbytes"] = as_option("min_nbytes", self.min_nbytes, 0)
        if self.owner is not None:
            if self.shares is not None and self.next_of is not None:
                raise FieldError("next_of shares the store of the field it names: leave out shares")
            options = [of for of in fields(self) if of.name not in ("shape", "dtype", "shares", "next_of")]
            if named := [of.name for of in options if getattr(self, of.name) != of.default]:
                what = "a field that shares a store takes the options of the field that owns it"
                raise FieldError(f"{what}: leave out {', '.join(named)}")

    @property
    def owner(self) -> str | None:
        """The field whose store keeps this field, None for one of its own."""
        return self.shares if self.next_of is None else self.next_of

    @cached_property
    def layout(self) -> Layout:
        """The layout of one step of one environment."""
        return Layout(self.shape, self.dtype)

    def config(self) -> State:
        """Plain values that :meth:`from_config` takes."""
        options = {of.name: getattr(self, of.name) for of in fields(self) if of.name not in ("shape", "dtype")}
        return {"layout": self.layout, **options}

    @classmethod
    def from_config(cls, config: State) -> Self:
        """The field that :meth:`config` described."""
        layout = part_of(config, "layout", Layout)
        return cls(layout.shape, layout.dtype, **{name: value for name, value in config.items() if name != "layout"})

    def new_store(self, threads: int | None = None) -> Store | None:
        """A store for its tensors, which codec and frame stack must take; None if they are not compressed."""
        layout = self.layout
        least = MIN_COMPRESSED_NBYTES if self.min_nbytes is None else self.min_nbytes
        small = self.codec == "auto" and layout.nbytes < least
        if self.codec is None or small or layout.nbytes == 0:
            return None
        options: dict[str, Any] = {of.name: getattr(self, of.name) for of in fields(StoreOptions)}
        if self.device != "cpu" and not is_common(layout.dtype):
            warn(f"items of {layout.dtype} are kept on the CPU: GPU libraries lack this dtype")
            options |= {"device": "cpu", "heap": "device"}
        return AutoStore(layout, threads=threads, **options)

    def fitted(self, value: ArrayLike | npt.ArrayLike, n_envs: int, *, many: bool = False) -> Array:
        """A step ``[n_envs, *shape]``, or ``many`` steps ``[n_steps, n_envs, *shape]``, of the dtype.

        Args:
            value: anything that numpy or DLPack can read. Of a step, the first axis may be missing if there is one
                environment, the last one if the shape is ``(1,)``.
            n_envs: how many environments step together.
            many: whether ``value`` has an axis more, of steps.

        Raises:
            ShapeError: it has another shape.
            DTypeError: the dtype would change a number.
        """
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


def check_fields(fields: Mapping[str, Field]) -> None:
    """Refuse a mapping to something else than fields, and fields that can't share a store."""
    check_kind("fields", fields, Mapping, "a mapping from names to Fields, such as {'frame': Field((84, 84), 'uint8')}")
    for name, of in fields.items():
        described = "a Field, such as Field((84, 84), 'uint8')"
        check_kind(f"field {name!r}", of, Field, described, as_of("Field", of))
    for name, of in fields.items():
        if (owner := of.owner) is None:
            continue
        if not is_among(owner, fields):
            others = (other for other in fields if other != name)
            raise FieldError(f"field {name!r} needs {owner!r}: {no_field(owner, others)}")
        shared = fields[owner]
        if owner == name or shared.owner is not None:
            what = f"{name!r} can't share the store of {owner!r}, which has none of its own"
            raise FieldError(f"{what}: name the field that owns the store")
        if shared.layout != of.layout:
            what = f"{name!r} is {of.layout}, {owner!r} is {shared.layout}"
            raise ShapeError(f"fields that share a store have one shape and dtype, {what}")


def no_field(name: object, fields: Iterable[str]) -> FieldError:
    """The error about a name that no field has."""
    names = [*fields]
    meant = closest(name, names) if isinstance(name, str) else None
    return FieldError(among(f"no field is named {name!r}", names, meant))


def listed(names: Iterable[object]) -> str:
    """Names, for an error text."""
    return ", ".join(map(str, names)) or "none"


def is_among(name: object, fields: Mapping[str, Field]) -> bool:
    """Whether a field has this name, be it a list."""
    return isinstance(name, Hashable) and name in fields
