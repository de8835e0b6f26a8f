"""Of a damaged snapshot, everything that is intact is loaded, and nothing else."""

import json

import numpy as np
import obscodec
import pytest
import xxhash
from obscodec import CorruptStream, Field, FrameStore, Layout, RingBuffer, Snapshot, SnapshotError, TensorArray
from obscodec.snapshots import load
from saved import NOISY, append, check_equal_rings, flip, noise, ring

SPECS = "raw", "rle", "delta-rle", "zstd:3", "lz4", "shuffle|raw", "shuffle|zstd:1", "delta|lz4"


def blocks(folder):
    return sorted(folder.glob("blocks-*.segment"))


def noisy_ring(n_steps, capacity=300, n_envs=2):
    fields = {"obs": Field(NOISY.shape, np.uint8, "raw", block_frames=4), "step": Field((), np.int64)}
    buffer = RingBuffer(capacity, fields, n_envs)
    fill(buffer, 0, n_steps)
    return buffer


def fill(buffer, begin, end):
    for k in range(begin, end):
        buffer.append(obs=noise(2, seed=k), step=[k, k])


def mask_of(lost, n_steps=200):
    is_lost = np.zeros((n_steps, 2), np.bool_)
    is_lost[tuple(lost.T)] = True
    return is_lost


@pytest.mark.parametrize("n_steps", [150, 700])
def test_a_ring_without_the_steps_of_a_damaged_record(n_steps, tmp_path):
    buffer = noisy_ring(n_steps)
    obscodec.save(buffer, tmp_path)
    (file,) = blocks(tmp_path)
    flip(file, 100_000)
    with pytest.raises(SnapshotError, match=r"blocks-00000001-0000\.segment, record 1 at 6.*load it with salvage=True"):
        obscodec.load(tmp_path)
    loaded, lost, damage = obscodec.load(tmp_path, salvage=True)
    assert len(damage) == 2
    assert "record 1 at 6" in damage[0]
    assert "streams of state/arrays/stores/obs/store/blocks/streams lie outside of the files" in damage[1]
    assert 20 < len(lost) < 50  # a record has 64 KiB
    expected, found = buffer[:], loaded[:]
    is_lost = mask_of(lost, len(buffer))
    np.testing.assert_array_equal(found["step"], expected["step"])
    np.testing.assert_array_equal(found["obs"][~is_lost], expected["obs"][~is_lost])
    assert not found["obs"][is_lost].any()
    for one in (buffer, loaded):
        fill(one, n_steps, n_steps + 400)
    check_equal_rings(buffer, loaded)


def test_steps_whose_stack_reaches_into_lost_ones_are_lost(tmp_path):
    fields = {"obs": Field(NOISY.shape, np.uint8, "raw", block_frames=4), "done": Field((), np.bool_)}
    buffer = RingBuffer(300, fields, 2, stack={"obs": 4}, pad="zeros", episode_end="done")
    for k in range(390):
        buffer.append(obs=noise(2, seed=k), done=[k % 7 == 0, k % 50 == 0])
    obscodec.save(buffer, tmp_path)
    flip(blocks(tmp_path)[0], 200_000)
    loaded, lost, _ = obscodec.load(tmp_path, salvage=True)
    found, expected = loaded[:]["obs"], buffer[:]["obs"]
    differs = np.argwhere((found != expected).any(axis=(2, 3, 4)))
    assert lost.tolist() == differs.tolist()
    assert len(lost) > 20


@pytest.mark.parametrize("name", ["nothing", "text", "folder"])
def test_where_there_is_no_snapshot_nothing_is_salvaged(name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("")
    with pytest.raises(SnapshotError, match=str(tmp_path / name)):
        obscodec.load(tmp_path / name, salvage=True)


def test_what_was_salvaged_can_be_saved(tmp_path):
    buffer = noisy_ring(200)
    obscodec.save(buffer, tmp_path / "damaged")
    flip(blocks(tmp_path / "damaged")[0], 100_000)
    loaded, _, _ = obscodec.load(tmp_path / "damaged", salvage=True)
    obscodec.save(loaded, tmp_path / "whole")
    again, none_lost, damage = obscodec.load(tmp_path / "whole", salvage=True)
    assert (len(none_lost), damage) == (0, [])
    check_equal_rings(loaded, again)
    with Snapshot(tmp_path / "damaged") as snapshot:  # the next generation there is whole, too
        snapshot.write(loaded)
    check_equal_rings(loaded, obscodec.load(tmp_path / "damaged"))


@pytest.mark.parametrize("length", [32, 38, 70_000, 200_000])
def test_a_truncated_file_keeps_its_first_records(length, tmp_path):
    buffer = noisy_ring(200)
    obscodec.save(buffer, tmp_path)
    (file,) = blocks(tmp_path)
    file.write_bytes(file.read_bytes()[:length])
    loaded, lost, damage = obscodec.load(tmp_path, salvage=True)
    assert "is truncated" in damage[0]
    is_lost = mask_of(lost)
    np.testing.assert_array_equal(loaded[:]["obs"][~is_lost], buffer[:]["obs"][~is_lost])
    n_kept = length // 65_000 * 9
    assert n_kept <= (~is_lost).sum() / 4 <= n_kept + 20


def test_zeros_end_a_file_at_once(tmp_path):
    """A file system that has crashed leaves such; their records have neither bytes nor an end."""
    buffer = noisy_ring(200)
    obscodec.save(buffer, tmp_path)
    (file,) = blocks(tmp_path)
    content = bytearray(file.read_bytes())
    content[70_000:600_000] = bytes(530_000)
    file.write_bytes(content)
    loaded, lost, damage = obscodec.load(tmp_path, salvage=True)
    assert len(damage) < 6
    is_lost = mask_of(lost)
    assert 0 < (~is_lost).sum() < 60
    np.testing.assert_array_equal(loaded[:]["obs"][~is_lost], buffer[:]["obs"][~is_lost])


def test_a_missing_file(tmp_path):
    buffer = noisy_ring(200)
    with Snapshot(tmp_path, keep=1) as snapshot:
        snapshot.write(buffer)
        fill(buffer, 200, 300)
        snapshot.write(buffer)
    blocks(tmp_path)[0].unlink()
    with pytest.raises(SnapshotError, match="can't be opened: No such file"):
        obscodec.load(tmp_path)
    loaded, lost, damage = obscodec.load(tmp_path, salvage=True)
    assert "can't be opened: No such file" in damage[0]
    assert set(lost[:, 0]) <= set(range(200))
    np.testing.assert_array_equal(loaded[200:]["obs"], buffer[200:]["obs"])


def test_damaged_tables_lead_to_the_generation_before(tmp_path):
    buffer = ring(50)
    with Snapshot(tmp_path) as snapshot:
        snapshot.write(buffer)
        snapshot.wait()
        append(buffer, 50, 60)
        snapshot.write(buffer)
    flip(tmp_path / "arrays-00000002.safetensors", 5000)
    loaded, lost, damage = obscodec.load(tmp_path, salvage=True)
    assert len(lost) == 0
    assert "arrays-00000002.safetensors is damaged" in damage[0]
    check_equal_rings(ring(50), loaded)
    with pytest.raises(SnapshotError, match=r"arrays-00000002\.safetensors is damaged"):
        obscodec.load(tmp_path, salvage=True, generation=2)
    flip(tmp_path / "arrays-00000001.safetensors", 5000)
    with pytest.raises(SnapshotError, match=r"arrays-00000001\.safetensors is damaged"):
        obscodec.load(tmp_path, salvage=True)


@pytest.mark.parametrize("spec", SPECS)
def test_a_lost_tensor_is_never_something_else(spec, tmp_path):
    layout = Layout((600,), np.uint8)
    tensors = np.random.default_rng(0).integers(256, size=(400, 600), dtype=np.uint8)
    for block_frames in (1, 2):
        store, folder = FrameStore(layout, codec=spec, block_frames=block_frames), tmp_path / str(block_frames)
        array = TensorArray.zeros((400,), store)
        array[:] = tensors
        obscodec.save(array, folder)
        flip(blocks(folder)[0], 70_000)
        loaded, damage = load(folder, salvage=True, by=_array)[::2]
        assert damage
        intact = 0
        for tensor, expected in zip(tensors, range(400), strict=True):
            try:
                np.testing.assert_array_equal(loaded.array[expected], tensor)
                intact += 1
            except CorruptStream:
                pass
        assert 200 < intact < 400
        lost = loaded.array.forget_damaged()
        assert lost.shape == (400 - intact, 1)
        kept = np.delete(np.arange(400), lost[:, 0])
        np.testing.assert_array_equal(loaded.array[kept], tensors[kept])
        assert not loaded.array[lost[:, 0]].any()
        loaded.array[:] = tensors[::-1]
        np.testing.assert_array_equal(loaded.array[:], tensors[::-1])


def test_a_lost_block_is_no_block_of_zeros(tmp_path):
    """Ten zeros behind a version 0 would be two frames here."""
    frames = np.random.default_rng(0).integers(1, 256, size=(14_000, 5), dtype=np.uint8)
    store = FrameStore(Layout((5,), np.uint8), codec="raw", block_frames=2)
    array = TensorArray(store.append(frames), store)
    obscodec.save(array, tmp_path)
    flip(blocks(tmp_path)[0], 100)
    loaded = load(tmp_path, salvage=True, by=_array).buffer.array
    lost = loaded.forget_damaged()
    assert 10_000 < len(lost) < 14_000
    kept = np.delete(np.arange(len(frames)), lost[:, 0])
    np.testing.assert_array_equal(loaded[kept], frames[kept])


class _Unforgetting:
    """An array whose damaged items stay."""

    def __init__(self, array):
        self.array, self.restore = array, array.restore


def _array(kind, arguments, path):
    return _Unforgetting(TensorArray.from_arguments(arguments))


def test_no_file_says_itself_what_is_lost(tmp_path):
    store = FrameStore(NOISY)
    store.append(noise(40))
    obscodec.save(store, tmp_path)
    (file,) = tmp_path.glob("generation-*.json")
    manifest = json.loads(file.read_text())
    heap = manifest["values"]["state"]["blocks"]
    heap["lost"] = heap["slots"]
    content = json.dumps(manifest).encode()
    file.unlink()
    (tmp_path / f"generation-00000001-{xxhash.xxh3_64_hexdigest(content)}.json").write_bytes(content)
    with pytest.raises(SnapshotError, match="a heap has lost streams already"):
        obscodec.load(tmp_path)


@pytest.mark.parametrize("salvage", [False, True])
@pytest.mark.parametrize("n_steps", [5, 70_000])
def test_without_its_tables_nothing_is_salvaged(salvage, n_steps, tmp_path):
    buffer = RingBuffer(100_000, {"step": Field((), np.int64)})
    buffer.extend(step=np.arange(n_steps))
    obscodec.save(buffer, tmp_path)
    file = max([*tmp_path.glob("arrays-*"), *tmp_path.glob("pages-*")], key=lambda file: file.stat().st_size)
    assert file.name.startswith("arrays" if n_steps == 5 else "pages")
    flip(file, file.stat().st_size - 1)
    with pytest.raises(SnapshotError, match=f"{file.name}.*; nothing of this generation can be salvaged without it$"):
        obscodec.load(tmp_path, salvage=salvage)
