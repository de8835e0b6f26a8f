"""What the doctor reads of a source, and what it says of sources that it can't read."""

import sys
import zipfile

import numpy as np
import pytest
from obscodec import SourceError
from obscodec.cli.commands import app
from obscodec.cli.doctor.sources import Request, read
from typer.testing import CliRunner

FOR_ATARI = "the wrapper atari is for Atari games, such as ALE/Pong-v5: leave it out, or name another wrapper"
EPISODES = 12  # so that the numbers have one digit or two
STEPS = 30


def content(path, n=10_000):
    return read(Request(str(path), n, (), 1, 0, lambda n: None))


@pytest.fixture
def episodes():
    """The observations of episodes, each with one more than the one before."""
    counts = iter(range(100_000))
    made = [np.array([next(counts) for _ in range(STEPS + k)]) for k in range(EPISODES)]
    return [np.repeat(of[:, None], 4, axis=1).astype(np.int32) for of in made]


def write_hdf5(path, arrays):
    with pytest.importorskip("h5py").File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array


def write_zarr(path, arrays):
    group = pytest.importorskip("zarr").open_group(str(path), mode="w")
    for name, array in arrays.items():
        group.create_array(name, data=array)


def write_npz(path, arrays):
    np.savez(path, **arrays)


@pytest.mark.parametrize(
    ("write", "suffix"),
    [(write_hdf5, ".hdf5"), (write_zarr, ".zarr"), (write_npz, ".npz")],
    ids=["hdf5", "zarr", "npz"],
)
@pytest.mark.parametrize("groups", ["episode_{}", "data/demo_{}", "{}", "version2/traj{}"])
def test_groups_that_differ_by_a_number_are_episodes(tmp_path, episodes, write, suffix, groups):
    arrays = {f"{groups.format(k)}/obs/image": of for k, of in enumerate(episodes)}
    arrays |= {f"{groups.format(k)}/rewards": np.arange(float(len(of) - 1)) for k, of in enumerate(episodes)}
    path = tmp_path / f"run{suffix}"
    write(path, arrays)
    group, expected = groups.format("*"), np.concatenate(episodes)
    found = content(path)
    np.testing.assert_array_equal(found.items[f"{group}/obs/image"], expected)
    assert {name: len(of) for name, of in found.items.items()} == {
        f"{group}/obs/image": len(expected),
        f"{group}/rewards": len(expected) - EPISODES,
    }
    first, last = (f"run{suffix}/{groups.format(k)}" for k in (0, EPISODES - 1))
    assert found.presumed[0] == (
        f"12 of 12 groups run{suffix}/{group}, {first} to {last}, are taken for episodes, one after the other."
    )
    np.testing.assert_array_equal(content(path, 100).items[f"{group}/obs/image"], expected[:100])


def test_what_is_left_out_is_said_with_the_reason(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "run.h5", "w") as file:
        ragged = file.create_dataset("ragged", (100,), h5py.vlen_dtype(np.uint8))
        ragged[:] = [np.zeros(k % 5, np.uint8) for k in range(100)]
        file["few"], file["text"], file["one"] = np.zeros((3, 2)), ["a"] * 100, 7
        file["pairs"], file["nothing"] = np.zeros(100, [("a", "i4"), ("b", "f4")]), h5py.Empty("f4")
        file["type"] = np.dtype("f8")
        file["no numbers"] = np.zeros((100, 0))
        file["e0/x"], file["e1/x"] = np.zeros((100, 2)), np.zeros((100, 3))
        file["kept"] = np.zeros(100)
    found = content(tmp_path / "run.h5")
    assert [*found.items] == ["kept"]
    objects = "its items are Python objects or differ in length, give all items one shape and a dtype of numbers"
    assert found.left_out == {
        "e*/x": "its items are float64 (2,) in run.h5/e0 and float64 (3,) in run.h5/e1, give all the same",
        "few": "3 items tell too little, give 64 or more",
        "no numbers": "its items have no numbers, their shape is (0,)",
        "nothing": "it is one value, without time along axis 0",
        "one": "it is one value, without time along axis 0",
        "pairs": "its dtype is [('a', '<i4'), ('b', '<f4')], a buffer takes numbers, booleans and times",
        "ragged": objects,
        "text": objects,
    }


def test_objects_in_an_archive_are_left_out(tmp_path):
    np.savez(tmp_path / "run.npz", infos=np.array([{}] * 100), obs=np.zeros((100, 3)))
    found = content(tmp_path / "run.npz")
    pickled = "its items are Python objects, which only pickle loads, and a pickle may run any program: save numbers"
    assert found.left_out == {"infos": pickled}
    ran = CliRunner().invoke(app, ["doctor", str(tmp_path / "run.npz")])
    assert f"Left out: infos, {pickled}.\n" in ran.stdout
    np.savez(tmp_path / "run.npz", infos=np.array([{}] * 100))
    with pytest.raises(SourceError, match=f"no field to try, infos: {pickled}$"):
        content(tmp_path / "run.npz")


def test_arrays_that_no_library_reads_are_left_out(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "run.h5", "w") as file:
        file["kept"] = np.zeros(100)
        dates = h5py.h5s.create_simple((100,))
        h5py.h5d.create(file.id, b"dates", h5py.h5t.UNIX_D32LE, dates)
        file.create_dataset("huge", (10**3, 10**6, 10**6), np.uint8, chunks=(1, 1000, 1000))
        compressed = file.create_dataset("damaged", (100, 10), np.uint8, chunks=(100, 10), compression=4)
        compressed.id.write_direct_chunk((0, 0), b"no stream")
    found = content(tmp_path / "run.h5")
    assert [*found.items] == ["kept"]
    assert found.left_out == {
        "damaged": "OSError: Can't synchronously read data (filter returned failure during read)",
        "dates": "TypeError: No NumPy equivalent for TypeTimeID exists",
        "huge": "MemoryError: Unable to allocate 909. TiB for an array with shape (1000, 1000000, 1000000) and data "
        "type uint8",
    }


def test_a_name_is_no_markup_of_the_progress_in_a_terminal(tmp_path, monkeypatch):
    np.savez(tmp_path / "run.npz", **{"[/red]": np.zeros((100, 32, 32), np.uint8)})
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    ran = CliRunner().invoke(app, ["doctor", str(tmp_path / "run.npz")])
    assert ran.exit_code == 0, ran.output
    assert "try [/red]" in ran.stderr


def test_a_name_that_an_archive_has_twice_is_one_field(tmp_path):
    frames = np.zeros((100, 3))
    with zipfile.ZipFile(tmp_path / "run.npz", "w") as archive:
        for name in ("frames.npy", "frames"):
            with archive.open(name, "w") as file:
                np.save(file, frames)
    np.testing.assert_array_equal(content(tmp_path / "run.npz").items["frames"], frames)


def files_of(folder, episodes, suffix, write):
    """A file for each episode, as Dreamer writes them, whose numbers have one digit or two."""
    folder.mkdir()
    for k, of in enumerate(episodes):
        write(
            folder / f"2023-{k}-aa{suffix}", {"image": of, "reward": np.arange(float(len(of) - 1)), "seed": np.array(k)}
        )


@pytest.mark.parametrize(("write", "suffix"), [(write_npz, ".npz"), (write_hdf5, ".hdf5"), (write_hdf5, ".h5")])
def test_a_folder_with_a_file_for_each_episode(write, suffix, tmp_path, episodes):
    files_of(tmp_path / "run", episodes, suffix, write)
    (tmp_path / "run/notes.txt").write_text("")
    found, expected = content(tmp_path / "run"), np.concatenate(episodes)
    np.testing.assert_array_equal(found.items["image"], expected)
    assert len(found.items["reward"]) == len(expected) - EPISODES
    assert found.left_out == {"seed": "it is one value, without time along axis 0"}
    first, last = f"2023-0-aa{suffix}", f"2023-11-aa{suffix}"
    assert found.presumed[0] == (
        f"12 of 12 files *{suffix}, {first} to {last}, are taken for episodes, one after the other."
    )
    few = content(tmp_path / "run", 100)
    np.testing.assert_array_equal(few.items["image"], expected[:100])
    assert few.presumed[0].startswith(f"4 of 12 files *{suffix}, {first} to 2023-3-aa{suffix}, are taken for")
    assert found.has_episodes


def test_arrays_that_are_not_in_each_file_are_left_out(tmp_path, episodes):
    files_of(tmp_path / "run", episodes, ".npz", write_npz)
    first = {"image": episodes[0], "reward": np.zeros((30, 2)), "only": np.zeros(30)}
    write_npz(tmp_path / "run/2023-0-aa.npz", first)
    found = content(tmp_path / "run")
    assert [*found.items] == ["image"]
    kinds = "float64 (2,) in 2023-0-aa.npz and float64 () in 2023-1-aa.npz"
    assert found.left_out == {
        "reward": f"its items are {kinds}, give all the same",
        "only": "it is in 1 of the 12 episodes that were read, give all the same arrays",
        "seed": "it is one value, without time along axis 0",
    }
    (tmp_path / "run/2023-3-aa.npz").write_text("no archive")
    with pytest.raises(SourceError, match=r"run/2023-3-aa\.npz is damaged, or was never an archive of arrays"):
        content(tmp_path / "run")


def test_a_folder_that_has_nothing_to_read_says_what_was_looked_for_and_is_there(tmp_path):
    looked_for = (
        f"{tmp_path} has no snapshot (generation-*.json, in it or up to three folders deeper). "
        f"{tmp_path} has no zarr (zarr.json, .zgroup, .zarray), no data set of Minari (data/main_data.hdf5) and no "
        "episodes (*.npz, *.hdf5, *.h5, *.hdf): it has "
    )
    for name in ("a.txt", "b.txt", "c.png", "d.png"):
        (tmp_path / name).write_text("")
    with pytest.raises(SourceError) as refused:
        content(tmp_path)
    assert str(refused.value) == f"{looked_for}4 files and folders (a.txt, b.txt, c.png, ...)"


def test_a_data_set_of_minari_is_found_by_its_id(tmp_path, monkeypatch, episodes):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    with pytest.raises(SourceError) as refused:
        content("minari:pong/expert-v0")
    assert str(refused.value) == (
        f"Minari has no data set 'pong/expert-v0' here, {tmp_path}/pong/expert-v0 does not exist: "
        "minari download pong/expert-v0"
    )
    (tmp_path / "pong/expert-v0/data").mkdir(parents=True)
    arrays = {f"episode_{k}/observations": of for k, of in enumerate(episodes)}
    write_hdf5(tmp_path / "pong/expert-v0/data/main_data.hdf5", arrays)
    found = content("minari:pong/expert-v0")
    np.testing.assert_array_equal(found.items["episode_*/observations"], np.concatenate(episodes))
    monkeypatch.delenv("MINARI_DATASETS_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(SourceError, match=f"{tmp_path}/.minari/datasets/pong/expert-v0 does not exist"):
        content("minari:pong/expert-v0")


def broken(kind, path):
    """The arguments of the doctor for something that can't be read."""
    frames = np.zeros((100, 32, 32), np.uint8)
    if kind == "zip":
        path = path.with_suffix(".npz")
        path.write_bytes(b"PK\3\4 no archive")
    elif kind == "checksum":
        path = path.with_suffix(".npz")
        np.savez(path, frames=frames)
        with zipfile.ZipFile(path) as archive:
            begin = archive.getinfo("frames.npy").header_offset + 200
        content = bytearray(path.read_bytes())
        content[begin] ^= 1
        path.write_bytes(content)
    elif kind == "truncated":
        path = path.with_suffix(".npy")
        np.save(path, frames)
        path.write_bytes(path.read_bytes()[:-1])
    elif kind == "empty":
        path = path.with_suffix(".npy")
        path.touch()
    elif kind == "no hdf5":
        path = path.with_suffix(".h5")
        path.write_text("no HDF5")
    elif kind == "zarr":
        path = path.with_suffix(".zarr")
        path.mkdir()
        (path / "zarr.json").write_text("{")
    elif kind == "long name":
        path = path.with_name("x" * 300)
    elif kind == "folder":
        path.mkdir()
    return [str(path)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("zip", "is damaged, or was never an archive of arrays, as numpy.savez and zarr write them"),
        ("checksum", "has no field to try, frames: its bytes are damaged: restore the file"),
        ("truncated", "can't be read: ValueError: "),
        ("empty", "can't be read: "),
        ("no hdf5", "can't be read: OSError: Unable to synchronously open file (file signature not found)"),
        ("zarr", "can't be read: "),
        ("long name", "can't be read: OSError: [Errno 36] File name too long"),
        ("folder", " and no episodes (*.npz, *.hdf5, *.h5, *.hdf): it is empty"),
        ("CartPole-v9", "Gymnasium can't make it: "),
        ("Nope-v0", "'Nope-v0' is no file, and Gymnasium can't make it: NameNotFound: "),
        ("a:b:c", "can't make it: "),
        ("CartPole-v1 --wrapper ResizeObservation", "can't be applied: TypeError: "),
        ("CartPole-v1 --wrapper pixels", ""),
        (
            "CartPole-v1 --wrapper no.such.module:Wrapper",
            "there is no module no.such.module: if it is in this folder, ",
        ),
        ("CartPole-v1 --wrapper atari", f"; {FOR_ATARI}"),
        ("Pong-v5", "; did you mean ALE/Pong-v5?"),
        ("CartPole-v1 --wrapper json:loads", "the wrapper 'json:loads' can't be applied: TypeError: "),
        ("CartPole-v1 --wrapper wrappers_of_a_user:fail", "can't be read: ZeroDivisionError: division by zero"),
        ("CartPole-v1 --budget quick", "a budget is 'fast' or None, got 'quick'"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_code_2(kind, text, tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    pytest.importorskip("zarr")
    pytest.importorskip("gymnasium")
    (tmp_path / "wrappers_of_a_user.py").write_text(
        "import gymnasium as gym\nclass fail(gym.Wrapper):\n    def step(self, action):\n        1 / 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "pygame", None)  # whether or not it is there
    arguments = kind.split() if "-v" in kind or ":" in kind else broken(kind, tmp_path / "source")
    ran = CliRunner().invoke(app, ["doctor", *arguments])
    assert (ran.exit_code, ran.stdout) == (2, "")
    *warnings, last = ran.stderr.splitlines()
    assert text in last
    assert not [line for line in warnings if "Traceback" in line]


def test_a_wrapper_with_arguments_is_a_function_of_the_user(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    (tmp_path / "wrappers_with_arguments.py").write_text(
        "from gymnasium.wrappers import TimeAwareObservation\n"
        "def timed(env):\n"
        "    return TimeAwareObservation(env, normalize_time=True)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    request = Request("CartPole-v1", 64, ("wrappers_with_arguments:timed",), 1, 0, lambda n: None)
    assert read(request).items["observation"].shape == (64, 5)


def walk(n, shape, ends=()):
    """Observations and their next ones, of which those at the ends of episodes are no observation."""
    frames = np.random.default_rng(0).integers(256, size=(n + 1, *shape), dtype=np.uint8)
    following = frames[1:].copy()
    for end in ends:
        following[end] = 255 - following[end]
    return frames[:-1], following


@pytest.mark.parametrize(
    ("of", "following"),
    [
        ("observations", "next_observations"),
        ("obs", "next_obs"),
        ("run/obs", "run/next_obs"),
        ("pixels", "next.pixels"),
        ("pixels", "next/pixels"),
    ],
)
def test_next_observations_are_recognised(tmp_path, of, following):
    before, after = walk(100, (40, 40), ends=[20, 50, 99])
    np.savez(tmp_path / "run.npz", **{of: before, following: after})
    found = content(tmp_path / "run.npz")
    assert [*found.items] == [of]
    assert found.following[of].name == following
    np.testing.assert_array_equal(found.following[of].items, after)
    said = f"{following} are {of} one step later, but at the ends of episodes: a buffer stores each frame once."
    assert found.presumed[-1] == said


def test_fields_that_are_called_next_and_are_not_stay(tmp_path):
    before, after = walk(100, (40, 40))
    small, small_after = walk(100, (4,))
    arrays = {"obs": before, "next_obs": after[::-1], "x": small, "next_x": small_after, "next_y": after}
    np.savez(tmp_path / "run.npz", **arrays)
    found = content(tmp_path / "run.npz")
    assert {*found.items} == {*arrays}  # others, less than 1 KiB, or without observations
    assert not found.following
