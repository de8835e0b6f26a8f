"""The page of `obscodec inspect --html`: what it shows is what the buffer holds, within bounds, whoever wrote it."""

import json
import os
import re
import signal
import stat
from pathlib import Path

import ml_dtypes
import numpy as np
import obscodec
import pytest
import typer
from new_python import run_obscodec, run_python
from obscodec import Field, FrameStore, Layout, Prioritized, RingBuffer, Snapshot, TensorArray
from obscodec.cli.commands import inspect
from obscodec.snapshots import opened_steps, write_snapshot
from pages import DATA, check_steps, page_of
from saved import NOISY, append, array, flip, frames, noise, ring


def saved(buffer, folder):
    obscodec.save(buffer, folder / "saved")
    return folder / "saved"


def one_field(folder, field, items):
    """What the page of a buffer with one field says."""
    buffer = RingBuffer(max(1, len(items)), {"x": field})
    buffer.extend(x=items)
    return page_of(saved(buffer, folder))[0]


@pytest.mark.parametrize("n_steps", [60, 520])
def test_a_page_shows_what_a_ring_with_several_environments_holds(n_steps, tmp_path):
    buffer = ring(0, 400)
    append(buffer, 0, n_steps)
    data, text = page_of(saved(buffer, tmp_path))
    whole = buffer[:]

    def shown(name, step, env):
        item = whole[name][step, env]
        if name == "depth":  # of numbers from 0 to 4
            return np.rint(item.astype(float) / 4 * 255).astype(np.uint8)
        return item[-1]

    def values(name, step, env):
        return whole["vector"][step, env, -1] if name == "vector" else whole[name][step, env]  # of a stack, the newest

    check_steps(data, shown, values, 2)
    assert (data["n"], data["n_envs"], data["flags"]) == (len(buffer), 2, ["$"])
    assert [of["name"] for of in data["sheet"]] == ["depth", "obs", "next"]
    assert [of["said"] for of in data["sheet"][:2]] == ["black is 0, white is 4", "the last of 4 planes"]
    assert data["left_out"] == ["time: datetime64[ns][], nothing that can be drawn"]
    for part in data["parts"]:
        steps = np.arange(part["first"], part["first"] + part["n"])
        assert part["ends"] == np.flatnonzero(whole["$"][steps, part["env"]]).tolist()
        assert part["gaps"] == part["lost"] == []
    if n_steps == 520:  # the ring has wrapped around
        assert [(of["first"], of["n"]) for of in data["parts"]][-1] == (400 - 256, 256)
        assert {of["env"] for of in data["parts"]} == {0, 1}
        assert any(of["first"] == 0 for of in data["parts"])
    assert text.count("<script") == 2
    assert "http" not in DATA.sub("", text).replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_the_bytes_are_those_that_inspect_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "300")
    folder = saved(ring(50), tmp_path)
    inspect(str(folder), str(tmp_path / "page.html"))
    printed = capsys.readouterr().out
    data = json.loads(DATA.findall((tmp_path / "page.html").read_text("utf-8"))[0])
    (report,) = data["reports"]
    for name, item, codec, nbytes in report["fields"]:
        assert [name, *item.split(), *(codec or "none").split(), f"{nbytes:,}"] in [
            x.split() for x in printed.splitlines()
        ]
    assert f"all else {report['other_nbytes']:,}" in re.sub(" +", " ", printed)
    size = (tmp_path / "page.html").stat().st_size / 1000
    assert printed.splitlines()[-1] == f"The page is {tmp_path / 'page.html'}, {size:.1f} kB."


def of_floats(scale):
    return lambda n: np.random.default_rng(0).integers(256, size=(n, 20, 24)).astype(np.float32) / np.float32(scale)


def integers(*shape, most=256, dtype=np.uint8):
    return lambda n: np.random.default_rng(0).integers(most, size=(n, *shape)).astype(dtype)


SHOWN = {
    "grey": (integers(20, 24), lambda x: x, ""),
    "one channel behind": (integers(20, 24, 1), lambda x: x[..., 0], ""),
    "one channel in front": (integers(1, 20, 24), lambda x: x[0], ""),
    "colours": (integers(20, 24, 3), lambda x: x, ""),
    "colours in front": (integers(3, 20, 24), lambda x: np.moveaxis(x, 0, -1), ""),
    "stack": (integers(4, 20, 24), lambda x: x[-1], "the last of 4 planes"),
    "stack behind": (integers(20, 24, 4), lambda x: x[..., -1], "the last of 4 planes"),
    "stack of colours": (integers(9, 20, 24), lambda x: np.moveaxis(x[6:], 0, -1), "the last three of 9 planes"),
    "stack of images": (integers(4, 20, 24, 3), lambda x: x[-1], "the last of 4"),
    "floats to 1": (of_floats(255), lambda x: np.rint(x * 255).astype(np.uint8), "black is 0, white is 1"),
    "floats to 255": (of_floats(1), lambda x: x.astype(np.uint8), "black is 0, white is 255"),
    "mask": (integers(20, 24, most=2, dtype=bool), lambda x: x * np.uint8(255), "black is 0, white is 1"),
    "labels": (integers(20, 24, most=6), lambda x: x * np.uint8(51), "black is 0, white is 5"),
    "bfloat16": (
        integers(20, 24, most=2, dtype=ml_dtypes.bfloat16),
        lambda x: x.astype(np.uint8) * np.uint8(255),
        "black is 0, white is 1",
    ),
    "large": (integers(600, 300), lambda x: x[::3, ::3], "1 of 3 rows and columns"),
}


@pytest.mark.parametrize("kind", SHOWN)
def test_an_image_is_shown_bit_for_bit(kind, tmp_path):
    make, expected, said = SHOWN[kind]
    items = make(5)
    data = one_field(tmp_path, Field(items.shape[1:], items.dtype, "zstd:1"), items)
    (sheet,) = data["sheet"]
    assert sheet["said"] == said
    assert data["left_out"] == []
    check_steps(data, lambda _, step, __: expected(items[step]), None, 1)


def test_floats_without_a_common_range_are_shown_from_the_least_to_the_largest(tmp_path):
    items = np.linspace(-3, 5, 3 * 20 * 24, dtype=np.float32).reshape(3, 20, 24)
    items[1, 0, :3] = np.nan, np.inf, -np.inf
    data = one_field(tmp_path, Field((20, 24), np.float32), items)
    assert data["sheet"][0]["said"] == "black is -3, white is 5"
    image = data["images"][data["sheet"][0]["images"][1]]
    assert image[0, :3].tolist() == [0, 255, 0]
    np.testing.assert_array_equal(image[1:], np.rint((items[1, 1:].astype(float) + 3) / 8 * 255))


@pytest.mark.parametrize(
    ("items", "texts"),
    [
        (np.float32([0.1, np.nan, -np.inf, -0.0]), ["0.1", "nan", "-inf", "-0.0"]),
        (np.int64([2**63 - 1, -5]), ["9223372036854775807", "-5"]),
        (np.array([0.1, 3]).astype(ml_dtypes.bfloat16), ["0.100097656", "3.0"]),
        (np.array([True, False]), ["True", "False"]),
    ],
    ids=["float32", "int64", "bfloat16", "bool"],
)
def test_numbers_are_texts_that_tell_them_apart(items, texts, tmp_path):
    data = one_field(tmp_path, Field((), items.dtype), items)
    (part,) = data["parts"]
    assert part["numbers"]["x"] == [[text] for text in texts]


def test_what_is_not_shown_is_named(tmp_path):
    fields = {f"image {k}": Field((8, 8), np.uint8) for k in range(5)}
    fields |= {f"vector {k}": Field((k,), np.float32) for k in (0, 20, 21, 22, 23, 24)}
    fields |= {"complex": Field((), np.complex64), "cloud": Field((None, 3), np.float32)}
    fields |= {"long": Field((17_000,), np.float32), "small": Field((3, 9), np.uint8)}
    buffer = RingBuffer(3, fields)
    step = {name: np.zeros([2 if n is None else n for n in of.shape], of.dtype) for name, of in fields.items()}
    buffer.append(**step)
    data, _ = page_of(saved(buffer, tmp_path))
    assert sorted(data["left_out"]) == [
        "cloud: its length differs from step to step",
        "complex: complex64[], nothing that can be drawn",
        "image 4: uint8[8, 8], enough other fields are shown",
        "long: float32[17000], 68,000 bytes in each step",
        "vector 0: float32[0], nothing that can be drawn",
        *(f"vector {k}: float32[{k}], enough other fields are shown" for k in (23, 24)),
    ]
    (part,) = data["parts"]
    shown = {"cloud_lengths": 1, "small": 16, "vector 20": 16, "vector 21": 16, "vector 22": 15}
    assert {name: len(of[0]) for name, of in part["numbers"].items()} == shown
    assert data["sizes"]["small"] == 27
    assert [*part["images"]] == [f"image {k}" for k in range(4)]


def test_parts_are_around_ends_of_episodes_and_have_the_newest_steps(tmp_path):
    buffer = RingBuffer(3000, {"t": Field((), np.int32), "done": Field((), bool)}, 2, episode_end="done")
    ends = {(1000, 0), (1700, 1)}
    for k in range(3000):
        buffer.append(t=[k, -k], done=[(k, 0) in ends, (k, 1) in ends])
    data, _ = page_of(saved(buffer, tmp_path))
    found = [(of["env"], of["first"], of["n"], of["ends"]) for of in data["parts"]]
    assert found == [(0, 808, 256, [192]), (1, 1508, 256, [192]), (1, 2744, 256, [])]
    assert data["parts"][1]["numbers"]["t"][0] == ["-1508"]


def test_seams_and_steps_that_were_taken_out_are_marked(tmp_path):
    fields = {"frame": Field((12, 16), np.uint8), "done": Field((), bool), "valid": Field((), bool)}
    fields["t"] = Field((), np.int32)
    buffer = RingBuffer(50, fields, episode_end="done", mask="valid")
    for k, frame in enumerate(frames(30) + 1):
        if k == 10:
            buffer.end_episodes()  # which no field tells of
        if k == 25:
            buffer.drop_episode()
        buffer.append(frame=frame, done=k == 19, valid=k != 5, t=k)
    data, _ = page_of(saved(buffer, tmp_path))
    (part,) = data["parts"]
    assert part["ends"] == [9, 19]
    assert part["gaps"] == [5, 20, 21, 22, 23, 24]
    assert [int(text) for (text,) in part["numbers"]["t"]] == [k * (k not in range(20, 25)) for k in range(30)]
    assert {step for step, _ in data["sheet"][0]["at"]}.isdisjoint(part["gaps"])


def test_environments_that_do_not_step_together_are_aligned_at_their_newest_step(tmp_path):
    buffer = RingBuffer(50, {"t": Field((), np.int32)}, 2)
    for k in range(30):
        buffer.append(envs=[0], t=[k])
    for k in range(12):
        buffer.append(envs=[1], t=[100 + k])
    data, _ = page_of(saved(buffer, tmp_path))
    part = next(of for of in data["parts"] if of["env"] == 1)
    assert part["gaps"] == [*range(18)]
    assert part["numbers"]["t"][17:19] == [["0"], ["100"]]


@pytest.mark.parametrize("others", [(), (3, 2)], ids=str)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_an_array_is_shown_by_its_first_axis(others, is_damaged, tmp_path):
    made = TensorArray.zeros((40, *others), FrameStore(NOISY, codec="zstd:1", block_frames=1))
    made[:] = noise(made.ids.size).reshape(made.shape)
    folder, whole = saved(made, tmp_path), np.array(made)
    if is_damaged:
        (segment,) = folder.glob("*.segment")
        flip(segment, -30)
        lost = obscodec.load(folder, salvage=True).lost
        whole[tuple(lost.T)] = 0
    data, _ = page_of(folder, code=is_damaged)
    assert (data["n"], data["n_envs"]) == (40, 6 if others else 1)
    flat = whole.reshape(40, -1, 42, 42)
    check_steps(data, lambda _, step, env: flat[step, env], None, data["n_envs"])
    black = {(step, env) for step, env in np.argwhere(~flat.any(axis=(2, 3))).tolist()}
    assert bool(black) == is_damaged
    found = {(part["first"] + k, part["env"]) for part in data["parts"] for k in part["lost"]}
    assert found == {(step, env) for step, env in black if env in {part["env"] for part in data["parts"]}}
    assert data["n_lost"] == len(black)


@pytest.mark.parametrize(
    "empty", [RingBuffer(10, {"reward": Field((), np.float32)}), Prioritized(10), FrameStore(Layout((12, 16), "u1"))]
)
def test_what_has_no_steps_says_so(empty, tmp_path):
    data, _ = page_of(saved(empty, tmp_path))
    (why,) = data["why"]
    assert re.search(f"has a {type(empty).__name__} without items in the order of time$", why)
    assert "parts" not in data


def test_lost_steps_are_marked_and_the_others_shown(tmp_path):
    buffer = RingBuffer(600, {"frame": Field((42, 42), np.uint8, "zstd:1", block_frames=4)}, 2)
    played = noise(1200).reshape(600, 2, 42, 42)
    buffer.extend(frame=played)
    folder = saved(buffer, tmp_path)
    (segment,) = folder.glob("*.segment")
    flip(segment, segment.stat().st_size // 2)
    data, _ = page_of(folder, code=1)
    assert len(data["reports"][0]["damage"]) == 2
    lost = obscodec.load(folder, salvage=True).lost
    assert data["n_lost"] == len(lost) > 0
    places = {tuple(place) for place in lost.tolist()}
    for part in data["parts"]:
        assert part["lost"] == [k for k in range(part["n"]) if (part["first"] + k, part["env"]) in places]
    assert any(part["lost"] for part in data["parts"])
    check_steps(data, lambda _, step, env: played[step, env] * ((step, env) not in places), None, 2)


@pytest.mark.parametrize("damaged", ["generation-00000002-*.json", "arrays-00000002*"])
def test_an_earlier_generation_is_shown_if_the_last_one_is_damaged(damaged, tmp_path):
    folder, buffer = tmp_path / "saved", ring(30)
    with Snapshot(folder) as snapshot:
        snapshot.write(buffer)
        append(buffer, 30, 60)
        snapshot.write(buffer)
    for generation, n in ((1, 30), (2, 60), (None, 60)):
        with opened_steps(folder, generation) as steps:
            assert steps.n == n
    (file,) = folder.glob(damaged)
    flip(file, 40)
    data, _ = page_of(folder, code=1)
    assert (data["generation"], data["n"]) == (1, 30)
    (why,) = data["why"]
    assert re.match(r"Steps of generation 2 can't be read\. SnapshotError: .* is damaged", why)


def test_a_package_that_is_not_installed_is_named(tmp_path):
    class Foreign(RingBuffer):
        written_by = "obscodec-gone 1.0"

    write_snapshot(Foreign(10, {"reward": Field((), np.float32)}), tmp_path / "saved")
    data, _ = page_of(tmp_path / "saved")
    assert data["why"][0].endswith("has a snapshot of obscodec-gone, which is not installed")


HOSTILE = [
    "</script><script>alert(1)</script>",
    '"><img src=x onerror="alert(1)">',
    "<!--",
    "$DATA",
    "\ud800",
    "x" * 5000,
]


def test_names_can_not_inject_markup(tmp_path):
    fields = {f"{k}{name}": Field((), np.float32) for k, name in enumerate(HOSTILE)}
    fields |= {f"picture {name}": Field((8, 8), np.uint8) for name in HOSTILE[:2]}
    buffer = RingBuffer(3, {**fields, "</script>": Field((), bool)}, episode_end="</script>")
    buffer.append(**{name: np.zeros(of.shape, of.dtype) for name, of in buffer.fields.items()})
    data, text = page_of(saved(buffer, tmp_path))
    said = DATA.findall(text)[0]
    assert "<" not in said
    assert len(text) < 40_000
    assert text.count("<script") == text.count("</script") == 2
    assert data["parts"][0]["numbers"].keys() >= {f"{k}{name}" for k, name in enumerate(HOSTILE[:5])}
    assert max(map(len, re.findall(r'"(x|5x+…?)"', said)), default=0) <= 301


def test_lists_are_cut_off_and_say_so(tmp_path):
    fields = {f"{k:03}{'x' * 400}": Field((), "datetime64[s]") for k in range(150)}
    fields |= {f"{k:03}": Field((), bool) for k in range(150)}
    buffer = RingBuffer(3, fields, episode_end=[name for name in fields if len(name) == 3])
    buffer.append(**{name: np.zeros((), of.dtype) for name, of in fields.items()})
    data, text = page_of(saved(buffer, tmp_path))
    assert len(text) < 200_000
    assert data["left_out"][99] == f"013{'x' * 297}…"
    assert len(data["left_out"]) == len(data["flags"]) == len(data["reports"][0]["fields"]) == 101
    assert data["left_out"][-1] == "and 136 more"
    assert data["reports"][0]["fields"][-1] == "and 200 more"
    assert len(data["parts"][0]["numbers"]) == 64


def test_names_that_are_no_text(tmp_path):
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff<b>"))
    obscodec.save(RingBuffer(3, {"\ud800": Field((), np.float32)}), folder)
    ran = run_obscodec("inspect", folder, "--html", tmp_path / "page.html", locale="C.UTF-8")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "\\ud800" in ran.stdout
    assert "\\udcff<b>" in ran.stdout
    data = json.loads(DATA.findall((tmp_path / "page.html").read_text("utf-8"))[0])
    assert data["name"] == str(folder)
    assert data["reports"][0]["fields"][0][0] == "\ud800"


def test_steps_too_large_to_read_are_left_out(tmp_path):
    fields = {"huge": Field((1 << 20, 1 << 20), np.uint8, "zstd:1"), "wide": Field((1 << 40,), np.uint8, "zstd:1")}
    fields |= {"large": Field((4, 2000, 2000), np.uint8, "zstd:1"), "reward": Field((), np.float32)}
    buffer = RingBuffer(10**6, fields)
    state = buffer.state()
    state["n_appended"] = 1000  # steps of zeros, which take no memory
    for of in state["arrays"]["arrays"]:
        kind = "ids" if "ids" in of else "items"
        of[kind] = np.zeros((1000, *of[kind].shape[1:]), of[kind].dtype)
    buffer.restore(state)
    data, text = page_of(saved(buffer, tmp_path))
    assert [of.partition(":")[0] for of in data["left_out"]] == ["huge", "wide"]
    assert len(text) < 1 << 20
    assert {part["n"] for part in data["parts"]} == {16}  # what is decoded is bounded, too


@pytest.mark.parametrize("n_fields", [1, 4])
def test_a_page_stays_small_whatever_the_snapshot_has(n_fields, tmp_path):
    shape = (250, 250, 3)
    buffer = RingBuffer(120, {f"noise {k}": Field(shape, np.uint8, "raw") for k in range(n_fields)})
    rng = np.random.default_rng(0)
    for _ in range(120 // n_fields):
        buffer.append(**{name: rng.integers(256, size=shape, dtype=np.uint8) for name in buffer.fields})
    data, text = page_of(saved(buffer, tmp_path))
    assert 4e6 < len(text) < 8e6
    assert len(data["parts"]) == 4  # each with a share of the bytes
    assert len({part["n"] for part in data["parts"]}) == 1
    assert data["n_shown"] < 40


def test_a_part_ends_where_its_images_exceed_their_share(tmp_path):
    shape = (100, 100, 3)
    items = np.random.default_rng(0).integers(256, size=(400, *shape), dtype=np.uint8)
    items[np.linspace(0, 399, 24).astype(int)] = 0  # what the contact sheet has tells nothing of the others
    buffer = RingBuffer(400, {"noise": Field(shape, np.uint8, "raw")})
    buffer.extend(noise=items)
    data, text = page_of(saved(buffer, tmp_path))
    assert [of["at"][0] for of in data["sheet"]] == [[0, 0]]
    check_steps(data, lambda _, step, __: items[step], None, 1)
    assert 3e6 < len(text) < 8e6
    assert all(30 < part["n"] < 60 for part in data["parts"])


def test_where_a_page_can_not_be_written(tmp_path, capsys):
    folder, read_only = saved(array(20), tmp_path), tmp_path / "read-only.html"
    read_only.write_text("before")
    read_only.chmod(stat.S_IRUSR)
    for target, said in (
        (tmp_path, "is no file: name one, such as page.html"),
        (os.devnull, "is no file: name one, such as page.html"),
        (read_only, "is read-only: name another file"),
        (tmp_path / "nowhere" / "page.html", f"can't be written: {tmp_path / 'nowhere'} is no folder"),
    ):
        with pytest.raises(typer.Exit) as ended:
            inspect(str(folder), str(target))
        assert ended.value.exit_code == 2
        assert capsys.readouterr() == ("", f"{target} {said}\n")  # before anything is read
    assert read_only.read_text() == "before"
    with pytest.raises(typer.Exit):
        inspect(str(tmp_path / "none"), str(tmp_path / "none.html"))
    assert not (tmp_path / "none.html").exists()


FULL = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # bytes of a file, as if the disk were full
import typer
from obscodec.cli.commands import inspect
try:
    inspect(*sys.argv[1:])
except typer.Exit as error:
    print("exit code", error.exit_code)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="the system limits no files")
def test_a_page_that_can_not_be_finished_leaves_what_was_there(tmp_path):
    folder, target, link = saved(array(20), tmp_path), tmp_path / "page.html", tmp_path / "link.html"
    target.write_text("before")
    link.symlink_to(target)
    assert run_python("-c", FULL, folder, link).splitlines()[-1] == "exit code 2"
    assert target.read_text() == "before"
    inspect(str(folder), str(link))
    assert link.is_symlink()
    assert target.read_text("utf-8").startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.html", "page.html", "saved"]
