"""The example of obscodec-cupy's README runs; on a simulated GPU without its graph."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

README = Path(__file__).parents[1] / "packages" / "obscodec-cupy" / "README.md"


def check(names: dict[str, Any]) -> None:
    """The batch is what was assigned."""
    places, steps = names["places"].cpu().numpy(), names["step"]
    for read, first in zip(names["batch"].values(), (0, 1), strict=True):
        expected = steps[places // 2 + first, places % 2].astype(np.float32) * np.float32(1 / 255)
        np.testing.assert_array_equal(read.cpu().numpy(), expected)
    names["reader"].check()


@pytest.mark.slow
def test_the_example_runs(cuda: str) -> None:
    eager, graph = re.findall(r"^```py\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(eager, names)
    check(names)
    if type(names["places"]) is torch.Tensor:
        exec(graph, names)
        check(names)
