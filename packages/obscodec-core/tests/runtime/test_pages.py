"""Memory of the operating system: zeros, which go back when nobody holds them, and are not shared."""

import mmap
import re
from pathlib import Path

import numpy as np
import pytest
from forked import exit_status, forked
from obscodec.runtime import doubled, give_back_free_memory, new_chunk, new_huge_chunk, new_table

LARGE = 1 << 28


def pages() -> tuple[int, int]:
    """Bytes of this process that are mapped, and that are resident."""
    mapped, resident, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(mapped) * mmap.PAGESIZE, int(resident) * mmap.PAGESIZE


@pytest.mark.parametrize("new", [new_chunk, new_huge_chunk])
def test_a_chunk_is_of_zeros_and_can_be_written(new) -> None:
    for nbytes in (1, 4096, 100_001, (1 << 22) + 5):
        chunk = new(nbytes)
        assert (chunk.dtype, chunk.shape, int(chunk.max())) == (np.uint8, (nbytes,), 0)
        chunk[:] = 1
        assert new(nbytes).max() == 0


@pytest.mark.parametrize("new", [new_chunk, new_huge_chunk])
@pytest.mark.needs("/proc")
def test_a_chunk_takes_no_memory_until_it_is_written_and_goes_with_its_last_view(new) -> None:
    mapped, resident = pages()
    chunk = new(LARGE)
    assert pages()[0] - mapped >= LARGE
    assert pages()[1] - resident < LARGE // 8
    chunk[: LARGE // 4] = 1
    assert pages()[1] - resident >= LARGE // 8
    view = chunk[5:10].view(np.int8)
    del chunk
    assert pages()[0] - mapped >= LARGE
    assert view.tolist() == [1] * 5
    del view
    assert pages()[0] - mapped < LARGE // 2
    assert pages()[1] - resident < LARGE // 8


def test_a_huge_chunk_begins_with_a_huge_page() -> None:
    for nbytes in (1 << 21, (1 << 21) + 1, 10 << 20):
        assert new_huge_chunk(nbytes).ctypes.data % (1 << 21) == 0


@pytest.mark.parametrize("new", [new_chunk, new_huge_chunk])
@pytest.mark.needs("fork")
def test_what_a_forked_process_writes_is_not_seen(new) -> None:
    chunk = new(1 << 21)

    def write() -> None:
        chunk[:] = 7
        assert chunk.min() == 7

    assert exit_status(forked(write)) == 0
    assert chunk.max() == 0


def test_more_than_the_system_has_is_refused() -> None:
    text = re.escape(f"the system has no {1 << 62} bytes of memory left: ")
    with pytest.raises(MemoryError, match=f"^{text}"):
        new_chunk(1 << 62)


@pytest.mark.needs("/proc")
def test_a_table_takes_no_memory_until_it_is_written() -> None:
    _, resident = pages()
    table = doubled(new_table((LARGE // 16,), np.int64))
    assert table.nbytes == LARGE
    assert pages()[1] - resident < 3 * LARGE // 4  # the first half was read


@pytest.mark.needs("/proc")
def test_what_malloc_has_free_goes_back() -> None:
    """Between blocks that are kept, so that malloc can't give it back by itself."""
    blocks = [bytearray(100_000) for _ in range(1000)]  # below what malloc maps on its own
    del blocks[:-1:2], blocks[:-1:2], blocks[:-1:2]
    _, resident = pages()
    give_back_free_memory()
    assert resident - pages()[1] > 20 << 20
    assert blocks[-1] == bytes(100_000)


def test_what_a_signal_handler_raises_is_no_want_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise TimeoutError("of a handler")

    monkeypatch.setattr(mmap, "mmap", interrupted)
    with pytest.raises(TimeoutError):
        new_chunk(4096)
