"""RingBuffer: the last steps of some environments, with compressed fields, drawn as training loops need them."""

from __future__ import annotations  # else each sample would evaluate those of its inner functions

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, as_flag, as_option, kind_of, says_arguments
from obscodec.buffers.array_set import listed
from obscodec.buffers.drawing import (
    Ends,
    Episodes,
    NStep,
    Prioritized,
    Rng,
    TorchBatch,
    as_generator,
    draw,
    draw_starts,
    drawable_steps,
)
from obscodec.buffers.field import Array
from obscodec.buffers.step_ring import StepRing
from obscodec.errors import DTypeError, FieldError, ShapeError, SlotError, SpecError
from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.stores import new_batch

T = TypeVar("T")
Bools = npt.NDArray[np.bool_]
Batch = dict[str, Array]
Chooser = Callable[..., Callable[[], dict[str, Any]]]


class RingBuffer(StepRing):
    """The last ``capacity`` steps of each of ``n_envs`` environments.

    Steps of compressed fields wait in a write buffer, so that some are stored together; steps of a field with
    ``max_bytes`` are stored at once. Any number of threads may append and sample at the same time: each call sees whole
    steps, and steps of several writers come one after the other. A new step is written beside the oldest one, which
    goes when the new step is complete: so a failed append changes nothing.

    Args:
        capacity: how many steps to keep for each environment; the oldest go first.
        fields: the fields of a step.
        n_envs: how many environments step together.
        stack: fields to read as a stack of their last steps, and how many: ``{"frame": 4}``. The buffer stores one step
            of each. A field that is the ``next_of`` another one is stacked as that is, without being named.
        episode_end: the boolean field, or several, of which one is true in the last step of an episode:
            ``("terminated", "truncated")``. Stacks, ``n_step`` and sequences need it.
        threads: how many threads decode a batch, None for half of the usable processors.
        max_bytes: the most bytes of memory for the whole buffer, None for no limit. When they run out before
            ``capacity`` does, the oldest steps of all environments go, and a warning says so once. The memory may
            exceed the limit by 16 steps, and by 2 MiB of each store, where blocks wait to be compressed.
        spill: a folder for the oldest blocks that exceed ``max_bytes``: they go to files there, without names, and no
            step goes before ``capacity`` runs out. The files end with the process.
        pad: what stacks have before the first step of an episode; there is no default, since it must be what the actor
            saw. ``"edge"``: the first step again, as Gymnasium's FrameStackObservation. ``"zeros"``: as SB3's
            VecFrameStack. The steps before the oldest one are kept as long as stacks need them.
        mask: a boolean field that is false in steps that are no part of an episode, and are never drawn: such as the
            step in which a vectorized environment ignores the action and resets itself (EnvPool; Gymnasium's
            ``AutoresetMode.NEXT_STEP``).

    Raises:
        FieldError: there are no fields, or an argument names a field that does not exist.
        ShapeError: a number is out of range.
        DTypeError: an argument has another type, or the dtype of ``episode_end`` or ``mask`` is not bool.
        SpecError: a spec names no codec; there are stacks and no ``pad``; or ``spill`` is given without ``max_bytes``
            or for pinned memory.

    Example:
        >>> from obscodec import Field
        >>> fields = {"frame": Field((84, 84), np.uint8, "zstd:1"), "reward": Field((), np.float32),
        ...           "done": Field((), bool)}
        >>> buffer = RingBuffer(1000, fields, stack={"frame": 4}, pad="zeros", episode_end="done")
        >>> for i in range(10):
        ...     buffer.append(frame=np.full((84, 84), i, np.uint8), reward=1.0, done=i == 6)
        >>> buffer[-1]["frame"][0, :, 0, 0]
        array([0, 7, 8, 9], dtype=uint8)
        >>> buffer.sample(32, np.random.default_rng(0))["frame"].shape
        (32, 4, 84, 84)
    """

    @overload
    def sample(
        self, batch: int, rng: Rng = None, *, replace: bool = True, p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None, gamma: float | None = None, reward: str = "reward",
    ) -> Batch: ...  # fmt: skip

    @overload
    def sample(
        self, batch: int, rng: Rng = None, *, replace: bool = True, p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None, gamma: float | None = None, reward: str = "reward", return_indices: Literal[True],
    ) -> tuple[Batch, Ints]: ...  # fmt: skip

    @overload
    def sample(
        self, batch: int, rng: Rng = None, *, replace: bool = True, p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None, gamma: float | None = None, reward: str = "reward", to: object,
    ) -> dict[str, Any]: ...  # fmt: skip

    @overload
    def sample(
        self, batch: int, rng: Rng = None, *, replace: bool = True, p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None, gamma: float | None = None, reward: str = "reward", return_indices: Literal[True],
        to: object,
    ) -> tuple[dict[str, Any], Ints]: ...  # fmt: skip

    @overload
    def sample(
        self, batch: int, rng: Rng = None, *, replace: bool = True, p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None, gamma: float | None = None, reward: str = "reward", convert: Callable[[Array], T],
    ) -> dict[str, T]: ...  # fmt: skip

    @overload
    def sample(
        self, batch: int, rng: Rng = None, *, replace: bool = True, p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None, gamma: float | None = None, reward: str = "reward", return_indices: Literal[True],
        convert: Callable[[Array], T],
    ) -> tuple[dict[str, T], Ints]: ...  # fmt: skip

    @says_memory_error
    @says_arguments
    def sample(
        self,
        batch: int,
        rng: Rng = None,
        *,
        replace: bool = True,
        p: npt.ArrayLike | Prioritized | None = None,
        n_step: int | None = None,
        gamma: float | None = None,
        reward: str = "reward",
        return_indices: bool = False,
        to: object = None,
        convert: Callable[[Array], Any] | None = None,
    ) -> Any:
        """Steps of random environments at random times, uniformly and with replacement unless you say otherwise.

        Args:
            batch: how many steps.
            rng: a random generator, of numpy or PyTorch, or a seed; None for a new generator.
            replace: whether a step may be drawn more than once.
            p: the probability of each step, ``[len(self), n_envs]`` or flat; or the priorities of the steps.
            n_step: add up the rewards of so many steps, fewer where an episode ends or no more are stored. What a step
                led to (the ``next_of`` fields, and those in ``episode_end``) is read at the last of these. The batch
                has one array more, ``"discount"``: ``gamma`` to the power of their number, the factor of the value of
                the next observation.
            gamma: the discount of each step, for ``n_step``.
            reward: the field of the rewards, for ``n_step``.
            return_indices: whether to return the indices of the steps, too. An index stays valid until its step is
                overwritten: see :meth:`take`, and :class:`Prioritized`.
            to: a device of PyTorch, to return tensors: ``"cpu"`` shares the memory of the arrays, ``"cuda"`` copies
                from page-locked memory in the background.
            convert: called with each array, such as ``jax.numpy.asarray``.

        Returns:
            For each field a new array ``[batch, *shape]``, a tensor, or what ``convert`` returns for it; for a stack of
            ``n`` steps ``[batch, n, *shape]``, the oldest first. Compressed fields on a GPU come as arrays on that GPU.
            With ``return_indices`` a pair, of that and of ``i64[batch]``.

        Raises:
            SlotError: no step is stored, or none can be drawn.
            ShapeError: ``batch`` is negative, or more than there are to draw without replacement; ``p`` has another
                shape, or less room than the buffer; ``n_step`` or ``gamma`` is out of range.
            DTypeError: an argument has another type.
            FieldError: ``n_step`` finds no rewards, or no ``episode_end``.
            SpecError: priorities are drawn with replacement only; ``to`` and ``convert`` exclude each other.
            MissingPackage: ``to`` is given, and PyTorch is not installed.
            BackendUnavailable: PyTorch can't use the device.
        """
        batch, began = as_count("batch", batch, 0), perf_counter()
        replace, returns_indices = as_flag("replace", replace), as_flag("return_indices", return_indices)
        choose = self._chooser(n_step, gamma, reward, to, convert)
        with self._lock:
            self._check_not_empty()
            steps, envs = self._draw(batch, as_generator(rng), replace, p)
            indices = self._indices(steps, envs) if returns_indices else None
            read = choose(steps, envs)
        sampled = read()
        self._note_sample(began)
        return (sampled, indices) if returns_indices else sampled

    @says_memory_error
    @says_arguments
    def take(
        self,
        indices: npt.ArrayLike,
        *,
        n_step: int | None = None,
        gamma: float | None = None,
        reward: str = "reward",
        to: object = None,
    ) -> dict[str, Any]:
        """The steps with these indices, as :meth:`sample` returns them.

        Args:
            indices: ``i64[batch]``, such as :meth:`sample` returned them.
            n_step: see :meth:`sample`, for this and the other arguments.
            gamma: see there.
            reward: see there.
            to: see there.

        Raises:
            SlotError: a step is overwritten or was taken out, or is not there yet.
            Exception: see :meth:`sample`.
        """
        return self._taken(indices, self._chooser(n_step, gamma, reward, to, None))

    @overload
    def epochs(
        self, batch: int, rng: Rng = None, *, n_epochs: int = 1, drop_last: bool = False, to: object = None
    ) -> Iterator[dict[str, Any]]: ...

    @overload
    def epochs(
        self, batch: int, rng: Rng = None, *, n_epochs: int = 1, drop_last: bool = False, to: object = None,
        return_indices: Literal[True],
    ) -> Iterator[tuple[dict[str, Any], Ints]]: ...  # fmt: skip

    @says_memory_error
    @says_arguments
    def epochs(
        self,
        batch: int,
        rng: Rng = None,
        *,
        n_epochs: int = 1,
        drop_last: bool = False,
        to: object = None,
        return_indices: bool = False,
    ) -> Iterator[Any]:
        """Every step that is stored now, in random order, a batch at a time; and again for further epochs.

        Args:
            batch: steps of a batch; the last one of an epoch has what is left.
            rng: a random generator, of numpy or PyTorch, or a seed; None for a new generator.
            n_epochs: how many times.
            drop_last: leave a smaller last batch out.
            to: see :meth:`sample`.
            return_indices: whether to return the indices of the steps, too.

        Yields:
            Batches, as :meth:`sample` returns them; with ``return_indices`` pairs, of these and of ``i64[batch]``.

        Raises:
            SlotError: no step is stored; or one was overwritten or taken out since the call.
            Exception: see :meth:`sample`.
        """
        batch, n_epochs = as_count("batch", batch), as_count("n_epochs", n_epochs)
        last, returns_indices = as_flag("drop_last", drop_last), as_flag("return_indices", return_indices)
        choose = self._chooser(None, None, "", to, None)
        with self._lock:
            self._check_not_empty()
            among = drawable_steps((len(self), self.n_envs), self._drawable) + self.indices.start
        drawn = _shuffled(among, batch, as_generator(rng), n_epochs, last)
        if returns_indices:
            return ((self._taken(indices, choose), indices) for indices in drawn)
        return (self._taken(indices, choose) for indices in drawn)

    @overload
    def sequences(
        self, batch: int, length: int, rng: Rng = None, *, overlap: int | None = None, burn_in: int = 0,
        strict_length: bool = True, across_episodes: bool = False, starts: npt.ArrayLike | None = None,
        p: npt.ArrayLike | Prioritized | None = None, to: object = None,
    ) -> dict[str, Any]: ...  # fmt: skip

    @overload
    def sequences(
        self, batch: int, length: int, rng: Rng = None, *, overlap: int | None = None, burn_in: int = 0,
        strict_length: bool = True, across_episodes: bool = False, starts: npt.ArrayLike | None = None,
        p: npt.ArrayLike | Prioritized | None = None, to: object = None, return_indices: Literal[True],
    ) -> tuple[dict[str, Any], Ints]: ...  # fmt: skip

    @says_memory_error
    @says_arguments
    def sequences(
        self,
        batch: int,
        length: int,
        rng: Rng = None,
        *,
        overlap: int | None = None,
        burn_in: int = 0,
        strict_length: bool = True,
        across_episodes: bool = False,
        starts: npt.ArrayLike | None = None,
        p: npt.ArrayLike | Prioritized | None = None,
        to: object = None,
        return_indices: bool = False,
    ) -> Any:
        """Random sequences of consecutive steps of one environment, uniformly and with replacement.

        A sequence lies in one episode. The batch has one array more, ``"mask"``, ``bool[batch, burn_in + length]``:
        False where a step is missing, which is read as zeros.

        Args:
            batch: how many sequences.
            length: steps of a sequence.
            rng: a random generator, of numpy or PyTorch, or a seed; None for a new generator.
            overlap: sequences begin only where an episode begins, and ``length - overlap`` steps after one another; the
                last one of an episode begins earlier, to end with it. None to begin anywhere.
            burn_in: so many steps of the episode before each sequence, to warm up a recurrent network; they are missing
                where the episode begins later.
            strict_length: leave out episodes with fewer steps than ``length``; False to fill up their ends.
            across_episodes: draw from all steps, whatever ends in between. Steps that the ``mask`` of the buffer
                excludes are missing. A sequence does not cross what :meth:`end_episodes` has ended, if no field says
                so.
            starts: indices of steps to begin at, ``i64[batch]``, instead of drawing them; where their episode ends
                earlier, steps are missing.
            p: the probability of each step to be the first of a sequence, or the priorities of the steps, as
                :meth:`sample` takes them, in place of equal ones; where an episode ends earlier, steps are missing.
            to: see :meth:`sample`.
            return_indices: whether to return the indices of the steps where they begin, after the burn-in, too.

        Returns:
            For each field an array ``[batch, burn_in + length, *shape]``, or a tensor; with a stack of ``n`` steps
            ``[batch, burn_in + length, n, *shape]``. With ``return_indices`` a pair, of that and of ``i64[batch]``.

        Raises:
            SlotError: no step is stored; no episode is long enough; or there is no step with such an index.
            FieldError: there is no ``episode_end``; or a field is named ``"mask"``.
            ShapeError: a number is out of range; or ``p`` has another shape, or less room than the buffer.
            SpecError: ``starts`` or ``overlap`` is given with ``p``, which says where sequences begin.
            DTypeError: an argument has another type.
            Exception: see :meth:`sample`.
        """
        batch, length = as_count("batch", batch, 0), as_count("length", length)
        overlap, burn_in = as_option("overlap", overlap, 0), as_count("burn_in", burn_in, 0)
        if overlap is not None and overlap >= length:
            raise ShapeError(f"overlap must be less than length, {length}, got {overlap}")
        strict, choose = as_flag("strict_length", strict_length), self._chooser(None, None, "", to, None)
        if p is not None and not (starts is None and overlap is None):
            raise SpecError("p says where sequences begin: leave starts and overlap out")
        if "mask" in self._set.fields:
            raise FieldError("sequences return a mask: give the field 'mask' another name")
        across, returns_indices = as_flag("across_episodes", across_episodes), as_flag("return_indices", return_indices)
        began = perf_counter()
        with self._lock:
            self._check_not_empty()
            rng, parts = as_generator(rng), self._parts(across)
            if starts is None and p is None:
                stride = 1 if overlap is None else length - overlap
                part, start = draw_starts(rng, parts, batch, length, stride, strict)
            else:
                steps, envs = self._draw(batch, rng, True, p) if starts is None else self._steps_of(starts)
                if len(steps) != batch:
                    what = f"batch is {batch}, and there are {len(steps)} starts"
                    raise ShapeError(f"{what}: pass a start for each sequence")
                start = steps + self._oldest
                part = parts.find(start, envs)
            steps = start[:, None] + np.arange(-burn_in, length)
            real = (steps >= parts.begin[part][:, None]) & (steps < parts.end[part][:, None])
            steps = np.where(real, steps, start[:, None]) - self._oldest
            envs = np.broadcast_to(parts.envs[part][:, None], steps.shape)
            if across:
                real &= self._drawable(steps, envs)
            read = choose(steps, envs, real)
        sequences = read()
        self._note_sample(began)
        return (sequences, start * self.n_envs + parts.envs[part]) if returns_indices else sequences

    @says_memory_error
    @says_arguments
    def episodes(self, *, unfinished: bool = False, to: object = None) -> Iterator[dict[str, Any]]:
        """The episodes that are stored, one after the other, by environment and time.

        Args:
            unfinished: whether the running episodes are among them.
            to: see :meth:`sample`.

        Yields:
            For each field an array ``[n_steps, *shape]``, or a tensor. The oldest episode of an environment may lack
            its first steps, which are overwritten.

        Raises:
            FieldError: there is no ``episode_end``.
            SlotError: a step was overwritten since the first episode.
            Exception: see :meth:`sample`.
        """
        unfinished, choose = as_flag("unfinished", unfinished), self._chooser(None, None, "", to, None)
        with self._lock:
            parts = self._parts(False)
        return self._episodes(parts, np.flatnonzero(parts.done | unfinished), choose)

    def _episodes(self, parts: Episodes, chosen: Ints, choose: Chooser) -> Iterator[dict[str, Any]]:
        for k in chosen:
            steps = np.arange(parts.begin[k], parts.end[k])
            yield self._taken(steps * self.n_envs + parts.envs[k], choose)

    def _taken(self, indices: npt.ArrayLike, choose: Chooser) -> dict[str, Any]:
        with self._lock:
            read = choose(*self._steps_of(indices))
        return read()

    def _note_sample(self, began: float) -> None:
        with self._lock:
            self._set.note_sample(began)

    def _chooser(
        self, n_step: object, gamma: object, reward: str, to: object, convert: Callable[[Array], Any] | None
    ) -> Chooser:
        """A function that chooses steps, their environments, and optionally which of them are real.

        It is called with the lock. It returns a function that reads them, without the lock. All arguments are checked
        before.
        """
        if convert is not None and not callable(convert):
            raise DTypeError(f"convert must be a function, such as torch.from_numpy, got {kind_of(convert)}")
        if to is not None and convert is not None:
            raise SpecError("to returns tensors of PyTorch, convert whatever you like: pass one of them")
        n_steps = NStep.of(n_step, gamma, reward)
        self._check_n_step(n_steps)
        tensors = None if to is None else TorchBatch(to)
        made = tensors.tensor if tensors else convert
        new_array = tensors.new_array if tensors else new_batch

        def choose(steps: Ints, envs: Ints, real: Bools | None = None) -> Callable[[], dict[str, Any]]:
            more: Batch = {} if real is None else {"mask": real}
            last = steps
            if n_steps is not None:
                last = n_steps.last(steps, envs, len(self), self._ends, self._drawable)
                length = int((last - steps).max(initial=0)) + 1
                window = np.minimum(steps[:, None] + np.arange(length), last[:, None])
                rewards: Any = self._arrays[reward][self._positions(window), envs[:, None]]
                more[reward], more["discount"] = n_steps.returns(rewards, last - steps + 1)
            at_once = tensors.tensor if tensors else None  # all items of a store
            chosen = self._chosen(steps, envs, last=last, real=real, new_array=new_array, convert=at_once)

            def read() -> dict[str, Any]:
                arrays: dict[str, Any] = chosen.result() | more
                return arrays if made is None else {name: made(array) for name, array in arrays.items()}

            return read

        return choose

    def _check_not_empty(self) -> None:
        if not len(self):
            raise SlotError("the buffer is empty: append a step before you sample")

    def _check_n_step(self, n_steps: NStep | None) -> None:
        if n_steps is None:
            return
        if not isinstance(n_steps.reward, str) or n_steps.reward not in self._set.fields:
            names = listed(self._set.fields)
            raise FieldError(
                f"n_step adds rewards, and no field is named {n_steps.reward!r}, there are {names}: pass reward, the "
                "name of one"
            )
        if "discount" in self._set.fields:
            raise FieldError("n_step returns a discount: give the field 'discount' another name")
        if not self.episode_end:
            raise FieldError("n_step needs episode_end, the boolean field that is true in the last step of an episode")
        if n_steps.reward in self._stacks:
            raise FieldError(f"n_step adds rewards, and field {n_steps.reward!r} is read as a stack")
        n_steps.check(self._set.fields[n_steps.reward].layout.dtype)

    def _draw(
        self, batch: int, rng: np.random.Generator, replace: bool, p: npt.ArrayLike | Prioritized | None
    ) -> tuple[Ints, Ints]:
        """Random steps and their environments, ``i64[batch]`` each."""
        if isinstance(p, Prioritized):
            if not replace:
                raise SpecError("priorities are drawn with replacement: leave replace out")
            steps, envs = np.divmod(self._draw_by(p, batch, rng) - self.indices.start, self.n_envs)
            return steps, envs
        drawable = None if self._draws_all else self._drawable
        return draw(rng, batch, (len(self), self.n_envs), drawable, replace, p)

    def _draw_by(self, p: Prioritized, batch: int, rng: np.random.Generator) -> Ints:
        n_steps = self.capacity * self.n_envs
        if p.capacity < n_steps:  # else it fails when that many are stored, hours later
            raise ShapeError(
                f"Prioritized has room for {p.capacity} steps, the buffer for {n_steps}, {self.capacity} of each of "
                f"{self.n_envs} environments: make a Prioritized({n_steps})"
            )
        there, masked = self.indices, np.empty(0, np.int64)
        if not self._draws_all:
            new = np.arange(max(there.start, p.indices.stop), there.stop)
            masked = new[~self._drawable(*np.divmod(new - there.start, self.n_envs))]
        p.advance(there.start, there.stop, masked)
        drawn = p.sample(batch, rng)
        if len(self._seams.gone) and self._seams.are_gone(drawn).any():  # taken out since they were new
            p.exclude(self._seams.since(there.start).gone)
            drawn = p.sample(batch, rng)
        return drawn

    def _steps_of(self, indices: npt.ArrayLike) -> tuple[Ints, Ints]:
        """The steps and environments that have some indices."""
        given, there = np.asarray(indices), self.indices
        if given.ndim != 1:
            raise ShapeError(f"indices are an array [batch], got shape {given.shape}")
        if given.size and given.dtype.kind not in "iu":
            raise DTypeError(f"indices are integers, got {given.dtype}")
        if given.size and not there.start <= given.min() <= given.max() < there.stop:
            raise SlotError(
                f"the steps that are stored have the indices {there.start} to {there.stop - 1}, got {given.min()} to "
                f"{given.max()}: steps before the first are overwritten"
            )
        if len(self._seams.gone) and (gone := self._seams.are_gone(given)).any():
            what = "was taken out by drop_episode, or with_envs has put no step there"
            raise SlotError(f"the step with the index {given[gone][0]} {what}")
        steps, envs = np.divmod(given.astype(np.int64) - there.start, self.n_envs)
        return steps, envs

    def _parts(self, across_episodes: bool) -> Episodes:
        steps, found = (self._oldest, self._n_appended), self._parts_found
        if across_episodes:
            return Episodes.between(self._seams_as_ends(), *steps, self.n_envs)
        if not self.episode_end:
            raise FieldError("episodes end where episode_end is true: pass it, the name of a boolean field")
        if found is None or found[0] != steps:
            self._ends_found = ends = self._ends_found.up_to(
                *steps, lambda numbers: self._scan_stored(numbers - self._oldest)
            )
            self._parts_found = found = steps, Episodes.between(ends, *steps, self.n_envs)
        return found[1]

    def _seams_as_ends(self) -> Ends:
        seams = self._seams.since(self.indices.start)
        indices = np.union1d(seams.ends, seams.gone)
        steps, envs = np.divmod(indices, self.n_envs)
        return Ends(self._n_appended, steps, envs, ~seams.are_gone(indices))


def _shuffled(indices: Ints, batch: int, rng: np.random.Generator, n_epochs: int, drop_last: bool) -> Iterator[Ints]:
    """Some epochs of indices, a batch ``i64[batch]`` at a time."""
    for _ in range(n_epochs):
        order = rng.permutation(indices)
        for begin in range(0, len(order) - (batch - 1 if drop_last else 0), batch):
            yield order[begin : begin + batch]
