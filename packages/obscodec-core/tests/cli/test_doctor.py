"""The command ``obscodec doctor``, as a shell runs it."""

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import obscodec
import pytest
from new_python import run_obscodec, run_python
from obscodec import Field, FrameStack, RingBuffer
from obscodec.cli.doctor import command
from obscodec.cli.doctor.report import COLUMNS, TABLE_OF_COSTS, Report
from obscodec.cli.doctor.sources import read
from obscodec.cli.doctor.trials import MILLION, examine
from obscodec.stats import in_units
from rich.console import Console

N = 300
AXIS_0 = "Axis 0 of each array is taken for time, with its steps in their order: frames compress by what changes."


def run(*arguments, blocked=()):
    return run_obscodec("doctor", *arguments, blocked=blocked)


def result(*arguments):
    ran = run(*arguments, "--json")
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def printed(report, width):
    out = Console(file=io.StringIO(), width=width)
    report.print(out)
    return out.file.getvalue().splitlines()


TRIED = {"raw", "delta-rle", "delta-rle|lz4:6", "delta-rle|zstd:3", "zstd:3", "pred"}


@pytest.fixture(scope="module")
def frames():
    """A square that moves before a textured background."""
    frames = np.empty((N, 64, 64), np.uint8)
    frames[:] = np.random.default_rng(0).integers(256, size=(64, 64), dtype=np.uint8)
    for i, frame in enumerate(frames):
        frame[20:28, i % 50 : i % 50 + 8] = 255
    return frames


def check(found, frames, name):
    (field,) = [field for field in found["fields"] if field["name"] == name]
    assert (field["shape"], field["dtype"], field["n_items"]) == ([64, 64], "uint8", len(frames))
    assert field["recommended"] == "delta-rle|lz4:6"
    assert all(of["is_lossless"] for of in field["codecs"])
    assert found["is_lossless"]
    return field


@pytest.mark.slow
def test_an_npy_file(tmp_path, frames):
    np.save(tmp_path / "frames.npy", frames)
    field = check(result(tmp_path / "frames.npy"), frames, "frames")
    assert {of["spec"] for of in field["codecs"]} >= TRIED
    for of in field["codecs"]:
        assert of["ratio"] == pytest.approx(4096 / of["item_bytes"])
        assert of["gb_per_million"] == pytest.approx(of["item_bytes"] / 1000)
        assert 0 < of["decode_us"] < 1e4
        assert 0 < of["encode_us"] < 1e5
        assert of["item_bytes"] < 4096 * 1.06
        assert of["decoded_sha256"] == field["raw_sha256"]
    (raw,) = [of for of in field["codecs"] if of["spec"] == "raw"]
    assert raw["ratio"] == pytest.approx(1, rel=0.06)


@pytest.fixture(scope="module")
def report(frames):
    return Report("frames.npy", (examine("frames", frames, None, lambda completed, total: None),))


def test_the_memory_is_that_of_a_buffer_and_one_figure(report, frames):
    (field,) = report.fields
    (best,) = [of for of in field.measured if of.spec == field.recommended]
    fields = {"obs": Field((64, 64), np.uint8, field.recommended), "next": Field((64, 64), np.uint8, next_of="obs")}
    buffer = RingBuffer(1_000_000, fields)
    buffer.extend(obs=frames[:-1], next=frames[1:])
    buffer.decide()
    assert best.item_bytes == pytest.approx(buffer.stats().projected_bytes / 1e6, rel=0.02)
    lines = printed(report, width=200)
    why = f"the smallest codec that reads as fast as plain arrays, on the first {129} frames"
    takes = (
        f"transition takes {best.item_bytes:,.0f} bytes, its next observation included; the ratio is one uncompressed "
        "observation to these bytes"
    )
    assert f"Recommended: delta-rle|lz4:6, {why}. In blocks of 16 frames, a {takes}." in lines
    assert f"{best.item_bytes / 1000:.3f}" in next(line for line in lines if "delta-rle|lz4:6" in line).split()
    least, most = (MILLION * of for of in report.bounds)
    assert 0.8 * best.item_bytes < report.bounds[0] <= best.item_bytes <= report.bounds[1] < 1.2 * best.item_bytes
    assert lines[-2] == (
        f"A million transitions take {in_units(MILLION * best.item_bytes)}, {in_units(least)} to {in_units(most)} by "
        "parts of the data; this includes the next observations of frames, which share the frames."
    )
    assert re.fullmatch(r"This machine has [\d.]+ [MGT]B free: the full buffer fits\.", lines[-1])


def test_nothing_is_cut_at_60_columns(report):
    (field,) = report.fields
    large = replace(field, measured=tuple(replace(of, ratio=12_345.6) for of in field.measured))
    lines = printed(Report("frames.npy", (large,)), width=60)
    rule = next(k for k, line in enumerate(lines) if line.startswith("──"))
    table = lines[rule - 2 : rule + 1 + len(field.measured)]
    assert max(map(len, table)) <= 60
    words = " ".join(table).split()
    assert {*" ".join(COLUMNS).split(), "12,345.6", *(of.spec for of in field.measured)} <= {*words}
    assert "…" not in "".join(table)


def test_an_environment_takes_what_estimate_says():
    import gymnasium as gym

    found = obscodec.estimate(gym.make("CartPole-v1"), 1_000_000, n_sample=256)
    assert result("CartPole-v1", "--steps", 256)["bytes_per_step"] == found.nbytes / 1e6


def test_the_fields_of_an_npz_file_in_tables(tmp_path, frames):
    np.savez(tmp_path / "run.npz", obs=frames, reward=np.zeros(N, np.float32), name="pong")
    ran = run(tmp_path / "run.npz")
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0].strip() == f"obs: {N} items uint8[64, 64], 4,096 bytes each"
    rows = [line.split() for line in lines if line.endswith(" yes")]
    assert rows[0][0].startswith("delta-rle|")
    assert {row[0] for row in rows} >= TRIED
    assert "    'obs': Field((64, 64), 'uint8', codec='delta-rle|lz4:6')," in lines
    assert {AXIS_0, TABLE_OF_COSTS, "Left out: name, it is one value, without time along axis 0."} <= {*lines}
    assert any(line.startswith("Plain arrays: reward float32[]; below 1024 bytes") for line in lines)


@pytest.mark.parametrize(
    ("shape", "item"), [((80, 64, 3), [64, 3]), ((80, 100), [100]), ((80, 64, 64), None), ((80, 16), None)]
)
def test_a_file_that_may_be_one_image_is_told_apart_from_steps(tmp_path, shape, item):
    np.savez(tmp_path / "x.npz", image=np.random.default_rng(0).integers(256, size=shape, dtype=np.uint8))
    told = [line for line in result(tmp_path / "x.npz")["remarks"] if line.startswith("image is")]
    assert told == (
        [
            f"image is taken for 80 steps of uint8{item}: if it is one image, or time is another axis, save an array "
            "with time first, as np.stack(images) and np.moveaxis(array, axis, 0) make it."
        ]
        if item
        else []
    )


@pytest.mark.slow
def test_images_of_four_channels_are_told_to_be_planes(tmp_path):
    rng = np.random.default_rng(0)
    wall = rng.normal(0, 6, (32 + N, 32 + N, 4)).cumsum(0).cumsum(1) / 4
    images = np.stack([wall[k : k + 32, k : k + 32] for k in range(N)]).astype(np.int64)
    np.save(tmp_path / "rgba.npy", (images + rng.integers(3, size=images.shape)).astype(np.uint8))
    ran = run(tmp_path / "rgba.npy")
    assert "Items are images of 4 channels, which are stored as planes." in ran.stdout
    assert "frame_stack=FrameStack(depth=1, axis=-1)" in ran.stdout


def test_noise_is_called_what_it_is(tmp_path):
    np.save(tmp_path / "noise.npy", np.random.default_rng(0).integers(256, size=(N, 64, 64), dtype=np.uint8))
    ran = run(tmp_path / "noise.npy")
    assert "Recommended: raw, the smallest codec that reads as fast as plain arrays" in ran.stdout
    assert "This hardly shrinks: it is noise, a textured camera image, or a vector." in ran.stdout


@pytest.mark.slow
def test_minari(tmp_path, frames):
    pytest.importorskip("minari")
    np.save(tmp_path / "frames.npy", frames)
    folder = {"MINARI_DATASETS_PATH": str(tmp_path)}
    run_python(Path(__file__).with_name("record_minari.py"), tmp_path / "frames.npy", **folder)
    program = "from obscodec.cli import main; main()"
    said = run_python("-c", program, "doctor", "minari:moving/test-v0", "--json", **folder)
    check(json.loads(said), frames, "episode_*/observations")


@pytest.mark.slow
def test_a_snapshot(tmp_path, frames):
    fields = {"frame": Field((64, 64), np.uint8), "done": Field((), np.bool_), "action": Field((2,), "bfloat16")}
    buffer = RingBuffer(N, fields, n_envs=2)
    for frame in frames:
        buffer.append(frame=np.stack([frame, frame]), done=[False, True], action=np.zeros((2, 2), "bfloat16"))
    obscodec.save(buffer, tmp_path / "storage" / "snapshot")  # as in a checkpoint of TorchRL
    found = result(tmp_path)
    check(found, frames, "frame")
    assert [field["dtype"] for field in found["fields"]] == ["uint8", "bool", "bfloat16"]


def test_what_is_printed_while_a_source_is_read_is_not_in_the_json(tmp_path, monkeypatch, capsys):
    def read_aloud(request):
        sys.stdout.write("TorchRL logs to stdout\n")
        return read(request)

    np.save(tmp_path / "rewards.npy", np.zeros(N))
    monkeypatch.setattr(command, "read", read_aloud)
    command.doctor(str(tmp_path / "rewards.npy"), as_json=True)
    printed = capsys.readouterr()
    assert json.loads(printed.out)["is_lossless"]
    assert printed.err == "TorchRL logs to stdout\n"


@pytest.mark.slow
def test_an_environment_in_its_wrappers():
    found = result("ALE/Pong-v5", "--wrapper", "atari", "--stack", 4, "--steps", 300)
    observation = found["fields"][0]
    assert (observation["shape"], observation["frame_stack"]) == ([4, 84, 84], {"depth": 4, "axis": 0})
    names = {}
    exec(found["paste"]["RingBuffer"].replace("1_000_000", "100"), names)
    assert names["fields"]["observation"] == Field(
        (4, 84, 84), "uint8", "delta-rle|lz4:6", frame_stack=FrameStack(4, 0)
    )
    assert found["bytes_per_step"] < 300
    assert [field["name"] for field in found["fields"]] == [
        "observation",
        "action",
        "reward",
        "terminated",
        "truncated",
    ]


LOCAL = (
    "if it is in this folder, run python -m obscodec doctor in place of obscodec doctor; if it is of a package, "
    "install that"
)
IS_DATA = (
    "is data, --wrapper, --stack and --n-envs are for environments: leave them out; stacks take as much as their "
    "frames, each of which a buffer stores once"
)


@pytest.mark.parametrize(
    ("arguments", "blocked", "text"),
    [
        (["gone.npy"], (), "gone.npy does not exist"),
        (
            ["objects.npy"],
            (),
            "objects.npy can't be read: ValueError: Array can't be memory-mapped: Python objects in dtype.",
        ),
        (["CartPole-v1", "--wrapper", "gone:Gone"], (), f"there is no module gone: {LOCAL}"),
        (["CartPole-v1", "--wrapper", "needy:Some"], (), "the module needy needs gone, which is not installed"),
        (["name.npz"], (), "name.npz has no field to try, name: it is one value, without time along axis 0"),
        (
            ["nothing.txt"],
            (),
            "nothing.txt is none of the files that can be read, *.npy, *.npz, *.hdf5, *.h5, *.hdf, *.zarr, *.zarr.zip",
        ),
        (["data.hdf5"], ("h5py",), "this source needs h5py: pip install h5py"),
        (["ALE/Pong-v5"], ("ale_py",), "this source needs ale_py: pip install ale-py"),
        (["small.npy", "--stack", "4"], (), f"small.npy {IS_DATA}"),
        (["minari:a/b-v0", "--wrapper", "atari"], (), f"minari:a/b-v0 {IS_DATA}"),
        (
            ["CartPole-v1", "--wrapper", "Nope"],
            (),
            "there is no wrapper 'Nope': name 'atari', 'pixels', a class of gymnasium.wrappers, or module:Class",
        ),
    ],
)
def test_what_it_refuses(tmp_path, monkeypatch, arguments, blocked, text):
    monkeypatch.chdir(tmp_path)
    np.save("small.npy", np.zeros((100, 4), np.uint8))
    np.save("objects.npy", np.array([{}, {}], object))
    np.savez("name.npz", name="pong")
    (tmp_path / "nothing.txt").write_text("")
    (tmp_path / "needy.py").write_text("import gone")
    (tmp_path / "data.hdf5").write_text("")
    ran = run(*arguments, blocked=blocked)
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (2, text)
