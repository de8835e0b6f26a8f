"""The format of the example for Minari gives what was written, in any space, as Minari's exact format does."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("minari")
pytest.importorskip("h5py")

import minari
import minari_storage
import obscodec
from gymnasium.spaces import Box, Dict, Discrete, Space, Tuple
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage
from minari_storage import CompressedStorage

IMAGE = Box(0, 255, (40, 48, 3), np.uint8)
SMALL = Box(0, 255, (5, 5, 3), np.uint8)  # no image for Minari
SPACES: dict[str, Space[Any]] = {
    "images": IMAGE,
    "grey": Box(0, 255, (40, 48), np.uint8),
    "nested": Dict({"cameras": Tuple((IMAGE, IMAGE)), "joints": Box(-1, 1, (4,), np.float32), "map": SMALL}),
}


def as_lists(space: Space[Any], n: int) -> Any:
    """Values of a space for ``n`` steps, as Minari's collector has them."""
    if isinstance(space, Dict):
        return {key: as_lists(of, n) for key, of in space.items()}
    if isinstance(space, Tuple):
        return tuple(as_lists(of, n) for of in space.spaces)
    return [space.sample() for _ in range(n)]


def episode(observations: Space[Any], actions: Space[Any], n: int, **more: Any) -> EpisodeBuffer:
    observations.seed(n)
    flags = {"terminations": [False] * n, "truncations": [k == n - 1 for k in range(n)]}
    given = {"observations": as_lists(observations, n + 1), "actions": as_lists(actions, n), **flags, **more}
    return EpisodeBuffer(rewards=[k / 3 for k in range(n)], **given)


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key, of in a.items():
            assert_same(of, b[key])
    elif isinstance(a, tuple):
        for pair in zip(a, b, strict=True):
            assert_same(*pair)
    elif a is not None:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        assert np.shape(a) == np.shape(b)


@pytest.mark.parametrize("actions", [Discrete(5), IMAGE], ids=["numbers", "images"])
@pytest.mark.parametrize("kind", SPACES)
def test_it_reads_what_the_exact_format_of_minari_reads(tmp_path: Path, kind: str, actions: Space[Any]) -> None:
    episodes = [episode(SPACES[kind], actions, n) for n in (7, 1, 4)]
    read = []
    for name, options in {"hdf5": {"jpeg_encoding": False}, "obscodec": {}}.items():
        spaces = {"observation_space": SPACES[kind], "action_space": actions}
        storage = MinariStorage.new(tmp_path / name, **spaces, data_format=name, **options)  # type: ignore[arg-type]
        storage.update_episodes(episodes[:2])
        storage = MinariStorage.read(tmp_path / name)
        storage.update_episodes(episodes[2:])
        assert not storage.jpeg_encoding
        assert (storage.total_episodes, storage.total_steps) == (3, 12)
        read.append(list(storage.get_episodes([2, 0, 1])))
    assert_same(dict(enumerate(read[0])), dict(enumerate(read[1])))


def test_steps_come_to_an_episode_that_is_there(tmp_path: Path) -> None:
    first, rest = episode(IMAGE, Discrete(5), 4), episode(IMAGE, Discrete(5), 3, id=0)
    storage = MinariStorage.new(tmp_path, IMAGE, Discrete(5), data_format="obscodec")
    storage.update_episodes([first, rest])
    (read,) = storage.get_episodes([0])
    assert read["observations"].tobytes() == np.array([*first.observations, *rest.observations]).tobytes()  # type: ignore[misc]
    assert len(read["rewards"]) == 7


@pytest.mark.filterwarnings("ignore")  # Minari wants to know more about the data set
def test_a_data_set_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "MINARI_DATASETS_PATH", str(tmp_path))
    given = episode(IMAGE, Discrete(5), 5)
    spaces = {"observation_space": IMAGE, "action_space": Discrete(5)}
    minari.create_dataset_from_buffers("of/images-v0", [given], data_format="obscodec", **spaces)  # type: ignore[arg-type]
    loaded = minari.load_dataset("of/images-v0")
    assert isinstance(loaded.storage, CompressedStorage)
    assert loaded[0].observations.tobytes() == np.array(given.observations).tobytes()


def test_damage_is_refused(tmp_path: Path) -> None:
    import h5py

    storage = MinariStorage.new(tmp_path, IMAGE, Discrete(5), data_format="obscodec")
    storage.update_episodes([episode(IMAGE, Discrete(5), 4)])
    with h5py.File(tmp_path / "main_data.hdf5", "a") as file:
        file["episode_0/observations"][-1] ^= 1
    with pytest.raises(obscodec.CorruptStream):
        list(storage.get_episodes([0]))


@pytest.mark.slow
def test_the_program_compares_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py")
    pytest.importorskip("pyarrow")
    minari_storage.main(steps=60)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0].split()[0] for line in lines[1:]] == ["hdf5", "hdf5", "parquet", "parquet", "obscodec"]
    exact = {line[:22].strip(): int(line.split()[-3].replace(",", "")) for line in lines[1:]}
    assert exact["obscodec"] == 0 < exact["hdf5, JPEG"]
