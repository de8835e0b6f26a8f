"""The buffer of the example for LeRobot gives what LeRobot's own tensors do, also when rows are written again."""

from typing import Any

import lerobot_buffer
import pytest
import torch
from lerobot_buffer import IMAGE, Plain, are_same, compressed
from obscodec.torch import CompressedTensor

N = 60
KINDS = {
    "bytes": lambda k: torch.randint(0, 255, (1, 3, 24, 24), generator=torch.Generator().manual_seed(k // 3)).float(),
    "floats": lambda k: torch.rand((1, 3, 24, 24), generator=torch.Generator().manual_seed(k // 3)),
    "small": lambda k: torch.full((1, 5), k / 7),
}


def filled(*buffers: Any, image: Any, n: int) -> None:
    for k in range(n):
        state, next_state = ({IMAGE: image(at), "observation.state": torch.full((1, 6), at * 0.1)} for at in (k, k + 1))
        for buffer in buffers:
            buffer.add(state, torch.tensor([[k, -k]]), k / 3, next_state, done=k % 9 == 8)


@pytest.mark.parametrize("optimize_memory", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_plain_tensors(kind: str, optimize_memory: bool) -> None:
    plain = Plain(N, optimize_memory=optimize_memory)
    ours = compressed(Plain)(N, optimize_memory=optimize_memory)
    for n in (7, 2 * N):
        filled(plain, ours, image=KINDS[kind], n=n)
        for seed in range(10):
            batches = []
            for buffer in (plain, ours):
                torch.manual_seed(seed)
                batches.append(buffer.sample(16))
            assert are_same(*batches)
    is_large = kind != "small"
    assert isinstance(ours.states[IMAGE], CompressedTensor) == is_large
    assert (ours.next_states is ours.states) == optimize_memory
    assert type(ours.states["observation.state"]) is torch.Tensor


def test_the_program_compares_and_prints(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ale_py")
    lerobot_buffer.main(steps=80, rounds=4)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["MsPacman,", "plain", "compressed"]
