"""Each layout comes back as it was written, episode by episode; the doctor reads the same; others are refused."""

import io
import json
import os
import pickle
import re
import shlex
import sys
import time
import tracemalloc
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import obscodec
import psutil
import pytest
from new_python import run_python
from obscodec import FieldError, MissingPackage, SourceError
from obscodec.cli.doctor.sources import Request, read
from obscodec.recordings.layouts import episodes_of

LENGTHS = [30, 41, 1, 25, 30, 28, 33, 12, 40, 26, 35]  # of so many episodes that their numbers have one digit or two
RNG = np.random.default_rng(0)


def recorded(**more_items):
    """Episodes of some arrays; ``more_items`` says by how many items one is longer than the others."""
    rng = np.random.default_rng(1)
    return [
        {
            "image": rng.integers(256, size=(n + more_items.get("image", 0), 12, 9, 3), dtype=np.uint8),
            "action": rng.normal(size=(n, 7)).astype(np.float32),
            "reward": rng.normal(size=n),
            "done": np.arange(n) == n - 1,
        }
        for n in LENGTHS
    ]


def write_hdf5(path, arrays):
    path.parent.mkdir(exist_ok=True)
    with pytest.importorskip("h5py").File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def write_zarr(store, arrays, zarr_format=3):
    group = pytest.importorskip("zarr").open_group(store, mode="w", zarr_format=zarr_format)
    for name, array in arrays.items():
        group.create_array(name, data=array, chunks=(min(16, len(array)) or 1, *array.shape[1:]))


def dreamer(folder, episodes):
    """Dreamer: time-id-length.npz, where ``is_first`` is true in the first step alone."""
    folder.mkdir()
    names = dict.fromkeys(("image", "action", "reward", "is_first", "is_last", "is_terminal"))
    for k, of in enumerate(episodes):
        n = len(of["reward"])
        first = {"is_first": np.arange(n) == 0, "is_last": of["done"], "is_terminal": np.zeros(n, bool)}
        steps = {name: {**of, **first}[name] for name in names}
        np.savez_compressed(folder / f"20230101T000000-{k:x}-{n}.npz", **steps)
    return folder, {name: "done" if name == "is_last" else name for name in names}


def act(folder, episodes):
    """ACT and ALOHA: episode_0.hdf5, episode_1.hdf5, ..., with a text and a value beside the arrays of steps."""
    named = {"observations/images/top": "image", "action": "action", "observations/qpos": "reward"}
    for k, of in enumerate(episodes):
        arrays = {name: of[key] for name, key in named.items()}
        write_hdf5(folder / f"episode_{k}.hdf5", {**arrays, "language_raw": "pick", "version": 3})
    (folder / "dataset_stats.pkl").write_bytes(b"")
    (folder / "._episode_0.hdf5").write_bytes(b"what macOS writes beside it")
    return folder, named


def robomimic(path, episodes, beside=True):
    """One file: ``data/demo_0``, and names of demonstrations as texts beside them."""
    keys = {"obs/agentview_image": "image", "actions": "action", "rewards": "reward", "dones": "done"}
    arrays = {f"data/demo_{k}/{name}": of[key] for k, of in enumerate(episodes) for name, key in keys.items()}
    write_hdf5(path, {**arrays, "mask/train": [b"demo_0", b"demo_1"]} if beside else arrays)
    return path, {f"data/demo_*/{name}": key for name, key in keys.items()}


def libero(folder, episodes):
    """A folder of such files."""
    _, named = robomimic(folder / "a_task_demo.hdf5", episodes[:4])
    robomimic(folder / "b_task_demo.hdf5", episodes[4:])
    return folder, named


def minari(folder, episodes):
    """Minari: ``data/main_data.hdf5``, with observations of one step more, and an empty group of infos."""
    folder.mkdir()
    keys = {"observations": "image", "actions": "action", "rewards": "reward", "terminations": "done"}
    arrays = {f"episode_{k}/{name}": of[key] for k, of in enumerate(episodes) for name, key in keys.items()}
    write_hdf5(folder / "data/main_data.hdf5", arrays)
    (folder / "data/metadata.json").write_text("{}")
    return folder, {f"episode_*/{name}": key for name, key in keys.items()}


def replay_buffer(episodes):
    """A ReplayBuffer of diffusion_policy: ``data/*`` and ``meta/episode_ends``."""
    keys = {"data/img": "image", "data/action": "action", "data/state": "reward"}
    arrays = {name: np.concatenate([of[key] for of in episodes]) for name, key in keys.items()}
    return {**arrays, "meta/episode_ends": np.cumsum(LENGTHS)}, keys


def zarr_folder(path, episodes, zarr_format=2):
    arrays, named = replay_buffer(episodes)
    write_zarr(str(path), arrays, zarr_format)
    return path, named


def zarr_3_folder(path, episodes):
    return zarr_folder(path, episodes, 3)


def zarr_zip(path, episodes):
    arrays, named = replay_buffer(episodes)
    path = path.with_name("replay.zarr.zip")
    with pytest.importorskip("zarr").storage.ZipStore(path, mode="w") as store:
        write_zarr(store, arrays, 2)
    return path, named


def groups_of_zarr(path, episodes):
    arrays = {f"{k}/{key}": of[key] for k, of in enumerate(episodes) for key in of}
    write_zarr(str(path), arrays)
    return path, {f"*/{key}": key for key in episodes[0]}


def groups_of_npz(path, episodes):
    path = path.with_name("runs.npz")
    np.savez(path, **{f"run{k}/{key}": of[key] for k, of in enumerate(episodes) for key in of})
    return path, {f"run*/{key}": key for key in episodes[0]}


WRITERS = [
    dreamer, act, robomimic, libero, minari, zarr_folder, zarr_3_folder, zarr_zip, groups_of_zarr, groups_of_npz,
]  # fmt: skip


def written(write, tmp_path):
    episodes = recorded(image=1) if write is minari else recorded()
    suffix = ".hdf5" if write is robomimic else ""
    path, named = write(tmp_path / f"run{suffix}", episodes)
    return path, [{name: of[key] for name, key in named.items() if key in of} for of in episodes]


def check(found, expected):
    """Compare episodes with what was written, of which they may have more arrays."""
    found = list(found)
    assert [len(of) for of in found] == [len(found[0])] * len(expected)
    for one, other in zip(found, expected, strict=True):
        for name, array in other.items():
            assert (one[name].dtype, one[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(one[name], array)


@pytest.mark.parametrize("write", WRITERS)
def test_what_is_written_is_read_episode_by_episode(write, tmp_path):
    path, expected = written(write, tmp_path)
    check(obscodec.episodes(path), expected)
    check(obscodec.episodes(str(path)), expected)
    wanted = list(expected[0])[1:2]
    (one, *_) = obscodec.episodes(path, wanted)
    assert list(one) == wanted


@pytest.mark.parametrize("write", WRITERS)
def test_the_doctor_has_the_same_arrays_by_the_same_names(write, tmp_path):
    path, expected = written(write, tmp_path)
    found = read(Request(str(path), 10_000, (), 1, 0, lambda n: None))
    for name in expected[0]:
        np.testing.assert_array_equal(found.items[name], np.concatenate([of[name] for of in expected]))
    assert found.has_episodes
    assert {*found.items} == {*next(obscodec.episodes(path))}
    few = read(Request(str(path), 64, (), 1, 0, lambda n: None))
    name = next(iter(expected[0]))
    np.testing.assert_array_equal(few.items[name], found.items[name][:64])
    kind = {
        dreamer: "11 files *.npz, 20230101T000000-0-30.npz to 20230101T000000-a-35.npz",
        act: "11 files *.hdf5, episode_0.hdf5 to episode_10.hdf5",
        robomimic: "11 groups run.hdf5/data/demo_*, run.hdf5/data/demo_0 to run.hdf5/data/demo_10",
        libero: "4 groups a_task_demo.hdf5/data/demo_*, a_task_demo.hdf5/data/demo_0 to a_task_demo.hdf5/data/demo_3",
        minari: "11 groups main_data.hdf5/episode_*, main_data.hdf5/episode_0 to main_data.hdf5/episode_10",
        zarr_zip: "11 slices by meta/episode_ends, replay.zarr.zip[0:30] to replay.zarr.zip[266:301]",
    }.get(write)
    if kind:
        n = kind.partition(" ")[0]
        assert f"{n} of {kind}, are taken for episodes, one after the other." in found.presumed


def chunks_of_dreamer(folder, rng):
    """Chunks as DreamerV3 writes them, of several environments; and their episodes."""
    folder.mkdir()
    expected, clock = [], iter(range(10_000))
    for worker in range(3):
        lengths = rng.integers(1, 40, size=rng.integers(1, 8))
        n = int(lengths.sum())
        firsts = np.cumsum(lengths) - lengths
        steps = {
            "image": rng.integers(256, size=(n, 6, 6), dtype=np.uint8),
            "stepid": rng.integers(256, size=(n, 20), dtype=np.uint8),
            "is_first": np.isin(np.arange(n), firsts),
        }
        expected += [{key: of[a : a + m] for key, of in steps.items()} for a, m in zip(firsts, lengths, strict=True)]
        bounds = [0, *np.flatnonzero(rng.random(n - 1) < 0.08) + 1, n] if n > 1 else [0, n]
        for k, (begin, end) in enumerate(pairwise(bounds)):
            name = f"2024{next(clock):04}F1-w{worker}c{k}-w{worker}c{k + 1}-{end - begin}.npz"
            np.savez_compressed(folder / name, **{key: of[begin:end] for key, of in steps.items()})
    files = sorted(folder.iterdir())
    stamps = rng.permutation(len(files))  # as if all environments had written at once
    for file, stamp in zip(files, sorted(stamps), strict=True):
        file.rename(file.with_name(f"{2024_0000 + stamp}F1{file.name[10:]}"))
    return expected


@pytest.mark.parametrize("seed", range(20))
def test_chunks_of_dreamer_v3_are_cut_and_joined_where_is_first_says(seed, tmp_path):
    expected = chunks_of_dreamer(tmp_path / "replay", np.random.default_rng(seed))
    found = list(obscodec.episodes(tmp_path / "replay"))
    assert len(found) == len(expected)
    key = lambda of: of["stepid"].tobytes()  # noqa: E731
    check(sorted(found, key=key), sorted(expected, key=key))
    without = list(obscodec.episodes(tmp_path / "replay", ["image"]))
    check(without, [{"image": of["image"]} for of in found])
    assert list(without[0]) == ["image"]


def test_a_chunk_whose_successor_is_lost_ends_its_episode(tmp_path):
    steps = np.arange(12)
    first = steps == 0
    for name, of in {"1-a-b-4": slice(0, 4), "2-b-c-4": slice(4, 8), "4-d-e-4": slice(8, 12)}.items():
        np.savez(tmp_path / f"{name}.npz", step=steps[of], is_first=first[of])
    found = [of["step"].tolist() for of in obscodec.episodes(tmp_path)]
    assert found == [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11]]
    for name in ("2-b-c-4", "4-d-e-4"):
        (tmp_path / f"{name}.npz").unlink()
    np.savez(tmp_path / "2-b-a-4.npz", step=steps[4:8], is_first=first[4:8])  # each follows the other
    assert [of["step"].tolist() for of in obscodec.episodes(tmp_path)] == [[0, 1, 2, 3, 4, 5, 6, 7]]


def test_the_chunk_that_follows_no_other_is_the_first_whatever_its_time(tmp_path):
    steps = np.arange(8)
    np.savez(tmp_path / "1-b-c-4.npz", step=steps[4:], is_first=np.zeros(4, bool))
    np.savez(tmp_path / "2-a-b-4.npz", step=steps[:4], is_first=steps[:4] == 0)
    assert [of["step"].tolist() for of in obscodec.episodes(tmp_path)] == [steps.tolist()]


def test_files_with_such_names_are_episodes_if_nothing_says_where_one_begins(tmp_path):
    for name in ("1-a-b-4", "2-b-c-4"):
        np.savez(tmp_path / f"{name}.npz", step=np.arange(4))
    assert [len(of["step"]) for of in obscodec.episodes(tmp_path)] == [4, 4]


def test_chunks_of_different_arrays_are_not_joined(tmp_path):
    np.savez(tmp_path / "1-a-b-4.npz", step=np.arange(4, dtype=np.int32), is_first=np.arange(4) == 0)
    np.savez(tmp_path / "2-b-c-4.npz", step=np.arange(4.0), is_first=np.zeros(4, bool))
    with pytest.raises(SourceError, match=r"^chunks of an episode differ in names, dtypes or shapes of arrays: Cannot"):
        list(obscodec.episodes(tmp_path))
    np.savez(tmp_path / "2-b-c-4.npz", step=np.arange(4, dtype=np.int32), is_first=np.zeros(4, bool), more=np.zeros(4))
    with pytest.raises(
        SourceError, match=r"^chunks of an episode differ in names, dtypes or shapes of arrays: 'more'$"
    ):
        list(obscodec.episodes(tmp_path))


def test_a_step_begins_an_episode_or_does_not(tmp_path):
    is_first = np.array([[1, 1], [0, 1], [1, 0], [0, 0]], bool)
    np.savez(tmp_path / "run.npz", is_first=is_first, step=np.arange(4))
    with pytest.raises(SourceError, match=r"^is_first of run\.npz has shape \(4, 2\): a value for each step"):
        list(obscodec.episodes(tmp_path / "run.npz"))
    np.savez(tmp_path / "run.npz", is_first=is_first[:, :1], step=np.arange(4))
    assert [of["step"].tolist() for of in obscodec.episodes(tmp_path / "run.npz")] == [[0, 1], [2, 3]]


@pytest.mark.parametrize("names", ["is_first", iter(["is_first"])])
def test_names_may_be_one_or_be_told_once(names, tmp_path):
    np.savez(tmp_path / "run.npz", is_first=np.arange(4) % 2 == 0, step=np.arange(4))
    assert [of["is_first"].tolist() for of in obscodec.episodes(tmp_path / "run.npz", names)] == [[True, False]] * 2


def test_what_is_neither_file_nor_folder_is_refused(tmp_path):
    os.mkfifo(path := tmp_path / "run.npz")
    with pytest.raises(SourceError, match="is none of the files that can be read"):
        obscodec.episodes(path)


def test_objects_in_fields_of_items_are_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file.create_dataset("step", 3, np.dtype([("text", h5py.string_dtype()), ("number", "i4")]))
    with pytest.raises(SourceError, match="its items are Python objects or differ in length"):
        list(obscodec.episodes(tmp_path / "run.h5"))


def test_a_long_number_in_a_name_is_looked_at_once():
    name = "1" * 60_000  # each digit as the first one of a number would take minutes
    began = time.process_time()
    assert episodes_of([name]) == ([name], {})
    assert time.process_time() - began < 5


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".h5", ".zarr"])
def test_one_file_without_groups_is_one_episode(suffix, tmp_path):
    (of, *_) = recorded()
    path = tmp_path / f"run{suffix}"
    if suffix == ".npz":
        np.savez(path, **of)
    elif suffix == ".npy":
        of = {"run": of["image"]}
        np.save(path, of["run"])
    elif suffix == ".h5":
        write_hdf5(path, of)
    else:
        write_zarr(str(path), of)
    check(obscodec.episodes(path), [of])


def test_a_zarr_array_is_one_episode(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(str(tmp_path / "run"), data=np.arange(9.0))
    check(obscodec.episodes(tmp_path / "run"), [{"array": np.arange(9.0)}])


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        # the outermost groups are the episodes, what has numbers inside stays apart
        (
            ["e0/camera_1/rgb", "e0/camera_2/rgb", "e1/camera_1/rgb", "e1/camera_2/rgb"],
            {("e", "0", "e*/camera_1/rgb"), ("e", "0", "e*/camera_2/rgb"),
             ("e", "1", "e*/camera_1/rgb"), ("e", "1", "e*/camera_2/rgb")},
        ),
        # one group is an episode if its name says so
        (["demo_0/obs"], {("demo_", "0", "demo_*/obs")}),
        (["data/traj_7/obs"], {("data/traj_", "7", "data/traj_*/obs")}),
        (["robot_0/obs"], {("robot_0/obs",)}),
        # numbers of arrays count nothing, nor do numbers behind different words
        (["obs_0", "obs_1", "rgb64/x", "depth64/x"], {("obs_0",), ("obs_1",), ("rgb64/x",), ("depth64/x",)}),
        # what lies beside them
        (["e0/x", "e1/x", "e1/y", "mean"], {("mean",), ("e", "0", "e*/x"), ("e", "1", "e*/x"), ("e", "1", "e*/y")}),
    ],
)  # fmt: skip
def test_which_arrays_are_of_an_episode(names, expected):
    beside, episodes = episodes_of(names)
    found = {(group, number, of) for group, n in episodes.items() for number, fields in n.items() for of in fields}
    assert found | {(name,) for name in beside} == expected


def test_groups_come_in_the_order_of_their_numbers(tmp_path):
    order = ["9", "09", "10", "1" * 5000]  # the last one is no int for Python
    np.savez(tmp_path / "run.npz", **{f"e{of}/x": np.full(2, k) for k, of in reversed([*enumerate(order)])})
    assert [of["e*/x"][0] for of in obscodec.episodes(tmp_path / "run.npz")] == [1, 0, 2, 3]


def test_in_a_folder_of_episodes_other_groups_with_numbers_are_parts_of_each(tmp_path):
    for k in range(2):
        arrays = {"robot_0/qpos": np.full(5, k), "robot_1/qpos": np.full(5, k), "action": np.full(5, k)}
        write_hdf5(tmp_path / f"run/{k}.h5", arrays)
    found = list(obscodec.episodes(tmp_path / "run"))
    assert [{name: int(of[0]) for name, of in episode.items()} for episode in found] == [
        {"action": k, "robot_0/qpos": k, "robot_1/qpos": k} for k in range(2)
    ]


def jpegs(images):
    image = pytest.importorskip("PIL.Image")
    streams = []
    for of in images:
        out = io.BytesIO()
        image.fromarray(of).save(out, format="JPEG")
        streams.append(np.frombuffer(out.getvalue(), np.uint8))
    return streams, np.stack([np.asarray(image.open(io.BytesIO(of))) for of in streams])


def test_jpeg_images_of_minari_are_decoded_and_others_are_not(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    images = RNG.integers(256, size=(5, 40, 32, 3), dtype=np.uint8)
    streams, expected = jpegs(images)
    (tmp_path / "data").mkdir()
    path = tmp_path / "data/main_data.hdf5"
    with h5py.File(path, "w") as file:
        of_each = file.create_dataset("episode_0/observations", (5,), h5py.vlen_dtype(np.uint8))
        of_each[:] = streams
        file["episode_0/same"] = np.stack([streams[0]] * 5)  # which is how Minari stores streams of one length
        file["episode_0/bytes"] = np.full((5, 40), 255, np.uint8)
    names = ["episode_*/observations", "episode_*/same", "episode_*/bytes"]
    expected = [dict(zip(names, (expected, np.stack([expected[0]] * 5), np.full((5, 40), 255, np.uint8)), strict=True))]
    check(obscodec.episodes(tmp_path), expected)
    check(obscodec.episodes(tmp_path / "data"), expected)
    other = path.rename(tmp_path / "data/episode_0.hdf5")  # ALOHA, where cv2 may have exchanged red and blue
    check(obscodec.episodes(other, names[1:2]), [{names[1]: np.stack([streams[0]] * 5)}])
    with pytest.raises(SourceError, match="episode_0/observations: its items are Python objects or differ in length"):
        list(obscodec.episodes(other))
    other.rename(path)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingPackage, match=r"^this source needs PIL: pip install pillow$"):
        list(obscodec.episodes(tmp_path))


@pytest.mark.slow
def test_a_data_set_of_minari_has_what_minari_reads(tmp_path):
    pytest.importorskip("minari")
    np.save(tmp_path / "frames.npy", RNG.integers(256, size=(30, 40, 48), dtype=np.uint8))
    recorder = Path(__file__).parents[1] / "cli/record_minari.py"
    run_python(recorder, tmp_path / "frames.npy", MINARI_DATASETS_PATH=str(tmp_path))
    (episode,) = obscodec.episodes(tmp_path / "moving/test-v0")
    np.testing.assert_array_equal(episode["episode_*/observations"], np.load(tmp_path / "read.npy"))
    assert {name: len(of) for name, of in episode.items()} == {
        "episode_*/actions": 29, "episode_*/observations": 30, "episode_*/rewards": 29,
        "episode_*/terminations": 29, "episode_*/truncations": 29,
    }  # fmt: skip


def test_pickled_arrays_are_refused_and_others_can_be_named(tmp_path):
    path = tmp_path / "run.npz"
    np.savez(path, infos=np.array([{}] * 4), obs=np.arange(4))
    with pytest.raises(SourceError) as refused:
        list(obscodec.episodes(path))
    assert str(refused.value) == (
        f"{path}, infos: its items are Python objects, which only pickle loads, and a pickle may run any program: save "
        "numbers; names=[...] reads some arrays only"
    )
    check(obscodec.episodes(path, ["obs"]), [{"obs": np.arange(4)}])
    with pytest.raises(FieldError, match=r"^run\.npz has no image, it has infos, obs$"):
        list(obscodec.episodes(path, ["obs", "image"]))


class Printing:
    """What prints if it is unpickled."""

    def __reduce__(self):
        return print, ("unpickled",)


@pytest.mark.parametrize("name", ["data/x", "array"])
def test_zarr_that_pickles_is_refused(name, tmp_path, capsys, monkeypatch):
    pytest.importorskip("zarr")
    pickles = pytest.importorskip("numcodecs.pickles")
    monkeypatch.setattr(pickles.Pickle, "decode", lambda self, buf, out=None: pickle.loads(buf))  # as older versions do
    array = {"shape": [8], "chunks": [8], "dtype": "|O", "fill_value": "", "order": "C", "zarr_format": 2}
    coded = {"filters": [{"id": "vlen-utf8"}], "compressor": {"id": "pickle", "protocol": 5}}
    folder = tmp_path if name == "array" else tmp_path / name
    folder.mkdir(parents=True, exist_ok=True)
    for group in {tmp_path, folder.parent} if folder != tmp_path else ():
        (group / ".zgroup").write_text('{"zarr_format": 2}')
    (folder / ".zarray").write_text(json.dumps(array | coded))
    (folder / "0").write_bytes(pickle.dumps(Printing()))
    with pytest.raises(SourceError, match=f"{name} is stored with pickle, which may run any program: save numbers$"):
        list(obscodec.episodes(tmp_path))
    with pytest.raises(SourceError, match=f"{name} is stored with pickle"):
        read(Request(str(tmp_path), 100, (), 1, 0, lambda n: None))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("write", [robomimic, zarr_zip, groups_of_npz])
def test_a_file_is_closed_when_the_episodes_are(write, tmp_path):
    path, _ = written(write, tmp_path)
    episodes = obscodec.episodes(path)
    next(episodes)
    process = psutil.Process()
    assert str(path) in {file.path for file in process.open_files()}
    episodes.close()
    assert str(path) not in {file.path for file in process.open_files()}


def test_arrays_of_different_lengths_are_named(tmp_path):
    path = tmp_path / "episode_0.hdf5"  # as of ACT with compressed images
    write_hdf5(path, {"action": np.zeros((400, 14)), "compress_len": np.zeros((3, 400)), "qpos": np.zeros((401, 2))})
    with pytest.raises(SourceError) as refused:
        list(obscodec.episodes(path))
    assert str(refused.value) == (
        "arrays of episode_0.hdf5 differ in length: action 400, compress_len 3, qpos 401; names=[...] reads some "
        "arrays only"
    )
    assert [len(of) for of in next(obscodec.episodes(path, ["action", "qpos"])).values()] == [400, 401]
    np.savez(tmp_path / "run.npz", is_first=np.arange(4) == 0, obs=np.zeros(5))  # steps that can't be told apart
    with pytest.raises(SourceError, match=r"^arrays of run\.npz differ in length: is_first 4, obs 5; "):
        list(obscodec.episodes(tmp_path / "run.npz"))


LOOKED_FOR = (
    " has no zarr (zarr.json, .zgroup, .zarray), no data set of Minari (data/main_data.hdf5) and no episodes (*.npz, "
    "*.hdf5, *.h5, *.hdf): it "
)


def test_a_folder_without_episodes_says_what_was_looked_for_and_is_there(tmp_path):
    def refused(path):
        with pytest.raises(SourceError) as error:
            obscodec.episodes(path)  # at once
        return str(error.value)

    folder = tmp_path / "my data"
    assert refused(folder) == f"{folder} does not exist"
    folder.mkdir()
    assert refused(folder) == f"{folder}{LOOKED_FOR}is empty"
    for name in ("a.txt", "b.txt", "c.png", "d.png"):
        (folder / name).touch()
    listed = f"{folder}{LOOKED_FOR}has 4 files and folders (a.txt, b.txt, c.png, ...)"
    assert refused(folder) == listed
    (folder / "runs").mkdir()
    named = f"{listed.replace('4 files', '5 files')}. Name one of them, such as "
    assert refused(folder) == named + shlex.quote(f"{folder}/runs")
    (folder / "run.zarr.zip").touch()
    assert refused(folder).endswith(f"such as {shlex.quote(f'{folder}/run.zarr.zip')}")
    assert refused(folder / "a.txt") == (
        f"{folder}/a.txt is none of the files that can be read, *.npy, *.npz, *.hdf5, *.h5, *.hdf, *.zarr, *.zarr.zip"
    )


ENDS = "PATH can't be read: ValueError: meta/episode_ends must ascend to the length of the arrays, "


def damaged(kind, folder):
    path = folder / "run.npz"
    frames = np.zeros((100, 32, 32), np.uint8)
    if kind in ("nothing", "text", "header"):
        path = folder / ("run.zarr.zip" if kind == "header" else "run.npz")
        path.write_bytes({"nothing": b"", "text": b"no archive", "header": b"PK\3\4 no archive"}[kind])
    elif kind == "empty":
        np.savez(path)
    elif kind == "values":
        np.savez(path, seed=3)
    elif kind == "checksum":
        np.savez(path, frames=frames)
        content = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            content[archive.getinfo("frames.npy").header_offset + 200] ^= 1
        path.write_bytes(content)
    elif kind in ("hdf5", "empty hdf5"):
        path = folder / "run.hdf5"
        write_hdf5(path, {})
        if kind == "hdf5":
            path.write_bytes(path.read_bytes()[:40])
    elif kind == "empty zarr":
        write_zarr(str(path := folder / "run.zarr"), {})
    elif kind == "zarr":
        path = folder / "run.zarr"
        path.mkdir()
        (path / "zarr.json").write_text("{")
    elif kind == "empty zip":
        with zipfile.ZipFile(path := folder / "run.zarr.zip", "w"):
            pass
    elif kind.startswith("["):  # ends of episodes
        ends, _, n = kind.partition(" of ")
        arrays = {"data/x": np.zeros(9), "data/y": np.zeros(int(n or 8)), "meta/episode_ends": np.array(eval(ends))}
        write_zarr(str(path := folder / "run.zarr"), arrays)
    return path


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("nothing", "PATH is damaged, or was never an archive of arrays, as numpy.savez and zarr write them"),
        ("text", "PATH is damaged, or was never an archive of arrays"),
        ("header", "PATH is damaged, or was never an archive of arrays"),
        ("empty", "PATH has no arrays"),
        ("values", "NAME has no array with time along axis 0"),
        ("checksum", "PATH, frames: its bytes are damaged: restore the file; names"),
        ("hdf5", "PATH can't be read: OSError: "),
        ("empty hdf5", "PATH has no arrays"),
        ("zarr", "PATH can't be read: "),
        ("empty zarr", "PATH has no arrays"),
        ("empty zip", "PATH can't be read: "),
        ("[[4, 9]]", "PATH can't be read: TypeError: "),
        ("[4, 9]", f"{ENDS}{{'data/x': 9, 'data/y': 8}}, got int64 [4 9]"),
        ("[4, 10]", f"{ENDS}{{'data/x': 9, 'data/y': 8}}, got int64 [ 4 10]"),
        ("[4, 10] of 9", f"{ENDS}{{'data/x': 9, 'data/y': 9}}, got int64 [ 4 10]"),
        ("[4.0, 9.0] of 9", f"{ENDS}{{'data/x': 9, 'data/y': 9}}, got float64 [4. 9.]"),
        ("[4, 3, 9] of 9", f"{ENDS}{{'data/x': 9, 'data/y': 9}}, got int64 [4 3 9]"),
        ("[-1, 9] of 9", f"{ENDS}{{'data/x': 9, 'data/y': 9}}, got int64 [-1 9]"),
    ],
)
def test_what_is_damaged_or_empty_is_refused_by_name(kind, text, tmp_path):
    path = damaged(kind, tmp_path)
    with pytest.raises(SourceError) as refused:
        list(obscodec.episodes(path))
    assert str(refused.value).startswith(text.replace("PATH", str(path)).replace("NAME", path.name))


def test_a_damaged_file_in_a_folder_is_named_after_the_episodes_before_it(tmp_path):
    folder, named = dreamer(tmp_path / "run", recorded())
    (folder / "20230101T000000-2-1.npz").write_bytes(b"")
    episodes = obscodec.episodes(folder, list(named)[:1])
    assert [len(next(episodes)["image"]) for _ in range(2)] == LENGTHS[:2]
    with pytest.raises(SourceError, match=re.escape(f"{folder}/20230101T000000-2-1.npz is damaged, or was never")):
        next(episodes)


def test_a_buffer_without_episodes_has_none(tmp_path):
    write_zarr(str(tmp_path / "run.zarr"), {"data/x": np.zeros((0, 3)), "meta/episode_ends": np.zeros(0, np.int64)})
    assert list(obscodec.episodes(tmp_path / "run.zarr")) == []


@pytest.mark.parametrize(("package", "write"), [("h5py", act), ("zarr", zarr_folder)])
def test_what_is_not_installed_is_named(package, write, tmp_path, monkeypatch):
    path, _ = write(tmp_path / "run", recorded())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=f"^this source needs {package}: pip install {package}$"):
        list(obscodec.episodes(path))


@pytest.mark.parametrize("write", [dreamer, robomimic, zarr_zip])
def test_the_memory_holds_one_episode_and_the_one_before(write, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "LENGTHS", [50] * 11)
    episodes = [{**of, "image": np.full((50, 200, 200), 7, np.uint8)} for of in recorded()]
    path, _ = write(tmp_path / f"run{'.hdf5' * (write is robomimic)}", episodes)
    nbytes = sum(of.nbytes for of in episodes[0].values())
    del episodes
    next(obscodec.episodes(path))  # imports what it needs
    tracemalloc.start()
    try:
        assert sum(1 for _ in obscodec.episodes(path)) == 11
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * nbytes  # zarr decodes some chunks at a time
