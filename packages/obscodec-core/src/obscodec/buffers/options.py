"""BufferOptions: how a buffer keeps its fields."""

from collections.abc import Hashable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Generic, TypedDict, TypeVar, Unpack

from obscodec.arguments import check_kind, refuse_unknown
from obscodec.buffers.field import MIN_COMPRESSED_NBYTES, Field
from obscodec.errors import FieldError
from obscodec.layout import FrameStack, Layout

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
_FOR_SOME = ("codec", "frame_stack", "budget")  # may be mappings
_FOR_ALL = ("min_nbytes", "decide_after", "block_frames", "max_bytes")


class BufferKeywords(TypedDict, Generic[K], total=False):
    """The keyword arguments of a buffer that become its :class:`BufferOptions`, for type checkers and editors."""

    codec: str | Mapping[K, str | None] | None
    frame_stack: FrameStack | int | Mapping[K, FrameStack | int | None] | None
    budget: str | Mapping[K, str | None] | None
    min_nbytes: int | None
    decide_after: int | None
    block_frames: int | None
    max_bytes: int | None
    buffer_device: str
    heap: str


OPTION_DEFAULTS: Final[dict[str, Any]] = {**{of.name: of.default for of in fields(Field)}, "buffer_device": "cpu"}


class BufferOptions(Generic[K]):
    """How a buffer keeps its fields, whose names are of the type ``K``.

    Its attributes are the keywords of :class:`BufferKeywords`, which :class:`Field` explains. ``codec``,
    ``frame_stack`` and ``budget`` are for all fields, or a mapping with the values of some fields; without a mapping, a
    budget is for the fields with the codec ``"auto"``. ``min_nbytes``: smaller fields are compressed only if ``codec``
    is a mapping that names a codec for them; None for 1 KiB, or less if the buffer says so. ``buffer_device`` is the
    ``device`` of the compressed fields; a device of another library, such as ``torch.device("cuda")``, counts by its
    name.

    Raises:
        SpecError: a spec or a budget is malformed.
        ShapeError: a number is out of range.
        DTypeError: an argument has another type.
    """

    def __init__(self, **given: Unpack[BufferKeywords[K]]) -> None:
        names = BufferKeywords.__annotations__
        refuse_unknown("BufferOptions", given.keys() - names.keys(), names)
        vars(self).update({name: OPTION_DEFAULTS[name] for name in names}, **given)
        vars(self)["buffer_device"] = str(self.buffer_device)
        for name in (*_FOR_SOME, *_FOR_ALL):
            value = getattr(self, name)
            of_fields = name in _FOR_SOME and isinstance(value, Mapping)
            for one in value.values() if of_fields else [value]:
                options: dict[str, Any] = {name: one}
                Field((), "uint8", **options)  # refuses a bad value

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An option."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{name} of BufferOptions can't be changed: make others")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BufferOptions) and vars(self) == vars(other)

    @property
    def large_nbytes(self) -> int | None:
        """The least bytes, 1 KiB or more, of a field to compress that no mapping names; None if none is compressed."""
        return None if self.codec is None else max(MIN_COMPRESSED_NBYTES, self.min_nbytes or 0)

    def fields_of(
        self, layouts: Mapping[K, Layout], *, min_nbytes: int = 0, budget: str | None = None
    ) -> dict[K, Field]:
        """A field for each layout.

        Args:
            layouts: of one step of one environment, by the name of the field.
            min_nbytes: the least bytes of a field to compress, if a codec is given for all fields and the option of
                this name is None.
            budget: of the fields with the codec ``"auto"`` that the option of this name does not tell of; None in a
                mapping tells of a field.

        Raises:
            FieldError: a mapping names a field that does not exist.
            Exception: see :class:`Field`.
        """
        check_kind("layouts", layouts, Mapping, "a mapping from names to Layouts")
        for name, layout in layouts.items():
            check_kind(f"the layout of {name!r}", layout, Layout, "a Layout")
        for what in _FOR_SOME:
            value = getattr(self, what)
            if isinstance(value, Mapping) and (unknown := sorted(value.keys() - layouts.keys(), key=str)):
                if [*layouts] == [""]:
                    raise FieldError(
                        f"{what} is given for {unknown[0]!r}, and there is one field, without a name: pass its {what} "
                        f"alone, such as {what}={value[unknown[0]]!r}"
                    )
                there = ", ".join(map(repr, layouts))
                raise FieldError(f"{what} is given for {unknown[0]!r}, which is none of the fields {there}")
        return {name: self._field(name, layout, min_nbytes, budget, len(layouts)) for name, layout in layouts.items()}

    def _field(self, name: K, layout: Layout, min_nbytes: int, budget: str | None, n_fields: int) -> Field:
        large = layout.nbytes >= (min_nbytes if self.min_nbytes is None else self.min_nbytes)
        spec = _of(self.codec, name, "auto") if large or isinstance(self.codec, Mapping) else None
        default = budget if spec == "auto" else None
        if isinstance(self.budget, Mapping):
            given = self.budget.get(name, default)  # which may be None
        else:
            given = default if self.budget is None or (spec != "auto" and n_fields > 1) else self.budget
        return Field(
            layout.shape,
            layout.dtype,
            spec,
            frame_stack=_of(self.frame_stack, name, None),
            budget=given,
            **{option: getattr(self, option) for option in _FOR_ALL},
            device=self.buffer_device,
            heap=self.heap,
        )


def _of(value: T | Mapping[K, T], name: K, default: T) -> T:
    return value.get(name, default) if isinstance(value, Mapping) else value
