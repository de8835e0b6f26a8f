"""The contract finds broken codecs: each one here breaks one law, and fails exactly that law."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from broken_laws import broken_laws, laws
from obscodec import CorruptStream, Layout
from obscodec.codecs import Codec, registry
from obscodec.codecs.formats.raw import Raw
from obscodec.layout.layout import Rows
from obscodec.segments import Bytes, Ints, Segments
from obscodec.testing import CodecContract


@dataclass(frozen=True)
class Sound(Raw):
    name: ClassVar[str] = "tested"


@dataclass(frozen=True)
class LosesNegativeZeros(Sound):
    """Stores the byte of a sign without a value as 0."""

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        return super().encode_rows(np.where(rows == 0x80, np.uint8(0), rows), out)


@dataclass(frozen=True)
class UnderstatesItsBound(Sound):
    def bound(self) -> int:
        return max(0, self.layout.nbytes - 1)


@dataclass(frozen=True)
class DependsOnItsBatch(Sound):
    """Stores each item as the difference to the one before it."""

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        return super().encode_rows(np.diff(rows, axis=0, prepend=np.uint8(0)), out)

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        super().decode_rows(src, rows)
        np.cumsum(rows, axis=0, dtype=np.uint8, out=rows)


@dataclass(frozen=True)
class StopsTooEarly(Sound):
    """Forgets the last of the wanted bytes."""

    def decode_beginnings(self, src: Segments, rows: Rows, wanted: Ints) -> None:
        last = rows[np.arange(len(rows)), wanted - 1]
        super().decode_beginnings(src, rows, wanted)
        rows[np.arange(len(rows)), wanted - 1] = last


@dataclass(frozen=True)
class ForgetsHowToPrint(Sound):
    """Its repr tells its address."""

    secret: object = field(default_factory=object, init=False, compare=False)


@dataclass(frozen=True)
class IgnoresWhatFollows(Sound):
    def decode_rows(self, src: Segments, rows: Rows) -> None:
        super().decode_rows(Segments.of([s[: self.layout.nbytes] for s in src]), rows)


@dataclass(frozen=True)
class Tagged(Sound):
    """A byte 0 in front of the item."""

    def bound(self) -> int:
        return 1 + self.layout.nbytes

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        out[: len(rows) * self.bound()] = np.pad(rows, ((0, 0), (1, 0))).reshape(-1)
        return np.full(len(rows), self.bound())

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        for stream, row in zip(src, rows, strict=True):
            if len(stream) != self.bound():
                raise CorruptStream(f"it has {len(stream)} bytes")
            if stream[0]:
                self.decode_strange(row)
            row[:] = stream[1:]

    def decode_strange(self, row: Bytes) -> None:
        """What happens when the byte is not 0."""


@dataclass(frozen=True)
class GrowsWithoutNeed(Sound):
    """60 zeros in front of the item."""

    def bound(self) -> int:
        return 60 + self.layout.nbytes

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        out[: len(rows) * self.bound()] = np.pad(rows, ((0, 0), (60, 0))).reshape(-1)
        return np.full(len(rows), self.bound())

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        for stream, row in zip(src, rows, strict=True):
            if len(stream) != self.bound() or stream[:60].any():
                raise CorruptStream(f"it has {len(stream)} bytes")
            row[:] = stream[60:]


@dataclass(frozen=True)
class FailsInItsOwnWay(Tagged):
    def decode_strange(self, row: Bytes) -> None:
        raise KeyError("tag")


@dataclass(frozen=True)
class WritesOutside(Tagged):
    def decode_strange(self, row: Bytes) -> None:
        memory = row
        while isinstance(memory.base, np.ndarray):
            memory = memory.base
        memory[-1] = 0


@dataclass(frozen=True)
class SharesItsScratch(Sound):
    """All threads write through the same memory."""

    scratch: dict[str, Rows] = field(default_factory=dict, init=False, repr=False, compare=False)

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        self.scratch["rows"] = rows
        time.sleep(1e-3)
        return super().encode_rows(self.scratch["rows"], out)


BROKEN = {
    LosesNegativeZeros: "test_decode_inverts_encode",
    UnderstatesItsBound: "test_no_stream_exceeds_its_bound",
    GrowsWithoutNeed: "test_noise_hardly_grows",
    DependsOnItsBatch: "test_a_batch_equals_its_rows",
    StopsTooEarly: "test_a_beginning_is_that_of_the_item",
    ForgetsHowToPrint: "test_a_codec_equals_its_rebuilt_self",
    IgnoresWhatFollows: "test_prefixes_and_appended_bytes_are_refused",
    FailsInItsOwnWay: "test_altered_streams_are_refused_or_decode_within_bounds",
    WritesOutside: "test_altered_streams_are_refused_or_decode_within_bounds",
    SharesItsScratch: "test_threads_change_nothing",
}


def broken_by(monkeypatch: pytest.MonkeyPatch, kind: type[Codec]) -> list[str]:
    class Contract(CodecContract):
        spec = "tested"
        dtypes = ("uint8", "float32")
        shapes = ((), (7,))

    module = sys.modules[__name__]
    monkeypatch.setitem(registry._BUILT_IN, "tested", f"{module.__name__}:{kind.__name__}")
    registry._targets.cache_clear()
    return broken_laws(CodecContract, Contract())


@pytest.fixture(autouse=True)
def _registry_as_before() -> Iterator[None]:
    yield
    registry._targets.cache_clear()


@pytest.mark.parametrize("kind", [Sound, *BROKEN], ids=lambda kind: kind.__name__)
def test_a_codec_fails_the_law_that_it_breaks(monkeypatch: pytest.MonkeyPatch, kind: type[Codec]) -> None:
    assert broken_by(monkeypatch, kind) == ([BROKEN[kind]] if kind in BROKEN else [])


def test_each_law_is_broken_by_some_codec() -> None:
    assert set(BROKEN.values()) == set(laws(CodecContract))


def test_a_broken_law_is_explained() -> None:
    class Contract(CodecContract):
        dtypes = ("uint8",)
        shapes = ((2,),)

        def make(self, layout: Layout) -> Codec:
            return UnderstatesItsBound(layout)

    with pytest.raises(AssertionError) as caught:
        Contract().test_no_stream_exceeds_its_bound()
    assert str(caught.value) == (
        "UnderstatesItsBound(layout=Layout(shape=(2,), dtype=dtype('uint8')), level=None): "
        "a stream has 2 bytes, bound() says 1"
    )
