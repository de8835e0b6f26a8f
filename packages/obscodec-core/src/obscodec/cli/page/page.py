"""Page: what is shown of a snapshot, within bounds, as JSON in a file of HTML that needs nothing else."""

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from obscodec.buffers import StoredSteps
from obscodec.cli.page.pictures import is_image, pixels_of, planes_of, png, range_of
from obscodec.recordings import told
from obscodec.runtime import patiently
from obscodec.segments import Ints
from obscodec.snapshots import GenerationReport, opened_steps

_MOST_PNG_NBYTES: Final = 5 << 20  # of all images; as texts they take a third more
_SHEET_NBYTES: Final = 3 << 19  # of pixels
_MOST_SHEET, _MOST_IMAGES = 24, 4  # images of a field in the contact sheet; fields with images
_MOST_PARTS, _MOST_STEPS = 4, 256  # parts of the buffer; steps of a part
_MOST_NUMBERS, _MOST_OF_FIELD = 64, 16  # of a step
_MOST_VECTOR_NBYTES, _MOST_ITEM_NBYTES = 1 << 16, 1 << 25
_READ_NBYTES, _PART_NBYTES = 1 << 23, 1 << 28  # of images: to decode at a time, and for a part
_SCANNED: Final = 1 << 20  # steps at a time
_MOST_CHARACTERS, _MOST_TEXTS = 300, 100  # of what a snapshot says, which may be anything


def page_of(folder: Path, reports: Sequence[GenerationReport]) -> str:
    """The page of a snapshot, with steps of the newest generation that can be read."""
    shown, why = dict[str, Any](), list[str]()
    for report in reversed(reports):
        try:
            with opened_steps(folder, report.generation, salvage=True) as steps:
                shown = {"generation": report.generation, **_Shown(steps).as_json()}
            break
        except Exception as error:  # of an adapter, or of the library behind it
            why.append(f"Steps of generation {report.generation} can't be read. {told(error)}")
    said = {"name": str(folder), "reports": [report._asdict() for report in reversed(reports)], "why": why}
    text = json.dumps(_short(said) | shown, separators=(",", ":")).replace("<", "\\u003c")
    return files("obscodec.cli.page").joinpath("page.html").read_text("utf-8").replace("$DATA", text)


def target_of(path: str) -> Path:
    """The file that a page is written to, with links followed; OSError if it can't be one."""
    target = Path(os.path.realpath(path))
    if target.is_dir() or (target.exists() and not target.is_file()):
        raise OSError(f"{path} is no file: name one, such as page.html")
    if target.exists() and not (target.stat().st_mode & 0o222 and os.access(target, os.W_OK)):
        raise OSError(f"{path} is read-only: name another file")
    if not target.parent.is_dir():
        raise OSError(f"{path} can't be written: {target.parent} is no folder")
    return target


def write_page(page: str, target: Path) -> None:
    """Write a page; what was there before stays until all of it is written."""
    unfinished = target.with_name(f"unfinished-{os.getpid()}.html")
    try:
        unfinished.write_text(page, "utf-8")
        patiently(unfinished.replace, target)
    finally:
        unfinished.unlink(missing_ok=True)


class _Shown:
    """What a page shows of the steps of a buffer."""

    def __init__(self, steps: StoredSteps) -> None:
        self._steps, self._left_out = steps, dict(steps.left_out)
        self._images = dict[bytes, int]()  # PNG files, each once, and their numbers
        self._n_bytes = 0  # of these
        self._ranges = dict[str, tuple[float, float]]()  # of the fields with images: black and white
        self._numbers = dict[str, int]()  # of the fields with numbers: how many are shown
        for name, layout in sorted(steps.layouts.items(), key=lambda item: item[1].nbytes):
            n_left = _MOST_NUMBERS - sum(self._numbers.values())
            if layout.dtype.kind in "mMc" or not layout.nbytes:
                self._left_out[name] = f"{layout}, nothing that can be drawn"
            elif layout.nbytes > (_MOST_ITEM_NBYTES if is_image(layout) else _MOST_VECTOR_NBYTES):
                self._left_out[name] = f"{layout}, {layout.nbytes:,} bytes in each step"
            elif len(self._ranges) == _MOST_IMAGES if is_image(layout) else not n_left:
                self._left_out[name] = f"{layout}, enough other fields are shown"
            elif is_image(layout):
                self._ranges[name] = 0, 1
            else:
                self._numbers[name] = min(layout.nbytes // layout.dtype.itemsize, _MOST_OF_FIELD, n_left)

    def as_json(self) -> dict[str, Any]:
        """JSON values."""
        steps, sheet = self._steps, [self._sheet(name) for name in self._ranges]
        nbytes = sum(steps.layouts[name].nbytes for name in self._ranges)
        share = (_MOST_PNG_NBYTES - self._n_bytes) // _MOST_PARTS
        of_step = self._n_bytes * len(sheet) // max(1, len(self._images))  # about, of PNG
        n = min(_MOST_STEPS, steps.n, share // max(1, of_step), _PART_NBYTES // max(1, nbytes))
        places = self._places(max(1, n))
        parts = [self._part(*place, self._n_bytes + share) for place in places]
        shown = {(step, part["env"]) for part in parts for step in range(part["first"], part["first"] + part["n"])}
        return {
            "n": steps.n,
            "n_envs": steps.n_envs,
            "n_shown": len(shown | {(step, env) for of in sheet for step, env in of["at"]}),
            "n_lost": len(steps.lost),
            "flags": _short(steps.flags),
            "sizes": {_short(x): steps.layouts[x].nbytes // steps.layouts[x].dtype.itemsize for x in self._numbers},
            "sheet": sheet,
            "parts": [part for part in parts if part["n"]],
            "images": [b64encode(of).decode() for of in self._images],
            "left_out": _short([f"{name}: {why}" for name, why in self._left_out.items()]),
        }

    def _sheet(self, name: str) -> dict[str, Any]:
        """Images of a field that are spread over the buffer, which also tell what is black and white."""
        steps, layout = self._steps, self._steps.layouts[name]
        n = min(_MOST_SHEET, max(2, _SHEET_NBYTES // len(self._ranges) // min(layout.nbytes, 3 << 16)))
        rows = np.linspace(0, steps.n - 1, n).astype(np.int64)
        places = np.unique(np.stack([rows, np.arange(n) % steps.n_envs], axis=1), axis=0)
        is_step = np.array([steps.scan(place[:1])[1][0, place[1]] for place in places])
        places = places[is_step] if is_step.any() else places
        planes, said = zip(*(planes_of(steps.read(name, *place[:, None])) for place in places), strict=True)
        together = np.concatenate(planes)
        self._ranges[name] = black, white = range_of(together)
        grey = "" if layout.dtype == np.uint8 and white == 255 else f"black is {black:g}, white is {white:g}"
        images = [self._image(pixels) for pixels in pixels_of(together, black, white)]
        about = "; ".join(filter(None, [said[0], grey]))
        return {"name": _short(name), "said": about, "at": places.tolist(), "images": images}

    def _image(self, pixels: Any) -> int:
        """The number of an image, which may be there already."""
        content = png(pixels)
        self._n_bytes += 0 if content in self._images else len(content)
        return self._images.setdefault(content, len(self._images))

    def _places(self, n: int) -> list[tuple[int, int, int]]:
        """Environments, first steps and lengths of parts: around ends of episodes, and the newest steps."""
        steps, found = self._steps, list[Ints]()
        for begin in range(0, steps.n, chunk := max(1, _SCANNED // steps.n_envs)):
            some = np.arange(begin, min(begin + chunk, steps.n))
            found.append(np.argwhere(steps.scan(some)[0]) + np.array([begin, 0]))
        ends = np.concatenate(found)
        if not len(ends):
            ends = np.array([[steps.n * k // _MOST_PARTS, k % steps.n_envs] for k in range(_MOST_PARTS)])
        chosen = np.linspace(0, len(ends) - 1, min(len(ends), _MOST_PARTS - 1)).astype(np.int64)
        for k, at in enumerate(chosen):  # of other environments, where there are some
            chosen[k] += (ends[at:, 1] == k % steps.n_envs).argmax()
        places = list[tuple[int, int, int]]()
        for step, env in [*ends[chosen].tolist(), [2 * steps.n, steps.n_envs - 1]]:
            first = max(0, min(step - n * 3 // 4, steps.n - n))
            if all(env != other or abs(first - begin) > n // 2 for other, begin, _ in places):
                places.append((env, first, n))
        return places

    def _part(self, env: int, first: int, n: int, most: int) -> dict[str, Any]:
        """Consecutive steps of an environment, fewer than ``n`` if all images would exceed ``most`` bytes.

        Places of ends and the like are counted from the first step.
        """
        steps, images, done = self._steps, {name: list[int]() for name in self._ranges}, first
        chunk = max(1, _READ_NBYTES // max([1, *(steps.layouts[name].nbytes for name in images)]))
        while done < first + n and self._n_bytes < most:
            at = np.arange(done, min(done + chunk, first + n))
            planes = {name: planes_of(steps.read(name, at, np.full(len(at), env)))[0] for name in images}
            pixels = [pixels_of(of, *self._ranges[name]) for name, of in planes.items()]
            for k in range(len(at)):
                if self._n_bytes < most:
                    for numbers, of in zip(images.values(), pixels, strict=True):
                        numbers.append(self._image(of[k]))
                    done += 1
        at = np.arange(first, done)
        ends, inside = (of[:, env] for of in steps.scan(at))
        lost = steps.lost[steps.lost[:, 1] == env, 0] - first
        return {
            "env": env,
            "first": first,
            "n": len(at),
            "images": {_short(name): of for name, of in images.items()},
            "numbers": {_short(name): self._texts(name, at, env) for name in self._numbers},
            "ends": np.flatnonzero(ends).tolist(),
            "gaps": np.flatnonzero(~inside).tolist(),
            "lost": lost[(lost >= 0) & (lost < len(at))].tolist(),
        }

    def _texts(self, name: str, at: Ints, env: int) -> list[list[str]]:
        """Numbers ``[n, k]`` as the shortest texts that tell them apart, which NaN has, too."""
        items: Any = self._steps.read(name, at, np.full(len(at), env)).reshape(len(at), -1)[:, : self._numbers[name]]
        numbers = items if items.dtype.kind in "biuf" else items.astype(np.float32)
        texts: list[list[str]] = numbers.astype(str).tolist()
        return texts


def _short(value: Any) -> Any:
    """JSON values with long texts and long lists cut off, of which the last value says so then."""
    if isinstance(value, str):
        return value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}…"
    if isinstance(value, dict):
        return {_short(name): _short(of) for name, of in [*value.items()][:_MOST_TEXTS]}
    if isinstance(value, (list, tuple)):
        more = len(value) - _MOST_TEXTS
        return [_short(of) for of in value[:_MOST_TEXTS]] + [f"and {more} more"] * (more > 0)
    return str(value) if value in (np.inf, -np.inf) else value
