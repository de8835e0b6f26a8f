"""What the results depend on: the card, its driver, versions, the commit; and whether obscodec finds the GPU at all."""

import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path

import numpy as np
import obscodec
import obscodec_cupy

from gpu_parts.machine import ROOT, Machine, SimulatedGpu
from gpu_parts.record import Record

_PACKAGES = ["obscodec", "obscodec-cupy", "obscodec-sb3", "obscodec-torchrl", "numpy", "numba", "torch"]
_PACKAGES += ["cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "zstandard", "lz4"]
_PACKAGES += ["ml-dtypes", "stable-baselines3", "sb3-contrib", "sbx-rl", "torchrl", "gymnasium", "ale-py"]
_PACKAGES += ["pytest", "hypothesis"]
_QUERY = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,compute_cap,mig.mode.current"


def run(machine: Machine, record: Record) -> None:
    """A row for each fact."""
    for what, text in _facts(machine).items():
        record.row(what=what, is_=text)
    for package in _PACKAGES:
        try:
            record.row(what=package, is_=version(package))
        except PackageNotFoundError:
            record.left_out(package, "it is not installed")
    with record.check("obscodec finds the GPU and decodes there"):
        layout = obscodec.Layout((8, 8), "uint8")
        codec = obscodec.codec("rle", layout, device="cuda")
        x = np.arange(128, dtype=np.uint8).reshape(2, 8, 8) // 32
        out = machine.empty(x.shape, x.dtype)
        codec.decode_batch(codec.encode_batch(machine.upload(x)), out).check()
        np.testing.assert_array_equal(machine.download(out), x)


def _facts(machine: Machine) -> dict[str, str]:
    facts = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "Python": sys.version,
        "system": platform.platform(),
        "processors": f"{os.cpu_count()} {platform.machine()}",
        "compute-sanitizer, ncu": ", ".join(str(shutil.which(tool)) for tool in ("compute-sanitizer", "ncu")),
        "backends": ", ".join(f"{x.name} = {x.value}" for x in entry_points(group="obscodec.backends")) or "none",
        "obscodec_cupy is in": str(Path(obscodec_cupy.__file__).parent),
        "card": _printed("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"),
    }
    return facts if isinstance(machine, SimulatedGpu) else facts | _of_cuda()


def _of_cuda() -> dict[str, str]:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    return {
        "card, by CUDA": properties["name"].decode(),
        "multiprocessors": str(properties["multiProcessorCount"]),
        "bytes of the L2 cache": str(properties["l2CacheSize"]),
        "CUDA of the driver": str(cupy.cuda.runtime.driverGetVersion()),
        "CUDA of CuPy": str(cupy.cuda.runtime.runtimeGetVersion()),
        "NVRTC": str(cupy.cuda.nvrtc.getVersion()),
        "CuPy": cupy.__version__,
    }


def _commit() -> str:
    """Of git, or as ``just gpu-wheels`` wrote it down."""
    carried = ROOT / "commit.txt"
    if carried.exists():
        return carried.read_text(encoding="utf-8").strip()
    return _printed("git", "-C", str(ROOT), "describe", "--always", "--dirty")


def _printed(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return f"unknown: {error}"
