"""Rows that are not written stay as they were, whatever ends a write, at any line; what is written is old or new."""

import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from atari_steps import atari_steps
from extended_rows import Rows
from failing_allocator import run_with
from faults import at_every_line
from new_python import run_python
from obscodec_torchrl import CompressedStorage
from obscodec_torchrl.sending import encoded
from tensordict import TensorDict
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

HERE = Path(__file__).parent
STEP = int(os.environ.get("OBSCODEC_FAULT_STEP", "23"))
OPTIONS = [("delta-rle", 8), ("zstd:1", 8), ("auto", 100_000)]


@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize(("codec", "decide_after"), OPTIONS)
def test_a_write_that_is_interrupted_changes_its_rows_or_none(codec: str, decide_after: int, raised: Any) -> None:
    rows, n_interrupts = Rows(codec=codec, decide_after=decide_after), 0
    for where in at_every_line(rows.prepare, STEP, raised):
        n_interrupts += 1
        rows.check(where)
        rows.buffer.sample()
    assert n_interrupts > 300 // STEP
    rows.check_end()


@pytest.mark.slow
def test_each_allocation_of_a_write_and_a_sample_may_fail(tmp_path: Path) -> None:
    options = [f"{codec}/{decide_after}" for codec, decide_after in OPTIONS]
    printed = run_with(HERE / "allocation_faults_torchrl.py", *options, folder=tmp_path)
    for option in options:
        assert int(re.search(rf"^{re.escape(option)}: (\d+)$", printed, re.M)[1]) > 10


def test_a_failed_write_whose_exception_is_kept_lets_tensors_go(monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(seed: int) -> TensorDict:
        pixels = torch.randint(256, (50, 1, 24, 24), dtype=torch.uint8, generator=torch.manual_seed(seed))
        return TensorDict(pixels=pixels, number=torch.arange(50), batch_size=50)

    buffer = TensorDictReplayBuffer(storage=CompressedStorage(50, codec="raw", min_nbytes=100))
    buffer.extend(steps(0))
    with monkeypatch.context() as patched:
        patched.setattr(LazyTensorStorage, "set", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt) as kept:
            buffer.extend(steps(1))
    (store,) = buffer.storage.stores()
    for seed in range(5):
        buffer.extend(steps(seed))
        assert store.stats().n_tensors == 50
    assert kept.traceback


def test_a_write_that_is_interrupted_at_any_line_keeps_no_tensors_while_its_exception_is_kept() -> None:
    rows, kept = Rows(codec="delta-rle", decide_after=8), []

    def prepare() -> Callable[[], None]:
        write = rows.prepare()

        def keeping() -> None:
            try:
                write()
            except KeyboardInterrupt as error:
                kept.append(error)
                raise

        return keeping

    for where in at_every_line(prepare, STEP, KeyboardInterrupt):
        references: list[Any] = [store._references for store in rows.storage.stores()]
        assert not any(of._guards for of in references), where
    assert len(kept) > 300 // STEP


@pytest.mark.slow
@pytest.mark.parametrize("raised", [KeyboardInterrupt, MemoryError])
def test_items_whose_sending_is_interrupted_can_be_sent_again(raised: Any) -> None:
    steps = atari_steps("MsPacman", 20, seed=0)
    expected, made, n_interrupts = steps.clone(), encoded(steps), 0
    for send in (lambda: encoded(steps), lambda: pickle.dumps(made, 5)):
        for where in at_every_line(lambda send=send: send, 20 * STEP + 1, raised):
            n_interrupts += 1
            assert (steps == expected).all(), where
            assert (pickle.loads(pickle.dumps(made, 5)) == expected).all(), where
    assert n_interrupts > 100 // STEP, n_interrupts
    assert (pickle.loads(pickle.dumps(encoded(steps), 5)) == expected).all()


@pytest.mark.slow
@pytest.mark.needs("limits of a process", "/proc")
@pytest.mark.parametrize("kind", [pytest.param("delta-rle", marks=pytest.mark.long), "auto"])
def test_what_has_no_memory_is_undone_in_a_new_process(kind: str) -> None:
    """Also in one that has never undone anything."""
    assert run_python(HERE / "extend_without_memory.py", kind, timeout=300).endswith("all is there\n")


@pytest.mark.slow
@pytest.mark.needs("fork")
def test_forks_beside_threads() -> None:
    """A process may be forked while other threads sample and add; the child ends, and has whole items."""
    program = HERE / "fork_beside_threads_torchrl.py"
    printed = run_python(program, 4, "prefetch", "extend", timeout=400)
    assert printed.endswith("all children of prefetch, extend ended\n")
