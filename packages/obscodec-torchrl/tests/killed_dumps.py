"""Kill processes while they write a checkpoint, and load what is in the folder then.

    python packages/obscodec-torchrl/tests/killed_dumps.py [kills at random times] [steps that are saved]

A process writes a checkpoint over one of a CompressedStorage or of a LazyTensorStorage. It kills itself at one line
after the other of the code that writes files, or is killed at a random time. What is loaded then has to be, bit for
bit, what one of both holds, and the new one once ``dumps`` is done. Processes are forked from this one, which has
imported torch; they are done in milliseconds.
"""

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import obscodec.snapshots.saving
import obscodec_torchrl
import torch
from obscodec.runtime import Job
from obscodec_torchrl import CompressedStorage
from tensordict import NonTensorStack, TensorDict
from torchrl.data import LazyTensorStorage

sys.path.insert(0, str(Path(__file__).parents[2] / "obscodec-core" / "tests"))
from forked import exit_status, forked

CODE = str(Path(obscodec_torchrl.__file__).parent), str(Path(obscodec.snapshots.__file__).parent)


def steps(seed: int, n: int) -> TensorDict:
    pixels = torch.randint(0, 9, (n, 2, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    names = NonTensorStack(*(f"{seed} {i}" for i in range(n)))
    return TensorDict({"pixels": pixels, "number": torch.arange(n) + seed, "name": names}, [n])


def filled(storage: LazyTensorStorage, data: TensorDict) -> LazyTensorStorage:
    storage.set(range(len(data)), data)
    return storage


def loaded(folder: Path, room: int) -> TensorDict:
    storage = CompressedStorage(room)
    storage.loads(folder)
    return storage[torch.arange(len(storage))]


def same(a: TensorDict, b: TensorDict) -> bool:
    names = [list(data["name"]) if "name" in data else None for data in (a, b)]
    plain = [data.exclude("name") for data in (a, b)]
    return a.shape == b.shape and names[0] == names[1] and bool((plain[0] == plain[1]).all())


def was_killed(child: int) -> bool:
    status = exit_status(child)
    assert status in (0, -signal.SIGKILL)
    return status != 0


def killing_at(line: int) -> Callable[[FrameType, str, Any], Any]:
    """What kills this process before it runs so many lines of our code."""
    n_lines = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal n_lines
        if not frame.f_code.co_filename.startswith(CODE):
            return None
        if event == "line" and frame.f_code.co_filename.endswith(("checkpointer.py", "folder.py", "writer.py")):
            n_lines += 1
            if n_lines == line:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


class Foreground:
    """Writes files at once, in the thread that is traced."""

    def submit(self, work: Callable[[], Any]) -> Job[Any]:
        job = Job(work)
        job.run()
        return job


def at_lines(
    before: Path, old: TensorDict, new: LazyTensorStorage, expected: TensorDict, step: int = 1
) -> Counter[str]:
    """Kill a writer at every ``step``-th line: what was loaded, in how many cases."""
    found: Counter[str] = Counter()
    killed, line = True, 0
    while killed:
        line += step
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "storage"
            shutil.copytree(before, folder)  # with the times of its files

            def write(line: int = line, folder: Path = folder) -> None:
                obscodec.snapshots.saving._WRITER = Foreground()
                sys.settrace(killing_at(line))
                new.dumps(folder)

            killed = was_killed(forked(write))
            found[which(folder, old, expected)] += 1
    assert which(folder_after(before, new), old, expected) == "new"
    assert found["new"] >= 1
    assert found["old"] >= 1
    return found


def folder_after(before: Path, new: LazyTensorStorage) -> Path:
    """A copy where a writer is done."""
    folder = before.with_name(f"{before.name}-after")
    shutil.copytree(before, folder)
    new.dumps(folder)
    left = {path.name for path in folder.iterdir()} - {"snapshot"}
    assert left <= {"pixels.memmap", "number.memmap", "name"}, left  # tensors of TorchRL, of no checkpoint any more
    return folder


def which(folder: Path, old: TensorDict, new: TensorDict) -> str:
    found = loaded(folder, 2 * len(new))
    if same(found, new):
        return "new"
    assert same(found, old), "what is loaded is neither the old checkpoint nor the new one"
    return "old"


def at_random_times(folder: Path, storages: list[LazyTensorStorage], n: int, seed: int) -> Counter[str]:
    """Kill writers of two checkpoints in turn, one over what the others have left: what was loaded, how often."""
    contents = [storage[torch.arange(len(storage))] for storage in storages]
    begin = time.perf_counter()
    storages[0].dumps(folder)
    seconds, drawn = time.perf_counter() - begin, random.Random(seed)
    found: Counter[str] = Counter()
    there = 0
    while found.total() < n:
        reading, writing = os.pipe()

        def write(new: LazyTensorStorage = storages[1 - there], writing: int = writing) -> None:
            os.write(writing, b".")
            new.dumps(folder)

        child = forked(write)
        os.read(reading, 1)
        time.sleep(drawn.uniform(0, 1.5 * seconds))
        os.kill(child, signal.SIGKILL)
        killed = was_killed(child)
        os.close(reading)
        os.close(writing)
        is_new = which(folder, contents[there], contents[1 - there]) == "new"
        assert killed or is_new
        found[f"{'killed' if killed else 'done'}, {'new' if is_new else 'old'}"] += 1
        there = 1 - there if is_new else there
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    n_kills, n_steps = (int(argument) for argument in (*sys.argv[1:], 12, 12)[:2])
    old, new = (steps(seed, n_steps) for seed in range(2))
    ours = [filled(CompressedStorage(2 * n_steps, decide_after=4), data) for data in (old, new)]
    with tempfile.TemporaryDirectory() as root:
        ours[0].dumps(Path(root) / "ours")
        print("over ours:", dict(at_lines(Path(root) / "ours", old, ours[1], new, step=11)))
        filled(LazyTensorStorage(2 * n_steps), old).dumps(Path(root) / "stock")
        print("over TorchRL's:", dict(at_lines(Path(root) / "stock", old, ours[1], new, step=17)))
        print("at random times:", dict(at_random_times(Path(root) / "random", ours, n_kills, seed=n_kills)))
