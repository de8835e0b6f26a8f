"""CodecContract: the laws of a codec."""

import copy
import itertools
import json
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from obscodec.codecs import Codec, codec_from_config, new_codec
from obscodec.errors import CorruptStream, DictionaryMissing
from obscodec.layout import Layout, Rows
from obscodec.segments import Bytes, Ints, Segments
from obscodec.testing.law import check, check_refused

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64", "longdouble", "bfloat16", "float8_e4m3fn", "float8_e5m2")
OTHERS = ("bool", "complex64", "complex128", "clongdouble", "datetime64[ns]", "timedelta64[D]")
SHAPES = ((), (0,), (1,), (7,), (3, 0, 2), (0, 1 << 40), (4, 5), (60, 2), (3, 40, 7))

_NOISE = slice(3, 4)  # of the rows of _rows
_GUARD_NBYTES = 64
_GUARD = 0xA5
_N_THREADS = 4


class CodecContract:
    """The laws that every codec keeps. A subclass names the ``spec``, or overrides :meth:`make`.

    ``dtypes`` and ``shapes`` are those that the codec takes, and ``overhead`` the bytes that a stream of noise may have
    more than the noise and 1 % of it: the few of a header, unless the format needs more.
    """

    spec: ClassVar[str] = ""
    overhead: ClassVar[int] = 40
    dtypes: ClassVar[tuple[str, ...]] = INTEGERS + FLOATS + OTHERS
    shapes: ClassVar[tuple[tuple[int, ...], ...]] = SHAPES

    def make(self, layout: Layout) -> Codec:
        """The codec under test, for items of ``layout``; codecs of equal layouts must be equal."""
        return new_codec(self.spec, layout)

    def test_decode_inverts_encode(self) -> None:
        """Every item comes back bit for bit, whatever the dtype, shape, strides and byte order."""
        for layout in self._layouts():
            tested, rows = self.make(layout), _rows(layout)
            for variant, x in _variants(layout.tensors(rows)):
                decoded = _decode(tested, _encode(tested, layout.rows(x)))
                check(np.array_equal(decoded, rows), tested, f"decoding does not give back the {variant} items")

    def test_no_stream_exceeds_its_bound(self) -> None:
        """No stream is longer than ``bound()``."""
        for layout in self._layouts():
            tested = self.make(layout)
            longest = int(_encode(tested, _rows(layout)).lengths.max())
            check(longest <= tested.bound(), tested, f"a stream has {longest} bytes, bound() says {tested.bound()}")

    def test_noise_hardly_grows(self) -> None:
        """No stream of noise is longer than the item by more than 1 % and ``overhead``, also if frames are short."""
        for layout in self._layouts():
            tested = self.make(layout)
            longest = int(_encode(tested, _rows(layout)[_NOISE]).lengths.max())
            most = layout.nbytes + layout.nbytes // 100 + self.overhead
            check(longest <= most, tested, f"{layout.nbytes} bytes of noise become {longest}, not {most} or fewer")

    def test_a_batch_equals_its_rows(self) -> None:
        """Each item has the same stream alone as in a batch."""
        for layout in self._layouts():
            tested, rows = self.make(layout), _rows(layout)
            streams = _encode(tested, rows)
            decoded = _decode(tested, streams)
            for i in range(len(rows)):
                alone = _encode(tested, rows[i : i + 1])
                check(bytes(alone[0]) == bytes(streams[i]), tested, f"item {i} of a batch has another stream alone")
                check(np.array_equal(_decode(tested, alone)[0], decoded[i]), tested, f"item {i} is another alone")
            check(len(_encode(tested, rows[:0])) == 0, tested, "a batch of no items has streams")
            _decode(tested, Segments.of([]))

    def test_a_beginning_is_that_of_the_item(self) -> None:
        """Decoding only so many bytes of each item gives these, whatever comes behind them."""
        for layout in self._layouts():
            tested, rows = self.make(layout), _rows(layout)
            wanted = np.linspace(min(1, layout.nbytes), layout.nbytes, len(rows)).astype(np.int64)
            streams = _encode(tested, rows)
            for row, whole, n in zip(
                _decode(tested, streams, wanted), _decode(tested, streams), wanted.tolist(), strict=True
            ):
                check(np.array_equal(row[:n], whole[:n]), tested, f"the first {n} bytes of an item are others alone")

    def test_a_codec_equals_its_rebuilt_self(self) -> None:
        """Pickling, copying and describing a codec keep ``==``, ``hash``, ``repr``, the spec and the streams."""
        for layout in self._layouts():
            tested, rows = self.make(layout), _rows(layout)
            streams = list(map(bytes, _encode(tested, rows)))
            for how, rebuilt in _rebuilt(tested, self.make(layout)):
                same = (rebuilt, hash(rebuilt), repr(rebuilt)) == (tested, hash(tested), repr(tested))
                check(same and rebuilt.spec == tested.spec, tested, f"after {how} it is {rebuilt!r}, before {tested!r}")
                check(list(map(bytes, _encode(rebuilt, rows))) == streams, tested, f"after {how} streams are others")
            longer = Layout((*layout.shape, 2), layout.dtype)
            other = self.make(next((one for one in self._layouts() if one != layout), longer))
            check(tested != other, tested, f"it equals the codec for {other.layout}")

    def test_prefixes_and_appended_bytes_are_refused(self) -> None:
        """A stream that is cut anywhere, or followed by a byte, raises CorruptStream.

        Each byte follows every eighth stream, 0 follows all.
        """
        for i, (tested, stream) in enumerate(self._small_streams()):
            wrong = {f"the first {end} of {len(stream)} bytes of a stream": stream[:end] for end in range(len(stream))}
            following = {0, *range(i % 8, 256, 8)}
            wrong |= {f"a stream followed by the byte {byte}": stream + bytes([byte]) for byte in following}
            for what, damaged in wrong.items():
                call = partial(_decode, tested, Segments.of([damaged]))
                check_refused(CorruptStream, tested, f"decoding {what}", call)

    def test_altered_streams_are_refused_or_decode_within_bounds(self) -> None:
        """A flipped bit, or noise, decodes, or raises CorruptStream or DictionaryMissing; only output is written.

        It is decoded whole, or up to the middle of the item, in turns.
        """
        rng = np.random.default_rng(0)
        for tested, stream in self._small_streams():
            altered = [rng.bytes(n) for n in range(32)]
            for bit in range(8 * len(stream)):
                flipped = bytearray(stream)
                flipped[bit // 8] ^= 1 << bit % 8
                altered.append(bytes(flipped))
            middle = np.array([-(-tested.layout.nbytes // 2)])
            for damaged, wanted in zip(altered, itertools.cycle((None, middle, middle, None, middle)), strict=False):
                try:
                    _decode(tested, Segments.of([damaged]), wanted)
                except (CorruptStream, DictionaryMissing):
                    continue
                except Exception as error:
                    raise AssertionError(f"{tested}: the stream {damaged!r} raises {error!r}") from error

    def test_threads_change_nothing(self) -> None:
        """Threads that use one codec at the same time get the streams and items that one thread gets."""
        layout = max(self._layouts(), key=lambda layout: layout.nbytes)
        tested = self.make(layout)
        inputs = [np.roll(_rows(layout), i, axis=0) for i in range(_N_THREADS)]
        expected = [_there_and_back(tested, rows) for rows in inputs]
        begin = threading.Barrier(_N_THREADS)

        def work(i: int) -> bool:
            begin.wait()
            return all(_there_and_back(tested, inputs[i]) == expected[i] for _ in range(8))

        with ThreadPoolExecutor(_N_THREADS) as pool:
            check(all(pool.map(work, range(_N_THREADS))), tested, "threads get other results than one alone")

    def _layouts(self) -> Iterator[Layout]:
        for name in self.dtypes:
            for shape in self.shapes:
                yield Layout(shape, name)

    def _small_streams(self) -> Iterator[tuple[Codec, bytes]]:
        """Streams of few bytes, with one dtype for each size of an element."""
        seen = set()
        for layout in self._layouts():
            kind = layout.shape, layout.dtype.itemsize
            if layout.nbytes <= 7 * 16 and kind not in seen:
                seen.add(kind)
                tested = self.make(layout)
                for stream in _encode(tested, _rows(layout)[[0, 3]]):
                    yield tested, bytes(stream)


def _rows(layout: Layout) -> Rows:
    """Six items: zeros, all bits set (a NaN with a payload), negative zeros, noise, noise with gaps, repetitions."""
    rng = np.random.default_rng(layout.nbytes)
    rows = np.zeros((6, layout.nbytes), np.uint8)
    rows[1] = 0xFF
    rows[2, layout.dtype.itemsize - 1 :: layout.dtype.itemsize] = 0x80
    rows[3:] = rng.integers(0, 256, rows[3:].shape, np.uint8)
    rows[4, ::3] = 0
    rows[5] = np.resize(rows[5, :16], layout.nbytes)
    if layout.dtype == np.bool_:
        rows &= 1
    return rows


def _variants(x: npt.NDArray[np.generic]) -> Iterator[tuple[str, npt.NDArray[np.generic]]]:
    """The same items in arrays of other strides and byte orders."""
    yield "contiguous", x
    strided = np.empty((*x.shape, 2), x.dtype)
    strided[..., 0] = x
    yield "strided", strided[..., 0]
    yield "Fortran-ordered", np.asfortranarray(x)
    if x.dtype.newbyteorder(">") != x.dtype:
        yield "big-endian", x.astype(x.dtype.newbyteorder(">"))  # byteswap() of ml_dtypes before 0.5.4 does nothing


def _rebuilt(tested: Codec, made_again: Codec) -> Iterator[tuple[str, Codec]]:
    """The same codec, rebuilt in each possible way."""
    yield "making it again", made_again
    yield "pickling", pickle.loads(pickle.dumps(tested))
    yield "copy", copy.copy(tested)
    yield "deepcopy", copy.deepcopy(tested)
    yield "a round trip through its config", codec_from_config(json.loads(json.dumps(tested.config())))


def _encode(tested: Codec, rows: Rows) -> Segments:
    """The streams, with room for streams that break the bound."""
    return tested.encode_batch(rows, np.empty(2 * len(rows) * (tested.bound() + rows.shape[1] + 64), np.uint8))


def _decode(tested: Codec, streams: Segments, wanted: Ints | None = None) -> Rows:
    """The items, or so many bytes of each; checks that decoding writes nothing around them, even if it fails."""
    nbytes = len(streams) * tested.layout.nbytes
    memory: Bytes = np.full(nbytes + 2 * _GUARD_NBYTES, _GUARD, np.uint8)
    before, behind = memory[:_GUARD_NBYTES], memory[_GUARD_NBYTES + nbytes :]
    rows = memory[_GUARD_NBYTES:][:nbytes].reshape(len(streams), tested.layout.nbytes)
    try:
        if wanted is None:
            tested.decode_batch(streams, rows)
        else:
            tested.decode_beginnings(streams, rows, wanted)
    finally:
        check({*before.tolist(), *behind.tolist()} == {_GUARD}, tested, "decoding writes outside of its output")
    return rows


def _there_and_back(tested: Codec, rows: Rows) -> tuple[list[bytes], bytes]:
    """The streams, and the items decoded from them."""
    streams = _encode(tested, rows)
    return list(map(bytes, streams)), _decode(tested, streams).tobytes()
