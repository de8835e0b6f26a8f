"""What the results depend on: the card, its driver, versions, the commit; and whether obscodec finds the GPU at all."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.util import find_spec
from typing import Any

from gpu_parts import ROOT
from gpu_parts.record import Record

_PACKAGES = ["obscodec", "obscodec-cupy", "obscodec-sb3", "obscodec-torchrl", "numpy", "numba", "torch"]
_PACKAGES += ["cupy-cuda12x", "cupy-cuda13x", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "zstandard", "lz4"]
_PACKAGES += ["ml-dtypes", "stable-baselines3", "sb3-contrib", "sbx-rl", "torchrl", "gymnasium", "ale-py"]
_PACKAGES += ["pytest", "hypothesis"]
_QUERY = "name,driver_version,memory.total,clocks.max.sm,clocks.max.memory,compute_cap,mig.mode.current"


def run(record: Record, *, simulated: bool) -> None:
    """A row for each fact. What needs nothing but Python comes first, then what obscodec says, then what CUDA says."""
    for what, text in _facts().items():
        record.row(what=what, value=text)
    for package in _PACKAGES:
        try:
            record.row(what=package, value=version(package))
        except PackageNotFoundError:
            record.left_out(package, "it is not installed")
    with record.check("obscodec finds the GPU and decodes there"):
        _decode(simulated=simulated)
    if not simulated:
        _ask_cuda(record)


def _decode(*, simulated: bool) -> None:
    import numpy as np
    import obscodec

    from gpu_parts.machine import opened

    simulation = opened(simulated=True, tiny=True, pool=True) if simulated else None
    layout = obscodec.Layout((8, 8), "uint8")
    codec = obscodec.codec("rle", layout, device="cuda")  # the text of its error names what is missing
    machine = simulation or opened(simulated=False, tiny=True, pool=True)
    x = np.arange(128, dtype=np.uint8).reshape(2, 8, 8) // 32
    out = machine.empty(x.shape, x.dtype)
    codec.decode_batch(codec.encode_batch(machine.upload(x)), out).check()
    np.testing.assert_array_equal(machine.download(out), x)


def _facts() -> dict[str, str]:
    found = find_spec("obscodec_cupy")
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": _commit(),
        "Python": sys.version,
        "system": platform.platform(),
        "processors": f"{os.cpu_count()} {platform.machine()}",
        "compute-sanitizer, ncu": ", ".join(str(shutil.which(tool)) for tool in ("compute-sanitizer", "ncu")),
        "backends": ", ".join(f"{x.name} = {x.value}" for x in entry_points(group="obscodec.backends")) or "none",
        "obscodec_cupy is in": ", ".join((found and found.submodule_search_locations) or ["none"]),
        "card": _printed("nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader"),
    }


def _ask_cuda(record: Record) -> None:
    """A row for each answer. An error is an answer, too."""
    try:
        import cupy
    except ImportError as error:
        record.left_out("what CUDA says", f"{type(error).__name__}: {error}")
        return

    def properties() -> Any:
        return cupy.cuda.runtime.getDeviceProperties(0)

    questions: dict[str, Callable[[], object]] = {
        "CuPy": lambda: cupy.__version__,
        "CUDA of the driver": lambda: cupy.cuda.runtime.driverGetVersion(),
        "CUDA of CuPy": lambda: cupy.cuda.runtime.runtimeGetVersion(),
        "NVRTC": lambda: cupy.cuda.nvrtc.getVersion(),
        "card, by CUDA": lambda: properties()["name"].decode(),
        "multiprocessors": lambda: properties()["multiProcessorCount"],
        "bytes of the L2 cache": lambda: properties()["l2CacheSize"],
    }
    for what, ask in questions.items():
        try:
            answer = str(ask())
        except Exception as error:
            answer = f"unknown: {type(error).__name__}: {error}"
        record.row(what=what, value=answer)


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
