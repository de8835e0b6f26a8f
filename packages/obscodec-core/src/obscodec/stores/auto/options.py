"""StoreOptions: how a store keeps its tensors, checked."""

from dataclasses import dataclass

from obscodec.arguments import as_flag, as_nbytes, as_option
from obscodec.codecs import check_encodable
from obscodec.devices import check_place
from obscodec.errors import SpecError
from obscodec.layout import FrameStack

FAST = "fast"  # the budget for which no slow codec is tried


@dataclass(frozen=True, kw_only=True)
class StoreOptions:
    """The options of a store, which ``Field`` explains.

    Numbers become whole numbers, a number for ``frame_stack`` a :class:`FrameStack`. The codec None stands for tensors
    that are not compressed.
    """

    codec: str | None = "auto"
    frame_stack: FrameStack | int | None = None
    budget: str | None = None
    decide_after: int | None = None
    block_frames: int | None = None
    max_bytes: int | None = None
    device: str = "cpu"
    heap: str = "device"
    recent: int | None = None
    interleaved: bool = False

    def __post_init__(self) -> None:
        if self.codec is not None:
            check_encodable(self.codec)
        checked: dict[str, object] = {
            "frame_stack": FrameStack.of(self.frame_stack),
            "max_bytes": as_nbytes("max_bytes", self.max_bytes),
            "interleaved": as_flag("interleaved", self.interleaved),
        }
        for name in ("decide_after", "block_frames", "recent"):
            checked[name] = as_option(name, getattr(self, name))
        if self.budget is not None:
            if not isinstance(self.budget, str) or self.budget != FAST:
                raise SpecError(f"a budget is {FAST!r} or None, got {self.budget!r}")
            if self.codec != "auto":
                raise SpecError(f"a budget is for the codec 'auto', got it for {self.codec!r}")
        check_place(self.device, self.heap)
        vars(self).update(checked)
