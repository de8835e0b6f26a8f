"""What the doctor says of what it has found out: reasons, sums, lines to paste, plots."""

import io
from dataclasses import replace
from itertools import pairwise

import gymnasium as gym
import numpy as np
import obscodec
import pytest
from gymnasium import spaces
from obscodec import Field, RingBuffer
from obscodec.cli.commands import app
from obscodec.cli.doctor import command
from obscodec.cli.doctor.paste import lines_to_paste
from obscodec.cli.doctor.report import Report, notes, why
from obscodec.cli.doctor.sources import Following
from obscodec.cli.doctor.trials import examine
from rich.console import Console
from typer.testing import CliRunner

N = 400


def printed(report, width=200):
    out = Console(file=io.StringIO(), width=width)
    report.print(out)
    return out.file.getvalue().splitlines()


def tried(name, items, budget=None):
    return examine(name, items, budget, lambda completed, total: None)


@pytest.fixture(scope="module")
def moving():
    """Colour images in which a square moves."""
    frames = np.zeros((N, 48, 48, 3), np.uint8)
    for k, frame in enumerate(frames):
        frame[20:28, k % 40 : k % 40 + 8] = 255
    return tried("observation", frames)


@pytest.fixture(scope="module")
def tiles():
    """Textured tiles in another order in each frame, which codecs of several frames make smallest."""
    rng = np.random.default_rng(0)
    kinds, order = rng.integers(256, size=(9, 8, 8, 3), dtype=np.uint8), rng.integers(9, size=(N, 6, 6))
    frames = kinds[order].transpose(0, 1, 3, 2, 4, 5).reshape(N, 48, 48, 3)
    field = tried("tiles", frames)
    smallest = min(field.measured, key=lambda of: of.item_bytes)
    return replace(field, chosen=smallest)


@pytest.fixture(scope="module")
def vectors():
    return tried("vector", np.zeros((N, 7), np.float32))


def test_next_observations_are_counted_where_they_share_frames(moving, vectors):
    assert printed(Report("data", (vectors,)))[-2] == "A million transitions take 28 MB."
    said = "; this includes vector and the next observations of observation, which share the frames."
    assert printed(Report("data", (moving, vectors)))[-2].endswith(said)


def test_the_reason_is_whole_whatever_it_says():
    field = tried("noise", np.random.default_rng(0).integers(256, size=(100, 48, 48), dtype=np.uint8))
    odd = replace(field, reason="the first: of two: as asked for")
    takes = (
        f"transition takes {field.item_bytes:,.0f} bytes, its next observation included; the ratio is one uncompressed "
        "observation to these bytes."
    )
    assert why(field) == f"{field.reason}. A {takes}"
    in_blocks = why(replace(odd, chosen=replace(odd.chosen, block_frames=4)))
    assert in_blocks.startswith("the first: of two: as asked for. In blocks of 4 frames, a transition takes")
    assert field.reason == "the smallest codec that reads as fast as plain arrays, on the first 100 frames"


def executed(lines, names):
    """The value of the last line."""
    exec(lines, names)
    return names[lines.rstrip().splitlines()[-1].partition(" = ")[0]]


@pytest.mark.parametrize("which", ["moving", "tiles", "vectors"])
def test_the_field_to_paste_takes_what_the_table_says(which, request):
    found = request.getfixturevalue(which)
    buffer = executed(lines_to_paste([found])["RingBuffer"], {})
    field = buffer.fields[found.name]
    assert (field.layout, field.codec) == (found.layout, found.recommended)
    assert [*buffer.fields] == ([found.name, f"next_{found.name}"] if found.chosen else [found.name])
    if found.chosen:
        store, expected = field.new_store(), found.chosen.block_frames
        store.append(np.zeros((N, *field.shape), field.dtype))
        store.decide()
        assert f"block_frames={expected}" in repr(store)


def test_a_buffer_for_episodes_knows_where_they_end(moving, vectors):
    report = Report("run", (moving, vectors), has_episodes=True)
    buffer = executed(report.pastes["RingBuffer"], {})
    assert buffer.episode_end == ("episode_end",)
    assert "episode_end" not in Report("run", (moving, vectors)).pastes["RingBuffer"]


BOX = spaces.Box(0, 255, (48, 48, 3), np.uint8)


def env_of(space):
    env = gym.Env()
    env.observation_space, env.action_space = space, spaces.Discrete(2)
    return env


@pytest.mark.parametrize("which", ["moving", "tiles"])
def test_the_line_for_stable_baselines3(which, request):
    pytest.importorskip("obscodec_sb3")
    found = request.getfixturevalue(which)
    lines = lines_to_paste([found])["Stable-Baselines3"]
    model = executed(lines.replace("1_000_000", "1000"), {"env": env_of(BOX)})
    assert model.replay_buffer._options.codec == found.recommended
    assert model.replay_buffer._options.block_frames == {"moving": None, "tiles": found.chosen.block_frames}[which]


@pytest.mark.parametrize("which", ["moving", "tiles"])
def test_the_line_for_torchrl(which, request):
    pytest.importorskip("obscodec_torchrl")
    import torch
    from tensordict import TensorDict

    found = request.getfixturevalue(which)
    storage = executed(lines_to_paste([found])["TorchRL"], {})
    pixels = torch.zeros(N, 48, 48, 3, dtype=torch.uint8)
    storage.set(range(N), TensorDict(pixels=pixels, vector=torch.zeros(N, 3), batch_size=N))
    assert storage.options.codec == found.recommended
    assert storage.options.block_frames == {"moving": None, "tiles": found.chosen.block_frames}[which]
    stats = storage.stats().fields
    assert [isinstance(of, obscodec.stats.StoreStats) for of in stats.values()] == [True, False]


def test_all_lines_are_in_the_report(moving):
    report = Report("data", (moving,))
    text = "\n".join(printed(report))
    pastes = lines_to_paste([moving])
    assert [*pastes] == ["RingBuffer", "Stable-Baselines3", "TorchRL"]
    assert report.as_json()["paste"] == pastes
    for lines in pastes.values():
        assert lines in text


def textured(n=N, side=48):
    """Images that only slow codecs make smaller."""
    coarse = np.random.default_rng(0).integers(256, size=(n, side // 4, side // 4)).repeat(4, 1).repeat(4, 2)
    noise = np.random.default_rng(1).integers(8, size=(n, side, side))
    return (coarse // 2 + noise).astype(np.uint8)


def seen_by_a_buffer(frames, **options):
    layout = frames.shape[1:], frames.dtype
    fields = {"obs": Field(*layout, **options), "next": Field(*layout, next_of="obs")}
    buffer = RingBuffer(len(frames), fields)
    for before, after in pairwise(frames):
        buffer.append(obs=before, next=after)
    return buffer


@pytest.mark.parametrize("n_shown", [1, 3])
def test_the_choice_is_that_of_a_buffer_of_transitions(n_shown):
    """Also if equal frames follow each other: the more tensors a frame is in, the less it takes of each."""
    frames = textured(N // n_shown).repeat(n_shown, axis=0)
    found, choice = tried("frames", frames), seen_by_a_buffer(frames).stats().fields["obs"].choice
    assert (found.recommended, found.chosen.block_frames) == (choice.chosen.spec, choice.chosen.block_frames)
    assert found.reason == choice.reason


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "uint16"])
def test_numbers_that_are_stored_as_bytes(dtype):
    frames = textured()
    numbers = (frames / 255).astype(dtype) if dtype == "float32" else frames.astype(dtype)
    found, bytewise = tried("frames", numbers), tried("frames", frames)
    assert (found.stored_as, found.recommended) == ("uint8", bytewise.recommended)
    assert found.is_lossless
    assert "pred" in {of.spec for of in found.measured}
    # the tensors that fit into no code have room of their own in tables
    assert found.item_bytes == pytest.approx(bytewise.item_bytes, rel=0.1)
    buffer = executed(lines_to_paste([found])["RingBuffer"], {})
    for before, after in pairwise(numbers):
        buffer.append(frames=before, next_frames=after)
    assert buffer.stats().projected_bytes / 1e6 == pytest.approx(found.item_bytes, rel=0.05)
    if not found.can_name_codec:
        assert buffer.fields["frames"] == Field((48, 48), dtype, "auto")
        assert any(line.startswith(f"{found.recommended} takes no {dtype}, so a field can't") for line in notes(found))
    of_images = ("palette",) if dtype.endswith("16") else ("pred", "palette")  # pred takes depths
    assert found.can_name_codec == (not found.recommended.startswith(of_images))


@pytest.mark.slow
def test_next_observations_of_a_source_count_where_they_are_no_observations():
    frames = textured(2 * N)
    ends = replace_every(frames, 2)
    shared = examine("obs", frames[:N], None, lambda **_: None)
    apart = examine("obs", frames[:N], None, lambda **_: None, Following("next_obs", ends))
    assert apart.item_bytes == pytest.approx(1.5 * shared.item_bytes, rel=0.1)
    fields = executed(lines_to_paste([apart])["RingBuffer"], {}).fields
    assert fields["next_obs"].next_of == "obs"


def replace_every(frames, k):
    """The frame after each of the first half, but of every ``k``-th one another."""
    following = frames[1 : N + 1].copy()
    following[::k] = frames[N::k][: len(following[::k])]
    return following


def test_one_buffer_for_all_fields(moving, tiles, vectors):
    pytest.importorskip("obscodec_torchrl")
    pytest.importorskip("obscodec_sb3")
    image, depth = replace(moving, name="obs/image"), replace(moving, name="obs/depth")
    pastes = lines_to_paste([image, depth, vectors])
    buffer = executed(pastes["RingBuffer"], {})
    assert [*buffer.fields] == ["obs/image", "obs/next_image", "obs/depth", "obs/next_depth", "vector"]

    codec = dict.fromkeys(KEYS, moving.recommended)
    lines = pastes["Stable-Baselines3"]
    model = executed(lines.replace("1_000_000", "1000"), {"env": env_of(spaces.Dict(dict.fromkeys(KEYS, BOX)))})
    assert model.replay_buffer._options.codec == codec
    assert executed(pastes["TorchRL"], {}).options.codec == {(key,): spec for key, spec in codec.items()}
    # blocks of one number of frames are for all, others are left out
    for blocks, text in (
        ((tiles, tiles), f"block_frames={tiles.chosen.block_frames}"),
        ((tiles, moving), "# block_frames is one number"),
    ):
        fields = [replace(of, name=key) for of, key in zip(blocks, KEYS, strict=True)]
        for of in ("Stable-Baselines3", "TorchRL"):
            lines = lines_to_paste(fields)[of]
            assert text in lines
            assert lines.count("block_frames") == 1
    same = [replace(moving, name=name) for name in ("left/image", "right/image")]
    assert "Stable-Baselines3" not in lines_to_paste(same)


KEYS = "image", "depth"


def test_a_field_that_fails_is_left_out_and_others_are_not(tmp_path, monkeypatch):
    def fail_once(name, *rest):
        if name == "bad":
            raise obscodec.SpecError("no codec takes it")
        return examine(name, *rest)

    monkeypatch.setattr(command, "examine", fail_once)
    np.savez(tmp_path / "run.npz", bad=np.zeros(100), good=np.zeros(100))
    ran = CliRunner().invoke(app, ["doctor", str(tmp_path / "run.npz")])
    assert (ran.exit_code, "Left out: bad, no codec takes it.\n" in ran.stdout) == (0, True)
    np.savez(tmp_path / "run.npz", bad=np.zeros(100))
    ran = CliRunner().invoke(app, ["doctor", str(tmp_path / "run.npz")])
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr == f"{tmp_path / 'run.npz'} has no field to try, bad: no codec takes it\n"
