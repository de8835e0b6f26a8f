"""What an installation of all packages must do at least: import, compress, save and load."""

import sys
import tempfile
from importlib import import_module
from importlib.metadata import version

import numpy as np

for package in ("obscodec", "obscodec_cupy", "obscodec_rllib", "obscodec_sb3", "obscodec_torchrl"):
    module = import_module(package)
    assert "site-packages" in str(module.__file__), f"{package} should be installed from its wheel: {module.__file__}"
    assert module.__version__ == version(package.replace("_", "-")) == sys.argv[1], module.__version__

import obscodec

frames = np.zeros((64, 84, 84), np.uint8)
frames[np.arange(64), np.arange(64)] = 255
buffer = obscodec.RingBuffer(100, {"frame": obscodec.Field((84, 84), np.uint8, "delta-rle")})
buffer.extend(frame=frames)
buffer.decide()
with tempfile.TemporaryDirectory() as folder:
    obscodec.save(buffer, folder)
    loaded = obscodec.load(folder)
np.testing.assert_array_equal(loaded[:]["frame"][:, 0], frames)
assert loaded.stats().total_bytes < frames.nbytes / 3, loaded.stats()
