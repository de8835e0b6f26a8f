"""Looking into a snapshot: what is in it, and whether it is intact."""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from obscodec.errors import SnapshotError
from obscodec.snapshots.folder import Folder, Manifest
from obscodec.snapshots.loading import OpenGeneration
from obscodec.snapshots.saved import named


class SavedField(NamedTuple):
    """A field, as its writer describes it.

    Attributes:
        item: dtype and shape of one item, such as ``"uint8[84, 84]"``.
        codec: how it is compressed, "" if it is not.
        nbytes: bytes of its arrays or streams. A store that several fields share counts for the first one.
    """

    name: str
    item: str
    codec: str
    nbytes: int


class GenerationReport(NamedTuple):
    """What a generation has.

    Attributes:
        kind: the class of what was saved, "" if the manifest is damaged.
        written_by: the version that wrote it.
        nbytes: bytes of the files that it needs.
        n_steps: how many steps there are, of each environment; None if the writer does not say.
        n_envs: how many environments there are; None if the writer does not say.
        fields: the parts of each step.
        other_nbytes: bytes of the files that are of no field: ids, tables, what codecs learn from.
        arguments: what the buffer was made with, as far as these are plain values.
        damage: what is damaged, a text for each place.
    """

    generation: int
    kind: str
    written_by: str
    nbytes: int
    n_steps: int | None
    n_envs: int | None
    fields: tuple[SavedField, ...]
    other_nbytes: int
    arguments: dict[str, Any]
    damage: list[str]


def inspect_snapshot(path: str | os.PathLike[str]) -> Iterator[GenerationReport]:
    """Read and check every file of a snapshot; a report on each generation, the first one first."""
    folder = Folder(path)
    generations = folder.generations()
    if not generations:
        raise SnapshotError(f"{folder.path} has no snapshot")
    for number in generations:
        try:
            opened, damage = OpenGeneration(path, number), list[str]()
            tree, _ = opened.read(damage=damage)
            yield _report(folder, number, opened.manifest, tree.values, damage)
        except SnapshotError as error:
            yield _report(folder, number, {}, None, [str(error)])


def _report(folder: Folder, number: int, manifest: Manifest, values: Any, damage: list[str]) -> GenerationReport:
    n_steps, n_envs, fields = None, None, tuple[SavedField, ...]()
    with suppress(SnapshotError), named(folder.path):  # the writer may be anybody
        said = manifest["contents"]
        counts = [None if said[name] is None else int(said[name]) for name in ("n_steps", "n_envs")]
        texts = [(str(of["name"]), str(of["item"]), str(of["codec"]), int(of["nbytes"])) for of in said["fields"]]
        fields, (n_steps, n_envs) = tuple(map(SavedField._make, texts)), counts
    arguments = values.get("arguments", {}) if isinstance(values, dict) else {}
    items = arguments.items() if isinstance(arguments, dict) else ()
    plain = {key: value for key, value in items if isinstance(value, (bool, int, float, str))}
    files = [of for of in manifest.get("segments", []) if of]
    nbytes = sum(of["nbytes"] for of in files) + (manifest["arrays"]["nbytes"] if manifest else 0)
    other_nbytes = max(0, nbytes - sum(field.nbytes for field in fields))
    kind, written_by = str(manifest.get("kind", "")), str(manifest.get("written_by", ""))
    return GenerationReport(number, kind, written_by, nbytes, n_steps, n_envs, fields, other_nbytes, plain, damage)
