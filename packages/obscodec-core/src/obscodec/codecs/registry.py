"""The registry: the classes behind the names in a spec, built-in or from an entry point."""

import base64
import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import dropwhile
from typing import TypeAlias

from obscodec.arguments import among, check_kind, closest
from obscodec.codecs.auto import AUTO
from obscodec.codecs.bytes_codec import BytesCodec
from obscodec.codecs.chain import FilteredCodec, TailedCodec
from obscodec.codecs.codec import Codec
from obscodec.codecs.spec import StageSpec, parse
from obscodec.codecs.stage import Filter
from obscodec.errors import LayoutError, MissingPackage, SpecError
from obscodec.installing import install_command
from obscodec.layout import Layout

ENTRY_POINT_GROUP = "obscodec.codecs"

_ANY = Layout((), "uint8")  # which each codec of bytes takes
_Loaded: TypeAlias = "tuple[StageSpec, type[Codec] | type[Filter]]"


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a stage comes from.

    Attributes:
        target: ``module:class``.
        package: the module that it needs to import, empty for none.
        install: the argument of ``pip install`` that brings this module.
    """

    target: str
    package: str = ""
    install: str = ""

    @property
    def ready(self) -> bool:
        """Whether the needed package is installed. Imports nothing."""
        return not self.package or importlib.util.find_spec(self.package) is not None

    def load(self, name: str) -> type[Codec] | type[Filter]:
        """The class; MissingPackage if the package that it needs is not installed."""
        if not self.ready:
            raise MissingPackage(
                f"codec {name!r} needs the package {self.package!r}, which is not installed: "
                f"{install_command(self.install)}"
            )
        module, _, attribute = self.target.partition(":")
        stage = getattr(importlib.import_module(module), attribute)
        if not (isinstance(stage, type) and issubclass(stage, (Codec, Filter))):
            raise SpecError(f"codec {name!r} is {self.target}, which is neither a Codec nor a Filter")
        return stage


_BUILT_IN = {
    "bitpack": Entry("obscodec.codecs.formats.bitpack:BitPack"),
    "delta": Entry("obscodec.codecs.formats.delta:Delta"),
    "delta-rle": Entry("obscodec.codecs.formats.delta_rle:DeltaRle", "numba", "numba"),
    "lorenzo": Entry("obscodec.codecs.formats.lorenzo:Lorenzo"),
    "lz4": Entry("obscodec.codecs.formats.lz4:Lz4", "lz4", "lz4"),
    "palette": Entry("obscodec.codecs.formats.images.palette.palette:Palette", "numba", "numba"),
    "pred": Entry("obscodec.codecs.formats.images.pred.pred:Pred", "numba", "numba"),
    "raw": Entry("obscodec.codecs.formats.raw:Raw"),
    "rle": Entry("obscodec.codecs.formats.rle:Rle", "numba", "numba"),
    "shuffle": Entry("obscodec.codecs.formats.shuffle:Shuffle"),
    "zstd": Entry("obscodec.codecs.formats.zstd:Zstd", "zstandard", "zstandard"),
}


@cache
def _entries() -> Mapping[str, Entry]:
    """Every known name. An entry point can't replace a built-in one."""
    from importlib.metadata import entry_points  # takes as long to load as all of this package

    third_party = {e.name: Entry(e.value.replace(" ", "")) for e in entry_points(group=ENTRY_POINT_GROUP)}
    return dict(sorted({**third_party, **_BUILT_IN}.items()))


def available() -> dict[str, str]:
    """Every codec and filter that a spec can name: ``"ready"``, or the command that installs the missing package.

    Example:
        >>> available()["raw"]
        'ready'
    """
    return {name: "ready" if e.ready else install_command(e.install) for name, e in _entries().items()}


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
    entry = _entries().get(stage.name)
    if stage.name == AUTO:
        raise SpecError(
            f"{AUTO!r} (in spec {spec!r}) looks at data: it is for encode() and buffers, on its own; name a codec"
        )
    if entry is None:
        found = f"no codec is named {stage.name!r} (in spec {spec!r})"
        raise SpecError(among(found, _entries(), _meant(stage.name)))
    return entry.load(stage.name)


def _meant(name: str) -> str | None:
    """What an unknown name may stand for, such as ``zstd:3`` for ``zstd3``."""
    for known, entry in _entries().items():
        level = name.removeprefix(known)
        if level != name and level.isdecimal() and entry.ready and entry.load(known).levels is not None:
            return f"{known}:{level}"
    return closest(name, _entries())


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
