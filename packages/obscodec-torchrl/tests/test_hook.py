"""A training with TorchRL's Trainer goes on with the buffer of its last generation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from obscodec import DTypeError, SnapshotError
from obscodec_torchrl import CompressedStorage, SnapshotHook
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer
from torchrl.envs import GymEnv
from torchrl.modules import MLP, QValueActor
from torchrl.objectives import DQNLoss
from torchrl.trainers import ReplayBufferTrainer, Trainer

CODEC = {"observation": "zstd:1", ("next", "observation"): "zstd:1"}
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # of TorchRL's Trainer, about its next version
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def new_training(folder: Path, frames: int) -> tuple[Trainer, TensorDictReplayBuffer, SnapshotHook]:
    env = GymEnv("CartPole-v1")
    actor = QValueActor(MLP(in_features=4, out_features=2, num_cells=[8]), spec=env.action_spec)
    loss = DQNLoss(actor, action_space=env.action_spec, delay_value=False)
    loss.make_value_estimator(gamma=0.99)
    trainer = Trainer(
        collector=Collector(env, actor, frames_per_batch=50, total_frames=frames, auto_register_policy_transforms=True),
        total_frames=frames,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters()),
        progress_bar=False,
        save_trainer_file=folder / "trainer.pt",
        save_trainer_interval=100,
    )
    buffer = TensorDictReplayBuffer(
        storage=CompressedStorage(250, codec=CODEC, decide_after=16),
        sampler=PrioritizedSampler(250, 0.7, 0.5),
        batch_size=16,
        priority_key="td_error",
    )
    of_buffer = ReplayBufferTrainer(buffer, flatten_tensordicts=True)
    trainer.register_op("batch_process", of_buffer.extend)
    trainer.register_op("process_optim_batch", of_buffer.sample)
    trainer.register_op("post_loss", of_buffer.update_priority)
    hook = SnapshotHook(buffer, folder / "buffer", every=100)
    hook.register(trainer)
    return trainer, buffer, hook


def numbers_of(folder: Path) -> list[int]:
    return sorted(int(file.name.split("-")[1]) for file in (folder / "buffer").glob("generation-*.json"))


def set_frames(file: Path, frames: int) -> None:
    """Have the checkpoint of a trainer be of another moment."""
    saved = torch.load(file, weights_only=False)
    saved["state"]["collected_frames"] = frames
    torch.save(saved, file)


def assert_same(given: TensorDictReplayBuffer, expected: TensorDictReplayBuffer) -> None:
    everything = torch.arange(len(expected))
    assert len(given) == len(expected)
    assert torch.equal(given[everything]["observation"], expected[everything]["observation"])
    assert given.writer._cursor == expected.writer._cursor
    samples = []
    for buffer in (given, expected):
        torch.manual_seed(0)
        buffer.sampler._rng = torch.Generator().manual_seed(0)
        samples.append(buffer.sample())
    assert torch.equal(samples[0]["index"], samples[1]["index"])


def test_a_training_is_resumed_with_the_buffer_that_fits(tmp_path: Path) -> None:
    trainer, buffer, hook = new_training(tmp_path, 450)
    trainer.train()
    assert numbers_of(tmp_path) == [300, 400, 450]
    again, loaded, resumed = new_training(tmp_path, 900)
    assert resumed.resume(again, tmp_path / "trainer.pt") == again.collected_frames == 450
    assert_same(loaded, buffer)
    again.train()
    assert again.collected_frames == 900
    assert numbers_of(tmp_path) == [750, 850, 900]
    assert hook.state_dict() == {"generation": 450}


def test_a_trainer_that_was_saved_before_the_last_generation_gets_an_earlier_one(tmp_path: Path) -> None:
    new_training(tmp_path, 400)[0].train()
    set_frames(tmp_path / "trainer.pt", 350)
    again, _, resumed = new_training(tmp_path, 700)
    assert resumed.resume(again, tmp_path / "trainer.pt") == 300
    again.train()
    assert numbers_of(tmp_path) == [400, 500, 600]  # another future than that of generation 400
    set_frames(tmp_path / "trainer.pt", 100)
    again, _, resumed = new_training(tmp_path, 700)
    with pytest.raises(SnapshotError) as error:
        resumed.resume(again, tmp_path / "trainer.pt")
    found = "has no generation for a trainer that has collected 100 frames, only [400, 500, 600]"
    assert str(error.value) == f"{tmp_path / 'buffer'} {found}"


def test_another_training_does_not_replace_what_is_there(tmp_path: Path) -> None:
    new_training(tmp_path, 200)[0].train()
    with pytest.raises(SnapshotError, match="has generation 200 already"):
        new_training(tmp_path, 200)[0].train()


def test_a_storage_alone_is_saved(tmp_path: Path) -> None:
    _, buffer, _ = new_training(tmp_path, 100)
    hook = SnapshotHook(buffer.storage, tmp_path / "storage", every=1)
    buffer.extend(GymEnv("CartPole-v1").rollout(20))
    hook.write(7)
    hook.finish()
    assert [*(tmp_path / "storage").glob("generation-00000007-*")]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"buffer": LazyTensorStorage(3)}, "takes a buffer with a CompressedStorage, got LazyTensorStorage"),
        ({"every": "x"}, "every must be a whole number"),
    ],
)
def test_impossible_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(DTypeError, match=text):
        SnapshotHook(**{"buffer": CompressedStorage(3), "path": tmp_path, "every": 1, **arguments})
