"""TrainedCodecs: a codec that learns from what it encodes, and every earlier state of it that a stream still needs."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from types import NoneType
from typing import Generic, TypeVar

import numpy as np

from obscodec.codecs import Codec
from obscodec.errors import CorruptStream, ShapeError
from obscodec.runtime import give_back_free_memory, new_chunk
from obscodec.segments import Bytes, Segments, segments_of
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
    Another one :attr:`is_due` when four times as many items have been encoded as at the last training, or when streams
    have become a quarter larger than they were right after it, on average. It is trained on items that are stored, and
    kept if it makes others 5 % smaller. A codec without dictionaries stays as it is. ``fit`` returns a codec trained on
    samples.

    Attributes:
        by_version: the codecs; replaced, never changed.
        newest: the version that encodes.
        learning: whether items are samples.
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

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of all dictionaries that are kept."""
        return sum(len(codec.dictionary) for codec in self.by_version.values())

    def encoded(self, plain: Bytes, stream_nbytes: int, version: int) -> None:
        """Learn that a version encoded ``plain``, which is copied if it is kept, in ``stream_nbytes``.

        Version 0 says that no stream was smaller: such items teach nothing, but tell how well others are encoded.
        """
        if self.learning and not version:
            return
        self._n_encoded += 1
        if self.learning:
            if not self._has_enough:  # it has, if an exception ended the training
                self._keep(plain)
            if self._has_enough:
                self._learn()
        elif version in (0, self.newest):  # an older one encoded what was in a queue when this one was trained
            self._watch(stream_nbytes / max(1, plain.nbytes))

    @property
    def is_due(self) -> bool:
        """Whether to call :meth:`learn_again`: much was encoded since the last training, or is encoded worse."""
        first, is_full = self._first_ratio, len(self._ratios) == _N_SAMPLES
        has_drifted = first is not None and is_full and self._mean_ratio > _DRIFT * first
        due = has_drifted or self._n_encoded >= _AGAIN * self._n_learned
        return due and not self.learning and bool(self.by_version[self.newest].dictionary)

    def learn_again(self, items: Iterable[Bytes], encode: Callable[[C, Bytes], Bytes]) -> None:
        """Train on items that were encoded, given in random order, as far as there is room for them.

        The codec stays unless one that is trained on half of them makes the others smaller; ``encode`` makes a stream.
        """
        newest, codecs = self.newest, self.by_version
        try:
            with suppress(ShapeError, MemoryError):  # too few samples, or too little memory: the codec stays as it is
                newest, codecs = self._with(self._better(items, encode))
        finally:
            self._go_on(newest, codecs)

    def _better(self, items: Iterable[Bytes], encode: Callable[[C, Bytes], Bytes]) -> C:
        """A codec trained on items, or the newest one."""
        codec, samples, nbytes = self.by_version[self.newest], list[Bytes](), 0
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
        """Train on the samples so far, if there are any."""
        if self.learning and self._samples:
            self._learn()

    def keep(self, needed: Collection[int]) -> None:
        """Forget all versions but the newest one and those that are ``needed``."""
        kept = {n: codec for n, codec in self.by_version.items() if n == self.newest or n in needed}
        if len(kept) < len(self.by_version):
            self.by_version = kept

    def state(self) -> State:
        """The dictionaries, and what was learned for the next one: see ``obscodec.state``."""
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
        codec = self.by_version[self.newest].with_dictionary(b"")
        self.by_version = {
            version: codec.with_dictionary(dictionary.tobytes())
            for version, dictionary in zip(versions.tolist(), dictionaries, strict=True)
        }
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

    def _learn(self) -> None:
        newest, codecs = self.newest, self.by_version
        with suppress(ShapeError, MemoryError):  # as in learn_again
            newest, codecs = self._with(self._fit(codecs[newest], self._samples))
        self._go_on(newest, codecs)

    def _with(self, codec: C) -> tuple[int, dict[int, C]]:
        """The newest version if a codec becomes one, and all codecs then."""
        newest, codecs = self.newest, self.by_version
        if codec == codecs[newest] or max(codecs) >= _MOST_VERSIONS:
            return newest, codecs
        newest = max(codecs) + 1
        return newest, {**codecs, newest: codec}

    def _go_on(self, newest: int, codecs: dict[int, C]) -> None:
        """Encode with the codecs after a training, without samples."""
        learned = {"newest": newest, "by_version": codecs, "learning": False, "_n_learned": self._n_encoded}
        ratios: deque[float] = deque(maxlen=_N_SAMPLES)
        unused: dict[str, object] = {"_samples": [], "_room": None, "_samples_nbytes": 0}
        vars(self).update(learned, **unused, _ratios=ratios, _first_ratio=None)  # all in one step
        give_back_free_memory()

    def _watch(self, ratio: float) -> None:
        self._ratios.append(ratio)
        if self._first_ratio is None and len(self._ratios) == _N_SAMPLES:
            self._first_ratio = self._mean_ratio
            self._ratios.clear()

    @property
    def _mean_ratio(self) -> float:
        return sum(self._ratios) / len(self._ratios)
