"""Looking into a snapshot: what is in it, and whether it is intact."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from obscodec.errors import SnapshotError
from obscodec.snapshots.folder import Folder, Manifest
from obscodec.snapshots.reader import OpenGeneration
from obscodec.snapshots.snapshot import named
from obscodec.snapshots.summary import Summary, summary_of
from obscodec.snapshots.tree import Tree


class GenerationReport(NamedTuple):
    """What a generation has.

    Attributes:
        generation: its number.
        kind: the class of what was saved, "" if the manifest is damaged.
        written_by: the version that wrote it.
        nbytes: bytes of the files that it needs.
        summary: what it has, None if that is of no known form, or too damaged.
        arguments: what the buffer was made with, as far as these are plain values.
        damage: what is damaged, a text for each place.
    """

    generation: int
    kind: str
    written_by: str
    nbytes: int
    summary: Summary | None
    arguments: dict[str, Any]
    damage: list[str]


def inspect_snapshot(path: str | os.PathLike[str]) -> Iterator[GenerationReport]:
    """Read and check every file of a snapshot; a report on each generation, the first one first.

    Args:
        path: the folder.

    Raises:
        SnapshotError: the folder has no snapshot.
    """
    folder = Folder(path)
    generations = folder.generations()
    if not generations:
        raise SnapshotError(f"{folder.path} has no snapshot")
    for number, name in generations.items():
        try:
            manifest = folder.read_manifest(name)
            read = OpenGeneration(folder, number).read(salvages=True)
            yield _report(folder, number, manifest, read.tree, read.damage)
        except SnapshotError as error:
            yield _report(folder, number, {}, Tree(None, {}, {}, {}), [str(error)])


def _report(folder: Folder, number: int, manifest: Manifest, tree: Tree, damage: list[str]) -> GenerationReport:
    summary = None
    with suppress(SnapshotError), named(folder.path):
        summary = summary_of(tree)
    arguments = tree.values.get("arguments", {}) if isinstance(tree.values, dict) else {}
    items = arguments.items() if isinstance(arguments, dict) else ()
    plain = {key: value for key, value in items if isinstance(value, (bool, int, float, str))}
    files = [of for of in manifest.get("segments", []) if of]
    nbytes = sum(of["nbytes"] for of in files) + (manifest["arrays"]["nbytes"] if manifest else 0)
    kind, written_by = str(manifest.get("kind", "")), str(manifest.get("written_by", ""))
    return GenerationReport(number, kind, written_by, nbytes, summary, plain, damage)
