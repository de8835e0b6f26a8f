"""Recorded data as a source: arrays of one name in all episodes are one field, whose time goes on through them."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from obscodec.cli.doctor.sources import LEAST_ITEMS, Content, Request
from obscodec.errors import SourceError
from obscodec.recordings import Array, Part

_AXIS_0 = "Axis 0 of each array is taken for time, with its steps in their order: frames compress by what changes."
_CHANNELS, _OF_PIXELS = (1, 2, 3, 4), ("uint8", "uint16")


def content_of(parts: Iterator[Part], request: Request) -> Content:
    """The first items of each field of recorded data."""
    arrays, left_out, episodes = dict[str, list[Array]](), dict[str, str](), dict[str, list[Part]]()
    kinds: dict[str, dict[str, str]] = {}  # the dtype and shape of the items of a field, and where they are first
    for part in parts:
        if part.kind:
            episodes.setdefault(part.kind, []).append(part)
        for name, stored in part.fields.items():
            of = arrays.setdefault(name, [])
            try:
                array = stored.read(request.n - sum(map(len, of)))
                if not array.ndim:
                    raise SourceError("it is one value, without time along axis 0")
            except SourceError as error:  # other arrays may be readable
                left_out.setdefault(name, str(error))
            else:
                of.append(array)
                kinds.setdefault(name, {}).setdefault(f"{array.dtype} {array.shape[1:]}", part.name)
                request.advance(len(array))
        if part.kind and any(sum(map(len, arrays[name])) >= request.n for name in part.fields):
            break
    for name, of_name in kinds.items():
        if len(of_name) > 1:
            listed = " and ".join(f"{kind} in {place}" for kind, place in of_name.items())
            left_out.setdefault(name, f"its items are {listed}, give all the same")
    read = [part for of in episodes.values() for part in of]
    for name, n in Counter(name for part in read for name in part.fields).items():
        if n < len(read):
            said = f"it is in {n:,} of the {len(read):,} episodes that were read, give all the same arrays"
            left_out.setdefault(name, said)
    items = {name: np.concatenate(of) for name, of in arrays.items() if name not in left_out}
    taken = [
        f"{len(of):,} of {of[0].total:,} {kind}, {of[0].name} to {of[-1].name}, are taken for episodes, one after the "
        "other."
        for kind, of in episodes.items()
    ]
    pictures = [said for name, array in items.items() for said in _of_one_image(name, array)]
    return Content(items, left_out, (*taken, _AXIS_0, *pictures), has_episodes=bool(episodes))


def _of_one_image(field: str, array: Array) -> list[str]:
    """What to say of an array with the shape of a picture, which many steps of vectors have, too."""
    sides = array.shape[:-1] if array.ndim == 3 and array.shape[-1] in _CHANNELS else array.shape
    if array.dtype not in _OF_PIXELS or len(sides) != 2 or min(sides) < LEAST_ITEMS:
        return []
    n, *item = array.shape
    taken = f"{field} is taken for {n:,} steps of {array.dtype}{item}: if it is one image, or time is another axis"
    return [f"{taken}, save an array with time first, as np.stack(images) and np.moveaxis(array, axis, 0) make it."]
