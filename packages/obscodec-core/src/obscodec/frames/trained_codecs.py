"""TrainedCodecs: a codec that learns from what it encodes, and every earlier state of it that a stream still needs."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from types import NoneType
from typing import Generic, TypeVar

import numpy as np

from obscodec.codecs import Codec
from obscodec.errors import CorruptStream, ShapeError, SpecError
from obscodec.runtime import PicklableLock, give_back_free_memory, new_chunk
from obscodec.segments import Bytes, Ints, Segments, segments_of
from obscodec.state import State, array_of, check_range, number_of, part_of

C = TypeVar("C", bound=Codec)

_N_SAMPLES = 256
_MAX_SAMPLES_NBYTES = 1 << 22  # training takes some 50 ms for each MB
_DRIFT = 1.25
_AGAIN = 4  # times as many items as at the last training
_MIN_GAIN = 0.95  # of the bytes: another dictionary takes memory, too
_MOST_VERSIONS = 1 << 20  # readers have a table with a row for each number up to the newest one


class TrainedCodecs(Generic[C]):
    """Codecs by their versions; the newest one encodes.

    A dictionary is trained on the first items that are encoded: while the codecs are ``learning``, items are samples.
    It :attr:`is_due` when there are enough. Another one is when four times as many items have been encoded as at the
    last training, or when streams have become a quarter larger than they were right after it, on average. It is trained
    on items that are stored, and kept if it makes others 5 % smaller. A codec without dictionaries stays as it is.
    ``fit`` returns a codec trained on samples. One thread may train while another one encodes, and tells what it has
    encoded.

    Attributes:
        by_version: the codecs; replaced, never changed.
    """

    def __init__(self, codec: C, fit: Callable[[C, Sequence[Bytes]], C]) -> None:
        self.newest = 1
        self.by_version: dict[int, C] = {1: codec}
        self._fit = fit
        self._samples: list[Bytes] = []
        self._room: Bytes | None = None  # of the samples, in memory that goes back to the operating system
        self._samples_nbytes = 0
        self.learning = True
        self._ratios: deque[float] = deque(maxlen=_N_SAMPLES)
        self._first_ratio: float | None = None
        self._n_encoded = self._n_learned = 0  # items; those at the last training
        self._lock = PicklableLock()

    @property
    def current(self) -> tuple[int, C]:
        """The version that encodes, and its codec."""
        newest = self.newest  # first: another thread may be about to replace both
        return newest, self.by_version[newest]

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of all dictionaries that are kept."""
        return sum(len(codec.dictionary) for codec in self.by_version.values())

    def encoded(self, plain: Bytes, stream_nbytes: int, version: int) -> None:
        """Learn that a version encoded ``plain``, which is copied if it is kept, in ``stream_nbytes``.

        Version 0 says that no stream was smaller: such items teach nothing, but tell how well others are encoded.
        """
        with self._lock:  # another thread may end a training
            if self.learning and not version:
                return
            self._n_encoded += 1
            if self.learning:
                if not self._has_enough:
                    self._keep(plain)
            elif version in (0, self.newest):  # an older one encoded what was in a queue when this one was trained
                self._ratios.append(stream_nbytes / max(1, plain.nbytes))
                if self._first_ratio is None and len(self._ratios) == _N_SAMPLES:
                    self._first_ratio = self._mean_ratio
                    self._ratios.clear()

    @property
    def is_due(self) -> bool:
        """Whether to train: for the first time, or since much was encoded since the last one, or is encoded worse."""
        if self.learning:
            return self._has_enough
        first, is_full = self._first_ratio, len(self._ratios) == _N_SAMPLES
        has_drifted = first is not None and is_full and self._mean_ratio > _DRIFT * first
        due = has_drifted or self._n_encoded >= _AGAIN * self._n_learned
        return due and bool(self.current[1].dictionary)

    def learn_again(self, items: Iterable[Bytes], encode: Callable[[C, Bytes], Bytes]) -> None:
        """Train on items that were encoded, given in random order, as far as there is room for them.

        The codec stays unless one that is trained on half of them makes the others smaller; ``encode`` makes a stream.
        """
        codec = None
        try:
            with suppress(ShapeError, MemoryError):  # too few samples, or too little memory: the codec stays as it is
                codec = self._better(items, encode)
        finally:
            self._go_on(codec)

    def _better(self, items: Iterable[Bytes], encode: Callable[[C, Bytes], Bytes]) -> C:
        """A codec trained on items, or the newest one."""
        _, newest = self.current
        codec, samples, nbytes = newest.with_dictionary(newest.dictionary), list[Bytes](), 0  # another thread encodes
        for item in islice(items, _N_SAMPLES):
            samples.append(item)
            nbytes += item.nbytes
            if nbytes >= _MAX_SAMPLES_NBYTES:
                break
        if len(samples) < 2:
            return codec
        other = self._fit(codec, samples[::2])
        before, after = (sum(len(encode(one, item)) for item in samples[1::2]) for one in (codec, other))
        return self._fit(codec, samples) if after <= _MIN_GAIN * before else codec

    def train(self) -> None:
        """Train on the samples so far, if there are any, for the first time."""
        samples = [*self._samples]  # another thread may keep more
        if not self.learning or not samples:
            return
        _, newest = self.current
        codec = None
        with suppress(ShapeError, MemoryError):  # as in learn_again
            codec = self._fit(newest.with_dictionary(newest.dictionary), samples)
        self._go_on(codec)

    def keep(self, needed: Collection[int]) -> None:
        """Forget all versions but the newest one and those that are ``needed``."""
        with self._lock:
            kept = {n: codec for n, codec in self.by_version.items() if n == self.newest or n in needed}
            if len(kept) < len(self.by_version):
                self.by_version = kept

    def add(self, versions: Ints, dictionaries: Segments) -> None:
        """Have codecs with dictionaries that were trained elsewhere, by version, or CorruptStream."""
        try:
            self.by_version = self.by_version | self._with(versions, dictionaries)
        except SpecError as error:
            raise CorruptStream(f"a codec has no such dictionary: {error}") from error

    def _with(self, versions: Ints, dictionaries: Segments) -> dict[int, C]:
        """Codecs like the newest one, with dictionaries, by version."""
        codec, numbers = self.by_version[self.newest], versions.tolist()
        return {n: codec.with_dictionary(of.tobytes()) for n, of in zip(numbers, dictionaries, strict=True)}

    def state(self) -> State:
        """The dictionaries, and what was learned for the next one: see ``obscodec.state``."""
        with self._lock:
            codecs, samples = self.by_version, self._samples
            return {
                "newest": self.newest,
                "learning": self.learning,
                "versions": np.array([*codecs]),
                "dictionaries": Segments.of([codec.dictionary for codec in codecs.values()]).state(),
                "samples": Segments.of(samples).state(),
                "ratios": np.array(self._ratios, np.float64),
                "first_ratio": self._first_ratio,
                "encoded": self._n_encoded,
                "learned": self._n_learned,
            }

    def restore(self, state: State) -> None:
        """Go on from the :meth:`state` of others, which began with an equal codec.

        Raises:
            CorruptStream: none have such a state.
            SpecError: the codec has no such dictionaries.
        """
        dictionaries, samples = segments_of(state, "dictionaries"), segments_of(state, "samples")
        versions = array_of(state, "versions", np.int64, (len(dictionaries),))
        ratios, first_ratio = array_of(state, "ratios", np.float64, (None,)), state.get("first_ratio")
        newest = number_of(state, "newest", 1)
        n_learned = number_of(state, "learned")
        n_encoded = number_of(state, "encoded", n_learned)
        check_range("versions", versions, 1, _MOST_VERSIONS)
        if newest not in versions or not isinstance(first_ratio, (float, NoneType)):
            raise CorruptStream("codecs that learn have other dictionaries, samples or ratios")
        self.by_version = self._with(versions, dictionaries)
        self.newest, self.learning = newest, part_of(state, "learning", bool)
        self._ratios.extend(ratios.tolist())
        self._first_ratio = first_ratio
        self._n_encoded, self._n_learned = n_encoded, n_learned
        for sample in samples:
            self._keep(sample)

    @property
    def _has_enough(self) -> bool:
        return len(self._samples) >= _N_SAMPLES or self._samples_nbytes >= _MAX_SAMPLES_NBYTES

    def _keep(self, plain: Bytes) -> None:
        begin, end = self._samples_nbytes, self._samples_nbytes + plain.nbytes
        if self._room is None:
            self._room = new_chunk(max(_MAX_SAMPLES_NBYTES, plain.nbytes))
        if end <= len(self._room):
            self._room[begin:end] = plain
            self._samples.append(self._room[begin:end])
        self._samples_nbytes = end

    def _go_on(self, codec: C | None) -> None:
        """Encode with a codec after a training, None for the same as before, without samples."""
        ratios: deque[float] = deque(maxlen=_N_SAMPLES)
        unused: dict[str, object] = {"_samples": [], "_room": None, "_samples_nbytes": 0}
        with self._lock:
            newest, codecs = self.newest, self.by_version
            if codec is not None and codec != codecs[newest] and max(codecs) < _MOST_VERSIONS:
                newest = max(codecs) + 1
                codecs = {**codecs, newest: codec}
            learned = {"newest": newest, "by_version": codecs, "learning": False, "_n_learned": self._n_encoded}
            vars(self).update(learned, **unused, _ratios=ratios, _first_ratio=None)  # all in one step
        give_back_free_memory()

    @property
    def _mean_ratio(self) -> float:
        return sum(self._ratios) / len(self._ratios)
