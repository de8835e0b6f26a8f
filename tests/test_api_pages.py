"""The pages of the API list every method that people call, and no joint between the packages."""

import inspect
import re
from functools import cached_property
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = "\n".join(path.read_text(encoding="utf-8") for path in ROOT.glob("docs/api/*.md"))
BLOCK = re.compile(r"^::: (?P<module>[\w.]+)\.(?P<name>\w+)\n(?P<options>(?: .*\n)*)", re.MULTILINE)
MEMBERS = re.compile(r" members: \[(.*?)\]", re.DOTALL)

# What only stores, adapters, backends, snapshots and tests call.
JOINTS = {
    "allocate",
    "apply_",
    "arguments",
    "assign_ids",
    "attach",
    "buffers_at_work",
    "changing",
    "choose",
    "coder",
    "config",
    "copy",
    "count",
    "described",
    "device_reader",
    "drawn",
    "exchange",
    "fitted",
    "follow",
    "from_arguments",
    "from_config",
    "has_device_reader",
    "has_moved",
    "is_ragged",
    "load_state_dict",
    "look",
    "manifest",
    "map2_",
    "map_",
    "mask_dims",
    "memory_bytes",
    "move_some",
    "new_array",
    "new_items",
    "new_store",
    "news",
    "note_loaded",
    "obs_shape",
    "owner",
    "parts",
    "projected",
    "put_ids",
    "read_into",
    "refuse",
    "require",
    "restore",
    "row",
    "settle",
    "share_memory_",
    "spill",
    "state",
    "state_dict",
    "step_writer",
    "stored_steps",
    "stores",
    "take_in",
    "take_over",
    "to_torch",
    "turn",
    "unsent_nbytes",
    "watch",
    "with_others",
    "write_buffer",
}


def listed() -> dict[type, set[str]]:
    """The members that the pages list, by class."""
    found: dict[type, set[str]] = {}
    for block in BLOCK.finditer(PAGES):
        value = getattr(import_module(block["module"]), block["name"], None)
        if inspect.isclass(value) and not issubclass(value, Exception):
            members = MEMBERS.search(block["options"])
            found[value] = set(re.findall(r"\w+", members[1])) if members else set()
    return found


LISTED = listed()


def of_ours(value: type) -> set[str]:
    """The public methods and properties of a class that it has of our packages."""
    kinds = (classmethod, staticmethod, property, cached_property)
    members = [member for of in value.__mro__ if of.__module__.startswith("obscodec") for member in vars(of).items()]
    return {
        name
        for name, member in members
        if not name.startswith(("_", "test_")) and (inspect.isfunction(member) or isinstance(member, kinds))
    }


@pytest.mark.parametrize("value", LISTED, ids=lambda value: value.__name__)
def test_each_method_is_listed_or_a_joint(value: type) -> None:
    on_pages = set().union(*(members for of, members in LISTED.items() if issubclass(value, of)))
    assert of_ours(value) - on_pages <= JOINTS


def test_no_joint_is_listed() -> None:
    assert not JOINTS & set().union(*LISTED.values())


def test_each_joint_is_one() -> None:
    assert set().union(*map(of_ours, LISTED)) >= JOINTS
