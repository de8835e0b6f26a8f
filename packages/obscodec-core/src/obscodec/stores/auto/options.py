"""StoreOptions: how an AutoStore is asked to keep its tensors."""

from dataclasses import dataclass

from obscodec.arguments import as_nbytes, as_option
from obscodec.codecs import check_spec, parse
from obscodec.devices import check_place
from obscodec.errors import SpecError
from obscodec.layout import FrameStack
from obscodec.stores.auto.choice import parse_budget


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """How tensors are to be kept, checked and in one form.

    Attributes:
        codec: see :class:`AutoStore`, as the rest; None where tensors are not compressed.
        frame_stack: a number becomes a :class:`FrameStack`.
        budget: for the codec ``"auto"`` alone.
        decide_after: a whole number.
        block_frames: likewise.
        max_bytes: likewise.
        threads: likewise.
        device: ``"cpu"`` or a GPU.
        heap: ``"device"`` or ``"pinned"``.

    Raises:
        SpecError: the codec or the budget is malformed, the budget is for a codec that is given, or there is no such
            device or heap.
        BackendUnavailable: the device can't be used; the text names what is missing.
        ShapeError: a number is out of range.
        DTypeError: an option is something else than is asked for.

    Example:
        >>> StoreOptions(frame_stack=4, max_bytes=1e9).max_bytes
        1000000000
    """

    codec: str | None = "auto"
    frame_stack: FrameStack | int | None = None
    budget: str | None = None
    decide_after: int | None = None
    block_frames: int | None = None
    max_bytes: int | None = None
    threads: int | None = None
    device: str = "cpu"
    heap: str = "device"

    def __post_init__(self) -> None:
        if self.codec is not None and check_spec(self.codec) != "auto":
            parse(self.codec)
        checked: dict[str, object] = {
            "frame_stack": FrameStack.of(self.frame_stack),
            "max_bytes": as_nbytes("max_bytes", self.max_bytes),
        }
        for name in ("decide_after", "block_frames", "threads"):
            checked[name] = as_option(name, getattr(self, name))
        if self.budget is not None:
            parse_budget(self.budget)
            if self.codec != "auto":
                raise SpecError(f"a budget is for the codec 'auto', got it for {self.codec!r}")
        check_place(self.device, self.heap)
        vars(self).update(checked)
