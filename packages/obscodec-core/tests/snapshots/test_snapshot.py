"""What is loaded equals what was saved, and goes on as that would have gone on."""

import json

import numpy as np
import obscodec
import pytest
import safetensors.numpy
import xxhash
from obscodec import CorruptStream, DTypeError, SnapshotError
from obscodec.snapshots import OpenGeneration
from obscodec.snapshots.folder import Folder
from obscodec.snapshots.folder_lock import FolderLock
from saved import (
    GOLDEN,
    append,
    array,
    check_equal_rings,
    continue_loop,
    loop,
    priorities,
    ring,
    stores,
    tensors,
)


def files(folder, end):
    return sorted(file for file in folder.iterdir() if file.name.endswith(end))


@pytest.mark.parametrize("n", [0, 5, 290])
@pytest.mark.parametrize("name", stores())
def test_a_loaded_store_has_the_tensors_under_their_ids(name, n, tmp_path):
    store = stores()[name]
    played = tensors(store.layout)
    ids = store.append(played[:n], np.arange(n) % 2)
    store.release(ids[: n // 3])
    ids, expected = ids[n // 3 :], played[n // 3 : n]
    obscodec.save(store, tmp_path)
    loaded = obscodec.load(tmp_path)
    assert type(loaded) is type(store)
    before, after = store.stats(), loaded.stats()
    assert (after.n_tensors, after.live_bytes, after.choice) == (before.n_tensors, before.live_bytes, before.choice)
    for one in (store, loaded):
        np.testing.assert_array_equal(one.read(ids), expected)
        more = tensors(store.layout, seed=1)
        added = one.append(more, np.arange(len(more)) % 3)
        np.testing.assert_array_equal(one.read(added), more)
        np.testing.assert_array_equal(one.read(ids), expected)
        one.release(ids)
        one.release(added)
        assert one.stats().n_tensors == 0


@pytest.mark.parametrize("n_steps", [0, 7, 90, 250])
def test_a_loaded_ring_goes_on_as_the_saved_one(n_steps, tmp_path):
    buffer = ring(n_steps)
    obscodec.save(buffer, tmp_path)
    loaded = obscodec.load(tmp_path)
    if n_steps:
        check_equal_rings(buffer, loaded)
    for one in (buffer, loaded):
        append(one, n_steps, n_steps + 130)
    check_equal_rings(buffer, loaded)
    assert loaded.stats().raw_bytes == buffer.stats().raw_bytes


def test_numbers_of_numpy_are_saved(tmp_path):
    buffer = obscodec.RingBuffer(9, {"x": obscodec.Field((), "timedelta64[ms]")}, threads=np.int64(2))
    buffer.append(x=np.timedelta64(7, "ms"))
    obscodec.save(buffer, tmp_path)
    check_equal_rings(buffer, obscodec.load(tmp_path))


def test_a_subclass_comes_back_as_a_plain_buffer(tmp_path):
    class Mine(obscodec.RingBuffer):
        pass

    buffer = Mine(9, {"x": obscodec.Field((), "int64")})
    buffer.append(x=7)
    obscodec.save(buffer, tmp_path)
    loaded = obscodec.load(tmp_path)
    assert type(loaded) is obscodec.RingBuffer
    check_equal_rings(buffer, loaded)


def test_nothing_is_decoded(tmp_path, monkeypatch):
    buffer = ring(90)

    def decode(*_):
        raise AssertionError

    for name in ("read", "read_range"):
        monkeypatch.setattr(f"obscodec.frames.patch_coder.PatchCoder.{name}", decode)
    obscodec.save(buffer, tmp_path)
    loaded = obscodec.load(tmp_path)
    monkeypatch.undo()
    check_equal_rings(buffer, loaded)


def test_a_snapshot_is_replaced_by_one_of_its_kind(tmp_path):
    obscodec.save(ring(20), tmp_path)
    before = {file.name for file in tmp_path.iterdir()}
    with pytest.raises(SnapshotError, match="has a snapshot of a RingBuffer, and a Prioritized would replace it"):
        obscodec.save(priorities(5), tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == before
    obscodec.save(ring(6), tmp_path)
    assert len(obscodec.load(tmp_path)) == 6
    assert not before & {file.name for file in tmp_path.iterdir()}


def test_a_folder_around_a_snapshot_names_it(tmp_path):
    obscodec.save(array(1), tmp_path / "buffer")
    with pytest.raises(SnapshotError, match=r"has no snapshot, .*buffer has one$"):
        obscodec.load(tmp_path)


def test_other_things_and_folders_are_refused(tmp_path):
    with pytest.raises(DTypeError, match="save takes a RingBuffer, a Prioritized, a TensorArray or a store, got list"):
        obscodec.save([], tmp_path)
    with pytest.raises(SnapshotError, match="is no folder with a snapshot: No such file"):
        obscodec.load(tmp_path / "nowhere")
    with pytest.raises(SnapshotError, match="has no snapshot"):
        obscodec.load(tmp_path)
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(SnapshotError, match=r"has other files, such as 'thesis\.tex'"):
        obscodec.save(array(1), tmp_path)
    with pytest.raises(SnapshotError, match="is a file: name a new or an empty folder"):
        obscodec.save(array(1), tmp_path / "thesis.tex")
    with pytest.raises(SnapshotError, match=r"tex is no folder with a snapshot: Not a directory, and not what "):
        obscodec.load(tmp_path / "thesis.tex")


@pytest.mark.parametrize("end", [".segment", ".safetensors", ".json"])
def test_each_flipped_byte_is_found(end, tmp_path):
    obscodec.save(array(40), tmp_path)
    for file in files(tmp_path, end):
        content = bytearray(file.read_bytes())
        for at in {*range(0, len(content), 1 + len(content) // 60), len(content) - 1}:
            content[at] ^= 0x40
            file.write_bytes(content)
            with pytest.raises(SnapshotError, match=file.name.split("-")[0]):
                obscodec.load(tmp_path)
            content[at] ^= 0x40
        for length in (0, 10, len(content) - 1):
            file.write_bytes(content[:length])
            with pytest.raises(SnapshotError, match=file.name.split("-")[0]):
                obscodec.load(tmp_path)
        file.unlink()
        with pytest.raises(
            SnapshotError, match="can't be opened: No such file" if end != ".json" else "has no snapshot"
        ):
            obscodec.load(tmp_path)
        file.write_bytes(content)
    obscodec.load(tmp_path)


def large(n=30_000):
    """A buffer whose array lies in pages."""
    buffer = obscodec.RingBuffer(n, {"x": obscodec.Field((), np.float64)})
    buffer._arrays["x"][:n, 0] = np.random.default_rng(0).random(n)
    buffer._clock.appended = n
    return buffer


@pytest.mark.parametrize("mmap", [False, True])
def test_each_damaged_page_is_found(mmap, tmp_path):
    buffer = large()
    obscodec.save(buffer, tmp_path)
    (file,) = files(tmp_path, ".segment")
    assert file.name == "pages-00000001-0000.segment"
    content = file.read_bytes()
    loaded = obscodec.load(tmp_path, mmap=mmap)
    np.testing.assert_array_equal(loaded[:]["x"], buffer[:]["x"])
    in_streams = [at for at in range(48, len(content), 5000) if (at - 32) % (16 + (1 << 16)) >= 16]
    for at in (0, 31, *in_streams, len(content) - 1):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(SnapshotError, match=r"pages-00000001-0000\.segment"):
            obscodec.load(tmp_path, mmap=mmap)
    for length in (0, 32, len(content) - 1):
        file.write_bytes(content[:length])
        with pytest.raises(SnapshotError, match=r"pages-00000001-0000\.segment"):
            obscodec.load(tmp_path, mmap=mmap)


def rewrite_arrays(folder, change):
    """Have other small arrays, with the right checksum."""
    (manifest,) = files(folder, ".json")
    about = json.loads(manifest.read_text())["arrays"]
    arrays = safetensors.numpy.load((folder / about["file"]).read_bytes())
    change(arrays)
    content = safetensors.numpy.save(arrays)
    (folder / about["file"]).write_bytes(content)
    rewrite(folder, arrays={**about, "nbytes": len(content), "xxh3": xxhash.xxh3_64_hexdigest(content)})


X = "state/arrays/arrays/0/items"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: a.update({f"{X}/offset": a[f"{X}/offset"] + (1 << 30)}), "pages of .* lie outside of the files"),
        (lambda a: a.update({f"{X}/offset": a[f"{X}/offset"] - 1}), "a page of .* at 47: its hash is wrong"),
        (lambda a: a[f"{X}/file"].fill(7), "lie outside of the files"),
        (lambda a: a[f"{X}/file"].fill(-1), "lie outside of the files"),
        (lambda a: a[f"{X}/length"].fill(-(1 << 60)), "lie outside of the files"),
        (lambda a: a.update({f"{X}/file": a[f"{X}/file"][:-1]}), "are no whole numbers, or not as many"),
        (lambda a: a.update({f"{X}/xxh3": a[f"{X}/xxh3"][:-1]}), "of a state is uint64"),
        (lambda a: a.pop(f"{X}/xxh3"), "of a state is a"),
    ],
)
def test_pages_that_nobody_writes_are_refused(change, message, tmp_path):
    obscodec.save(large(), tmp_path)
    rewrite_arrays(tmp_path, change)
    with pytest.raises(SnapshotError, match=message):
        obscodec.load(tmp_path)


def test_pages_take_no_more_memory_than_their_files(tmp_path):
    obscodec.save(large(), tmp_path)

    def repeat(arrays):
        for name in ("file", "offset", "length"):
            arrays[f"{X}/{name}"] = np.tile(arrays[f"{X}/{name}"][:1], 100_000)  # 6 GB
        arrays[f"{X}/xxh3"] = np.tile(arrays[f"{X}/xxh3"][:1], (100_000, 1))

    rewrite_arrays(tmp_path, repeat)
    with pytest.raises(SnapshotError, match=r"the pages in .* have more bytes than their files"):
        obscodec.load(tmp_path)


@pytest.mark.parametrize("about", [{"dtype": "O", "shape": [30_000, 1]}, {"dtype": "<f8", "shape": [7]}, {}, None])
def test_pages_of_no_array_are_refused(about, tmp_path):
    obscodec.save(large(), tmp_path)
    rewrite(tmp_path, pages={X: about})
    with pytest.raises(SnapshotError, match="has content that obscodec never writes"):
        obscodec.load(tmp_path)


def rewrite(folder, **changes):
    (file,) = files(folder, ".json")
    content = json.dumps({**json.loads(file.read_text()), **changes}).encode()
    file.unlink()
    (folder / f"generation-00000001-{xxhash.xxh3_64_hexdigest(content)}.json").write_bytes(content)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "has version 2 of the format, this obscodec reads up to 1: update obscodec"),
        ({"version": 0}, "is no manifest of a snapshot: its version is 0, the first one was 1"),
        ({"version": -5}, "is no manifest of a snapshot: its version is -5, the first one was 1"),
        ({"version": True}, "is no manifest of a snapshot: its version is True, the first one was 1"),
        ({"generation": 2}, "is no manifest of a snapshot: it is of generation 2, and somebody has renamed it"),
        ({"format": "tar"}, "is no manifest of a snapshot: its format is 'tar'"),
        ({"kind": "CompressedReplayBuffer"}, r"has a CompressedReplayBuffer: call CompressedReplayBuffer\.load"),
        ({"segments": [{"file": "../other", "nbytes": 3, "number": "1"}]}, "names '../other' as a file of segment"),
        ({"segments": []}, "lie outside of the files"),
        ({"values": None}, "has content that obscodec never writes"),
        ({"arrays": 3}, "has content that obscodec never writes"),
        (
            {"segments": 2 * [{"file": "blocks-00000001-0000.segment", "nbytes": 32, "number": "1"}]},
            "names a file twice",
        ),
        ({"more": float("nan")}, "NaN is no number of JSON"),
    ],
)
def test_what_no_version_writes_is_refused(changes, message, tmp_path):
    obscodec.save(array(40), tmp_path)
    rewrite(tmp_path, **changes)
    with pytest.raises(SnapshotError, match=message):
        obscodec.load(tmp_path)


def test_nothing_is_written_over_generations_of_a_newer_version(tmp_path):
    obscodec.save(array(40), tmp_path)
    rewrite(tmp_path, version=2)
    names = sorted(tmp_path.iterdir())
    with pytest.raises(SnapshotError, match="has version 2 of the format"):
        obscodec.save(array(40), tmp_path)
    with pytest.raises(SnapshotError, match="has version 2 of the format"):
        obscodec.Snapshot(tmp_path).write(array(40))
    assert sorted(tmp_path.iterdir()) == names


def test_a_damaged_manifest_is_not_named_as_the_one_to_load(tmp_path):
    with obscodec.Snapshot(tmp_path) as snapshot:
        for _ in range(3):
            snapshot.write(array(40))
    *others, last = files(tmp_path, ".json")
    last.write_text("{}")
    with pytest.raises(SnapshotError, match=r"is damaged: load another generation, \[1, 2\]"):
        obscodec.load(tmp_path)
    for other in others:
        other.unlink()
    with pytest.raises(SnapshotError, match=r"is damaged: load another generation, \(there is none\)"):
        obscodec.load(tmp_path)


def test_a_buffer_without_a_limit_takes_no_folder_to_spill(tmp_path):
    buffer = obscodec.RingBuffer(10, {"x": obscodec.Field((), np.int64)})
    obscodec.save(buffer, tmp_path)
    with pytest.raises(obscodec.SpecError, match=r"without max_bytes: pass max_bytes, too, or leave spill out$"):
        obscodec.load(tmp_path, spill=tmp_path)


def test_no_link_is_followed(tmp_path):
    obscodec.save(array(40), tmp_path / "there")
    (file,) = files(tmp_path / "there", ".segment")
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SnapshotError, match="can't be opened"):
        obscodec.load(tmp_path / "there")
    file.unlink()
    file.mkdir()
    with pytest.raises(SnapshotError, match=r"\.segment is no file"):
        obscodec.load(tmp_path / "there")


def test_two_do_not_write_to_one_folder(tmp_path):
    folder = Folder(tmp_path)
    with FolderLock(folder.path), pytest.raises(SnapshotError, match="is being written by somebody else"):
        obscodec.save(array(1), tmp_path)
    obscodec.save(array(1), tmp_path)


@pytest.mark.parametrize("name", ["stacks", "auto-floats"])
def test_the_stores_of_the_first_release_load_for_ever(name):
    store, ids = stores()[name.replace("-", " ")], np.load(GOLDEN / f"{name}-ids.npy")
    np.testing.assert_array_equal(obscodec.load(GOLDEN / name).read(ids), tensors(store.layout)[50:])


@pytest.mark.parametrize(("name", "go_on"), [("ring", append), ("loop", continue_loop)])
def test_the_rings_of_the_first_release_load_for_ever(name, go_on):
    loaded = obscodec.load(GOLDEN / name, continue_episodes=True)
    expected = ring(130, capacity=60) if name == "ring" else loop(130)
    assert (loaded.mask, loaded.pad) == (expected.mask, expected.pad)
    check_equal_rings(expected, loaded)
    for buffer in (expected, loaded):
        go_on(buffer, 130, 160)
    check_equal_rings(expected, loaded)


def test_the_priorities_of_the_first_release_load_for_ever():
    loaded, expected = obscodec.load(GOLDEN / "priorities"), priorities(130)
    assert loaded.indices == expected.indices == range(140, 260)
    numbers = np.arange(140, 260)
    np.testing.assert_array_equal(loaded.weights(numbers), expected.weights(numbers))
    np.testing.assert_array_equal(loaded.sample(50, 0), expected.sample(50, 0))


def test_a_state_is_checked():
    store = stores()["stacks"]
    store.release(store.append(tensors(store.layout))[:150])  # some blocks go
    for change in (
        lambda state: state.update(references=state["references"][:-1]),
        lambda state: state["previous"].fill(1 << 30),
        lambda state: state["open"]["sequences"].fill(1 << 40),
        lambda state: state["blocks"].update(slots=state["blocks"]["slots"] * 0),
        lambda state: state["stacks"].update(frames=state["stacks"]["frames"][:, :2]),
        lambda state: state.pop("open"),
        lambda state: state["blocks"]["streams"].offsets.fill(0),
        lambda state: state["free"].fill(3),
    ):
        state = store.state()
        change(state)
        with pytest.raises(CorruptStream):
            stores()["stacks"].restore(state)


def test_the_arguments_are_read_without_the_rest(tmp_path):
    buffer = obscodec.RingBuffer(50_000, {"f": obscodec.Field((64, 64), np.uint8, "raw")}, n_envs=2)
    for step in np.random.default_rng(0).integers(256, size=(40, 2, 64, 64), dtype=np.uint8):
        buffer.append(f=step)
    obscodec.save(buffer, tmp_path)
    for file in files(tmp_path, ".segment"):
        file.unlink()  # with all blocks
    opened = OpenGeneration(tmp_path)
    assert (opened.kind, opened.arguments()) == ("RingBuffer", buffer.arguments())
    with pytest.raises(SnapshotError, match=r"can't be opened: No such file"):
        obscodec.load(tmp_path)
    with pytest.raises(SnapshotError, match="has no generation 3, only generations"):
        OpenGeneration(tmp_path, 3)
