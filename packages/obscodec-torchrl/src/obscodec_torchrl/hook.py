"""SnapshotHook: a training with TorchRL's Trainer that goes on after its process has ended."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from obscodec import DTypeError, Snapshot, SnapshotError
from obscodec.arguments import as_count, kind_of
from obscodec.snapshots import named
from obscodec.state import State, part_of
from torchrl.data import ReplayBuffer
from torchrl.trainers import Trainer, TrainerHookBase

from obscodec_torchrl.loading import load_snapshot
from obscodec_torchrl.memmaps import files_of, folder_of
from obscodec_torchrl.state import SavedStorage
from obscodec_torchrl.storage import CompressedStorage


class SnapshotHook(TrainerHookBase):  # type: ignore[misc]
    """Writes generations of a replay buffer while a Trainer trains; :meth:`resume` goes on from one.

    A generation has the items, the sampler and the writer of the buffer between two iterations of the training. Its
    number is that of the collected frames. It writes only what is new since the last one, in the background.

    The checkpoint of the trainer needs no buffer then: register the methods of a ``ReplayBufferTrainer`` one by one,
    with ``trainer.register_op``, since its method ``register`` would save the buffer a second time.

    Args:
        buffer: a buffer with a CompressedStorage, or the storage alone.
        path: the folder of the generations, beside the file of the trainer.
        every: how many frames are collected between two generations. There is one at the end, too.
        keep: how many generations to keep.

    Raises:
        DTypeError: the buffer has another storage, or a number is none.
        ShapeError: a number is less than 1.

    Example:
        >>> from torchrl.data import TensorDictReplayBuffer
        >>> buffer = TensorDictReplayBuffer(storage=CompressedStorage(1000), batch_size=32)
        >>> hook = SnapshotHook(buffer, "training/buffer", every=10_000)  # then: hook.register(trainer)
    """

    def __init__(
        self,
        buffer: ReplayBuffer | CompressedStorage,
        path: str | os.PathLike[str],
        *,
        every: int,
        keep: int = 3,
    ) -> None:
        storage: Any = getattr(buffer, "storage", buffer)
        if not isinstance(storage, CompressedStorage):
            raise DTypeError(f"SnapshotHook takes a buffer with a CompressedStorage, got {kind_of(storage)}")
        is_buffer = isinstance(buffer, ReplayBuffer)
        self._parts = {"sampler": buffer._sampler, "writer": buffer._writer} if is_buffer else {}
        lock = buffer._replay_lock if is_buffer else storage.lock
        self._saved = SavedStorage(storage, lock, self._state_of_parts)
        self._path, self._every = Path(path), as_count("every", every)
        self._snapshot = Snapshot(path, keep=keep)
        self._last = 0
        self._trainer: Any = None  # until register

    def register(self, trainer: Trainer, name: str = "snapshot") -> None:
        """Let the trainer call this hook after the optimization of each iteration, before it may save itself."""
        self._trainer = trainer
        trainer.register_op("post_steps", self)
        trainer.register_op("shutdown", self.finish)
        trainer.register_module(name, self)

    def __call__(self) -> None:
        """Begin to write a generation, if enough frames were collected."""
        frames = self._trainer.collected_frames
        if frames - self._last >= self._every or frames >= self._trainer.total_frames > self._last:
            self.write(frames)

    def write(self, frames: int) -> None:
        """Begin to write a generation with a number.

        Raises:
            SnapshotError: the folder has later generations, from which this training does not go on.
            OSError: the disk refused the generation before.
        """
        self._snapshot.write(self._saved, generation=frames)
        self._last = frames

    def finish(self) -> None:
        """Wait until the last generation is on the disk."""
        self._snapshot.wait()

    def resume(self, trainer: Trainer, path: str | os.PathLike[str], **options: Any) -> int:
        """Load the checkpoint of a trainer, and into the buffer the last generation that is not newer.

        Args:
            trainer: made as the one that was saved.
            path: the file or folder that the trainer saved.
            **options: of ``Trainer.load_from_file``.

        Returns:
            The number of the generation: how many frames had been collected.

        Raises:
            SnapshotError: there is no such generation, or it is damaged.
            ShapeError, SpecError, FieldError or DTypeError: the storage can't hold its items.
        """
        trainer.load_from_file(path, **options)
        there, frames = self._snapshot.generations, trainer.collected_frames
        fitting = [number for number in there if number <= frames]
        if not fitting:
            found = f"{self._path} has no generation for a trainer that has collected {frames} frames"
            raise SnapshotError(f"{found}, only {there or '(none)'}")
        with self._saved.changing:
            state = load_snapshot(self._saved, self._path, fitting[-1])
            with named(self._path):
                files = part_of(state, "parts", dict)
                for name, part in self._parts.items():
                    with folder_of(part_of(files, name, dict)) as folder:
                        part.loads(folder)
        self._last = fitting[-1]
        return fitting[-1]

    def _state_of_parts(self) -> State:
        return {"parts": {name: files_of(part.dumps) for name, part in self._parts.items()}}

    def state_dict(self) -> dict[str, Any]:
        """The number of the last generation; the generation itself is in the folder."""
        return {"generation": self._last}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the number over; :meth:`resume` loads the generation."""
        self._last = int(state_dict["generation"])
