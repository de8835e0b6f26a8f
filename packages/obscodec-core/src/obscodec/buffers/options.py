"""BufferOptions: how a buffer keeps its fields."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

from obscodec.arguments import check_kind
from obscodec.buffers.field import MIN_COMPRESSED_NBYTES, Field
from obscodec.devices import check_place
from obscodec.errors import FieldError
from obscodec.layout import FrameStack, Layout

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_FOR_SOME = ("codec", "frame_stack", "budget")  # which may be mappings
_FOR_ALL = ("min_nbytes", "decide_after", "block_frames", "max_bytes")


@dataclass(frozen=True)
class BufferOptions(Generic[K]):
    """How a buffer keeps its fields, whose names are of the type ``K``.

    Attributes:
        codec: see :class:`Field`; for all fields, or a mapping with those of some.
        frame_stack: see :class:`Field`; for all fields, or a mapping.
        budget: see :class:`Field`; for all fields that have the codec ``"auto"``, or a mapping.
        min_nbytes: smaller fields are not compressed, unless ``codec`` is a mapping that names a codec for them. None
            for 1 KiB, or less if the buffer says so.
        decide_after: see :class:`Field`; for all fields.
        block_frames: likewise.
        max_bytes: see :class:`Field`; for each field.
        buffer_device: where compressed fields are decoded, and kept: the ``device`` of :class:`Field`. What stands for
            a device in another library, such as ``torch.device("cuda")``, is taken by its name.
        heap: see :class:`Field`; for all fields.

    Raises:
        SpecError: a spec or a budget is malformed.
        ShapeError: a number is out of range.
        DTypeError: an argument is something else than is asked for.

    Example:
        >>> options = BufferOptions(codec={"image": "delta-rle"})
        >>> fields = options.fields_of({"image": Layout((84, 84), "uint8"), "vector": Layout((3,), "float32")})
        >>> fields["image"].codec, fields["vector"].codec
        ('delta-rle', 'auto')
    """

    codec: str | Mapping[K, str | None] | None = "auto"
    frame_stack: FrameStack | int | Mapping[K, FrameStack | int | None] | None = None
    budget: str | Mapping[K, str | None] | None = None
    min_nbytes: int | None = None
    decide_after: int | None = None
    block_frames: int | None = None
    max_bytes: int | None = None
    buffer_device: str = "cpu"
    heap: str = "device"

    def __post_init__(self) -> None:
        object.__setattr__(self, "buffer_device", str(self.buffer_device))
        for name in (*_FOR_SOME, *_FOR_ALL):
            value = getattr(self, name)
            of_fields = name in _FOR_SOME and isinstance(value, Mapping)
            for given in value.values() if of_fields else [value]:
                options: dict[str, Any] = {name: given}
                Field((), "uint8", **options)  # which refuses what can't be

    @property
    def large_nbytes(self) -> int | None:
        """From how many bytes on, 1 KiB or more, fields that no mapping names are compressed; None if none is."""
        return None if self.codec is None else max(MIN_COMPRESSED_NBYTES, self.min_nbytes or 0)

    @classmethod
    def pop_from(cls, arguments: dict[str, Any], *names: str) -> Self:
        """Those of these names that are among the named arguments of a buffer, from which they are removed."""
        return cls(**{name: arguments.pop(name) for name in names if name in arguments})

    def check(self, new_batch: Callable[[], object] | None = None) -> None:
        """Make sure that fields can be kept where they are asked to be, and decoded into the memory of a batch.

        Args:
            new_batch: gives an array such as those that the buffer decodes into. It is not called if the device can't
                be used, nor if that is the CPU.

        Raises:
            SpecError: there is no such device or heap, or the heap is not that of this device.
            BackendUnavailable: the device can't be used; the text names what is missing.
            DTypeError: the batch is in the memory of another device.
        """
        check_place(self.buffer_device, self.heap, new_batch)

    def fields_of(self, layouts: Mapping[K, Layout], *, min_nbytes: int = 0) -> dict[K, Field]:
        """A field for each layout.

        Args:
            layouts: of one step of one environment, by the name of the field.
            min_nbytes: how large fields have to be if a codec is given for all, and not the option of this name.

        Raises:
            FieldError: a mapping names a field that is not there.
            SpecError: a budget is malformed, or is for a codec that is given; or there is no such device or heap.
            BackendUnavailable: the device can't be used; the text names what is missing.
            DTypeError: a dtype can't be stored.
        """
        check_kind("layouts", layouts, Mapping, "a mapping from names to Layouts")
        for name, layout in layouts.items():
            check_kind(f"the layout of {name!r}", layout, Layout, "a Layout")
        for what in _FOR_SOME:
            value = getattr(self, what)
            if isinstance(value, Mapping) and (unknown := sorted(value.keys() - layouts.keys(), key=str)):
                there = ", ".join(map(repr, layouts))
                raise FieldError(f"{what} is given for {unknown[0]!r}, which is none of the fields {there}")
        return {name: self._field(name, layout, min_nbytes, len(layouts)) for name, layout in layouts.items()}

    def _field(self, name: K, layout: Layout, min_nbytes: int, n_fields: int) -> Field:
        large = layout.nbytes >= (min_nbytes if self.min_nbytes is None else self.min_nbytes)
        spec = _of(self.codec, name, "auto") if large or isinstance(self.codec, Mapping) else None
        limits = isinstance(self.budget, Mapping) or spec == "auto" or n_fields == 1
        return Field(
            layout.shape,
            layout.dtype,
            spec,
            frame_stack=_of(self.frame_stack, name, None),
            budget=_of(self.budget, name, None) if limits else None,
            **{option: getattr(self, option) for option in _FOR_ALL},
            device=self.buffer_device,
            heap=self.heap,
        )


def _of(value: T | Mapping[K, T], name: K, default: T) -> T:
    return value.get(name, default) if isinstance(value, Mapping) else value
