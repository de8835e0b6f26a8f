"""A pytest plugin that puts compressed buffers in the places of the stock ones, before any test is imported.

The environment says which codec they have, ``OBSCODEC_UPSTREAM_CODEC``, and to which file the counts go of what each
test encodes and decodes, ``OBSCODEC_UPSTREAM_COUNTS``.
"""

import inspect
import json
import os
import sys
from collections.abc import Generator
from functools import wraps
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from coding_counts import CodingCounts
from obscodec_sb3 import compressed
from obscodec_sb3.base import CompressedBuffer
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.utils import set_random_seed

PACKAGES = ("stable_baselines3", "sb3_contrib")
# Stores decide on the first steps, and fill blocks in some more; vectors are compressed, too: few tests have images.
DECIDING = {"decide_after": 8, "block_frames": 4}


def is_stock(value: object) -> bool:
    return (
        inspect.isclass(value)
        and issubclass(value, (ReplayBuffer, RolloutBuffer))
        and not issubclass(value, CompressedBuffer)
    )


def replace_in(module: ModuleType) -> None:
    for name, value in list(vars(module).items()):
        if is_stock(value):
            setattr(module, name, compressed(value))


def replace_all() -> None:
    """Replace the names of all buffers, but for the code of the buffers themselves, which names its bases."""
    for package in PACKAGES:
        import_module(package)
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in PACKAGES:
            continue
        if any(is_stock(value) and value.__module__ == name for value in vars(module).values()):
            shown = ModuleType(name)
            vars(shown).update(vars(module))
            sys.modules[name] = shown
            parent, _, child = name.rpartition(".")
            setattr(sys.modules[parent], child, shown)
            module = shown
        replace_in(module)


def pytest_runtest_setup() -> None:
    # some of them fail by chance, with the stock buffers too: test_save_load[CrossQ] does with the seed 0
    set_random_seed(1)


class Counter:
    """A plugin that counts what each test encodes and decodes."""

    def __init__(self) -> None:
        self.counts = CodingCounts(**DECIDING)
        self.of_tests: dict[str, dict[str, int]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self.counts.taken()
        result = yield
        self.of_tests[item.nodeid] = self.counts.taken()
        return result

    def pytest_sessionfinish(self) -> None:
        Path(os.environ["OBSCODEC_UPSTREAM_COUNTS"]).write_text(json.dumps(self.of_tests), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    stock, codec = CompressedBuffer.__init__, os.environ["OBSCODEC_UPSTREAM_CODEC"]

    @wraps(stock)
    def with_options(self: CompressedBuffer, *args: Any, **kwargs: Any) -> None:
        stock(self, *args, codec=codec, min_nbytes=0, **DECIDING, **kwargs)

    CompressedBuffer.__init__ = with_options  # type: ignore[method-assign]
    replace_all()
    config.pluginmanager.register(Counter())
