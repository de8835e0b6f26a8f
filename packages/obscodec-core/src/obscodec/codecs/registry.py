"""The registry: the classes behind the names in a spec, built-in or from an entry point."""

import base64
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from itertools import dropwhile
from typing import TypeAlias

from obscodec.arguments import among, check_kind, closest
from obscodec.codecs.auto import AUTO
from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.chain import FilteredCodec, TailedCodec
from obscodec.codecs.codec import Codec
from obscodec.codecs.spec import StageSpec, parse
from obscodec.codecs.stage import Filter
from obscodec.errors import LayoutError, SpecError
from obscodec.layout import Layout

ENTRY_POINT_GROUP = "obscodec.codecs"

_ANY = Layout((), "uint8")  # which each codec of bytes takes
_Loaded: TypeAlias = "tuple[StageSpec, type[Codec] | type[Filter]]"


_BUILT_IN = {
    "bitpack": "obscodec.codecs.formats.bitpack:BitPack",
    "delta": "obscodec.codecs.formats.delta:Delta",
    "delta-rle": "obscodec.codecs.formats.delta_rle:DeltaRle",
    "lorenzo": "obscodec.codecs.formats.lorenzo:Lorenzo",
    "lz4": "obscodec.codecs.formats.lz4:Lz4",
    "palette": "obscodec.codecs.formats.images.palette.palette:Palette",
    "pred": "obscodec.codecs.formats.images.pred.pred:Pred",
    "raw": "obscodec.codecs.formats.raw:Raw",
    "rle": "obscodec.codecs.formats.rle:Rle",
    "shuffle": "obscodec.codecs.formats.shuffle:Shuffle",
    "zstd": "obscodec.codecs.formats.zstd:Zstd",
}


@cache
def _targets() -> Mapping[str, str]:
    """Of every known name ``module:class``. An entry point can't replace a built-in one."""
    from importlib.metadata import entry_points  # takes as long to load as all of this package

    third_party = {e.name: e.value.replace(" ", "") for e in entry_points(group=ENTRY_POINT_GROUP)}
    return dict(sorted({**third_party, **_BUILT_IN}.items()))


def available() -> list[str]:
    """Every codec and filter that a spec can name, those of other packages among them.

    Example:
        >>> "raw" in available()
        True
    """
    return [*_targets()]


def new_codec(spec: str, layout: Layout) -> Codec:
    """The codec that ``spec`` names, for items of ``layout``, on the CPU; see ``obscodec.codec``."""
    Layout.require(layout)
    return _build(_loaded(spec), layout)


def check_codec(spec: str) -> None:
    """Refuse what :func:`new_codec` refuses for any layout: names, the order of stages, levels."""
    for stage, kind in _loaded(spec):
        if issubclass(kind, BytesCodec):
            kind.from_args(_ANY, stage.args)


def _loaded(spec: str) -> list[_Loaded]:
    """The stages of a spec with their classes: filters, then a codec, then codecs that compress its bytes."""
    stages = [(stage, _load(stage, spec)) for stage in parse(spec)]
    codecs = list(dropwhile(lambda of: issubclass(of[1], Filter), stages))
    if not codecs:
        raise SpecError(f"{spec!r} ends in a filter, add a codec behind it: '{spec}|zstd:3' or '{spec}|raw'")
    for stage, kind in codecs[1:]:
        if not issubclass(kind, BytesCodec):
            raise SpecError(
                f"{stage.name!r} in {spec!r} stands behind a codec, where only codecs that compress bytes can"
            )
    return stages


def _load(stage: StageSpec, spec: str) -> type[Codec] | type[Filter]:
    if stage.name == AUTO:
        raise SpecError(
            f"{AUTO!r} (in spec {spec!r}) looks at data: it is for encode() and buffers, on its own; name a codec"
        )
    if stage.name not in _targets():
        found = f"no codec is named {stage.name!r} (in spec {spec!r})"
        raise SpecError(among(found, _targets(), _meant(stage.name)))
    return _kind(stage.name)


def _kind(name: str) -> type[Codec] | type[Filter]:
    """The class of a known name."""
    module, _, attribute = (target := _targets()[name]).partition(":")
    kind = getattr(import_module(module), attribute)
    if not (isinstance(kind, type) and issubclass(kind, (Codec, Filter))):
        raise SpecError(f"codec {name!r} is {target}, which is neither a Codec nor a Filter")
    return kind


def _meant(name: str) -> str | None:
    """What an unknown name may stand for, such as ``zstd:3`` for ``zstd3``."""
    for known in _targets():
        level = name.removeprefix(known)
        if level != name and level.isdecimal() and _kind(known).levels is not None:
            return f"{known}:{level}"
    return closest(name, _targets())


def _build(stages: list[_Loaded], layout: Layout) -> Codec:
    """The codec of the last ``stages`` of a spec."""
    (first, kind), *rest = stages
    chain = kind.from_args(layout, first.args)
    if isinstance(chain, Filter):
        return FilteredCodec(layout, filter=chain, inner=_build(rest, chain.target))
    for stage, tail in rest:
        of_bytes = tail.from_args(Layout((chain.bound(),), "uint8"), stage.args)
        assert isinstance(of_bytes, BytesCodec)
        chain = TailedCodec(layout, inner=chain, tail=of_bytes)
    return chain


def codec_from_config(config: Mapping[str, object]) -> Codec:
    """The codec that ``Codec.config`` describes, with its dictionary.

    Raises:
        SpecError: the config has no spec that can be built, or no such dictionary.
        LayoutError: the config has no layout that can be built.
    """
    check_kind("a codec config", config, Mapping, "a mapping, such as Codec.config() gives")
    layout = config.get("layout")
    if not isinstance(layout, Mapping):
        raise LayoutError(f"a codec config has a layout, got {layout!r}")
    spec, dictionary = config.get("spec"), config.get("dictionary", "")
    if not isinstance(spec, str):
        raise SpecError(f"a codec config has a spec, got {spec!r}")
    try:
        trained = base64.b64decode(str(dictionary), validate=True)
    except ValueError as error:
        raise SpecError(f"the dictionary of a codec config is base64 text, got {dictionary!r}: {error}") from None
    return new_codec(spec, Layout.from_config(layout)).with_dictionary(trained)
