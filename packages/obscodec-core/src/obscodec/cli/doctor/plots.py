"""Plots of a report, as SVG and PNG for a page that needs no network."""

import base64
import io
import re
from html import escape
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from obscodec.cli.doctor.sources import Array
from obscodec.cli.doctor.trials import FieldReport

_TEXT = "#123456"  # becomes the text colour of the page, which may be light or dark
_CHOSEN, _OTHERS = "#2f9e6e", ("#7a8fd0", "#c77f3d", "#b65fa8")
_MARKERS = "oDs^vPX*"  # with three colours, more than there are codecs
_STYLE: Any = {
    "svg.fonttype": "none",  # texts stay texts
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": _TEXT,
    "axes.labelcolor": _TEXT,
    "axes.edgecolor": _TEXT,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "obscodec",  # the same report gives the same page
}
_MAX_PIXELS = 256


def memory_against_latency(field: FieldReport) -> str:
    """Bytes per item against the time to decode one, for each codec."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure()
        ranked = sorted(field.measured, key=lambda of: -of.item_bytes)  # the legend lists them as the points lie
        for of, other, marker in zip(ranked, cycle(_OTHERS), cycle(_MARKERS)):
            color, size = (_CHOSEN, 90) if of == field.chosen else (other, 45)
            axes.scatter(of.decode_us, of.item_bytes, s=size, color=color, marker=marker, label=of.label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        _mark(axes.xaxis, [of.decode_us for of in ranked], "{x:,.1f}")
        _mark(axes.yaxis, [of.item_bytes for of in ranked], "{x:,.0f}")
        axes.margins(0.1)
        figure.legend(loc="outside right upper", frameon=False, fontsize=9)
        axes.set_xlabel("µs to decode an item")
        axes.set_ylabel("bytes per item")
        return _svg(figure, f"Bytes per item against the time to decode one, of {field.name}")


def _mark(axis: Axis, numbers: list[float], form: str) -> None:
    """Mark the least and the greatest of some numbers, and the middle: matplotlib's marks would cover each other."""
    axis.set_major_locator(FixedLocator(np.unique(np.geomspace(min(numbers), max(numbers), 3)).tolist()))
    axis.set_major_formatter(form)
    axis.set_minor_locator(NullLocator())


def size_over_time(field: FieldReport) -> str:
    """The memory after so many items, as recommended, from where the codec is decided on."""
    with mpl.rc_context(_STYLE):
        figure, axes = _figure()
        n, nbytes = np.array(field.sizes, np.float64).T
        axes.plot(n, nbytes / 1e6, color=_CHOSEN, linewidth=2)
        axes.fill_between(n, nbytes / 1e6, color=_CHOSEN, alpha=0.15, linewidth=0)
        axes.set_ylim(bottom=0)
        axes.set_xlim(0, n[-1])
        axes.set_xlabel("items")
        axes.set_ylabel("MB, without fixed costs")
        return _svg(figure, f"Memory over time, of {field.name}")


def frame_and_patch(field: FieldReport, items: Array) -> tuple[str, str, float] | None:
    """A frame and what has changed since the one before it, as data URIs, and the part that has changed.

    None if items are no images, or never change.
    """
    frames = field.frame_stack.split(items[:_MAX_PIXELS]) if field.frame_stack else items[:_MAX_PIXELS]
    depth = field.frame_stack.depth if field.frame_stack else 1
    frames = frames[depth - 1 :: depth]
    images = _images(frames)
    if images is None:
        return None
    differs = (frames[1:] != frames[:-1]).reshape(len(frames) - 1, -1).mean(axis=1)
    if not differs.any():
        return None
    some = np.flatnonzero(differs)
    at = int(some[len(some) // 2])
    before, after = images[at], images[at + 1]
    changed = (before != after).any(axis=-1, keepdims=True)
    patch = np.where(changed, after, np.uint8(128) + after // 16)
    patch[..., 0] = np.where(changed[..., 0], np.maximum(patch[..., 0], 200), patch[..., 0])
    return _png(after), _png(patch), float(differs[at])


def _images(frames: Array) -> Array | None:
    """``u8[n, height, width, 3]``, None if frames are no images."""
    if frames.ndim == 4 and frames.shape[1] in (1, 3) and frames.shape[-1] not in (1, 3):
        frames = np.moveaxis(frames, 1, -1)
    if frames.ndim == 3:
        frames = frames[..., None]
    if frames.ndim != 4 or frames.shape[-1] not in (1, 3) or min(frames.shape[1:3]) < 8 or len(frames) < 2:
        return None
    if frames.dtype != np.uint8:
        numbers = np.nan_to_num(frames.astype(np.float64))
        low, high = numbers.min(), numbers.max()
        frames = ((numbers - low) / max(high - low, 1e-12) * 255).astype(np.uint8)
    return np.repeat(frames, 3, axis=-1) if frames.shape[-1] == 1 else frames


def _figure() -> tuple[Figure, Axes]:
    figure = Figure(figsize=(5.6, 3.6), layout="constrained")
    return figure, figure.add_subplot()


def _svg(figure: Figure, label: str) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace(_TEXT, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{escape(label)}" ', 1)


def _png(image: Array) -> str:
    file = io.BytesIO()
    mpl.image.imsave(file, image, format="png")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
