"""Report: the findings of the doctor, as a table and as JSON."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from obscodec.buffers import fit
from obscodec.cli.doctor.paste import lines_to_paste
from obscodec.cli.doctor.played import Played
from obscodec.cli.doctor.trials import MILLION, FieldReport
from obscodec.runtime import free_memory
from obscodec.stats import in_units

COLUMNS = "codec", "block", "ratio", "GB per\nmillion", "µs to\nencode", "µs to\ndecode", "exact"
TABLE_OF_COSTS = (
    "A fixed table, measured on games and textured images, says which codecs count as fast, so that the same data "
    "always lead to the same codec. The times above are those of this machine."
)
_HARDLY = 1.2  # times smaller


@dataclass(frozen=True)
class Report:
    """All that the doctor found out about a source.

    Attributes:
        remarks: what else to know: what was taken for granted or left out, and how codecs are chosen, in sentences.
        has_episodes: whether the source has episodes, one after the other.
        played: the environments that were played in, None for other sources.
    """

    source: str
    fields: tuple[FieldReport, ...]
    remarks: tuple[str, ...] = ()
    has_episodes: bool = False
    played: Played | None = None

    @property
    def pastes(self) -> dict[str, str]:
        """The lines to paste, by their purpose."""
        return lines_to_paste(self.fields, has_episodes=self.has_episodes, played=self.played)

    @property
    def is_lossless(self) -> bool:
        """Whether every field came back bit for bit, with every codec."""
        return all(field.is_lossless for field in self.fields)

    @property
    def step_bytes(self) -> float:
        """Memory for each transition, as recommended."""
        return sum(field.item_bytes for field in self.fields)

    @property
    def bounds(self) -> tuple[float, float]:
        """The same by the parts of the items that take least and most."""
        least, most = zip(*(field.bounds for field in self.fields), strict=True)
        return sum(least), sum(most)

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "source": self.source,
            "is_lossless": self.is_lossless,
            "bytes_per_step": self.step_bytes,
            "least_bytes_per_step": self.bounds[0],
            "most_bytes_per_step": self.bounds[1],
            "free_bytes": free_memory(),
            "fields": [_field_as_json(field) for field in self.fields],
            "paste": self.pastes,
            "remarks": list(self.remarks),
        }

    def print(self, out: Console) -> None:
        """Print a table for each field that was compressed, and a line for each of the others."""
        say = partial(out.print, soft_wrap=True, highlight=False)
        measured = [field for field in self.fields if field.measured]
        for field in measured:
            what = f"{field.name}: {field.n:,} items {field.layout}, {field.layout.nbytes:,} bytes each"
            say(f"[italic]{escape(what)}[/]")
            out.print(_table(field))
            say(f"Recommended: [bold]{escape(field.recommended or 'none')}[/], {escape(why(field))}")
            for line in notes(field):
                say(escape(line))
            out.print()
        if plain := [field for field in self.fields if not field.measured]:
            listed = ", ".join(f"{field.name} {field.layout}" for field in plain)
            say(f"Plain arrays: {escape(listed)}; {escape(plain[0].reason)}.")
        for line in self.remarks:  # before what is pasted: something may have been taken for what it is not
            say(escape(line))
        for library, lines in self.pastes.items():
            say(f"\nPaste for {library}:\n\n{escape(lines)}\n")
        names = ", ".join(field.name for field in measured)
        others = f"{', '.join(field.name for field in plain)} and " if plain else ""
        shared = f"; this includes {others}the next observations of {names}, which share the frames" if names else ""
        least, most = (MILLION * of for of in self.bounds)
        between = f", {in_units(least)} to {in_units(most)} by parts of the data"
        between = between if in_units(least) != in_units(most) else ""
        say(escape(f"A million transitions take {in_units(MILLION * self.step_bytes)}{between}{shared}."))
        if said := fit(least, most, free_memory()):
            say(f"{said}.")


def gb_per_million(item_bytes: float) -> float:
    """GB for a million items."""
    return item_bytes * MILLION / 1e9


def _field_as_json(field: FieldReport) -> dict[str, object]:
    codecs = [
        {
            **asdict(of),
            "gb_per_million": gb_per_million(of.item_bytes),
            "is_lossless": of.decoded_sha256 == field.raw_sha256,
        }
        for of in field.measured
    ]
    return {
        "name": field.name,
        "shape": list(field.layout.shape),
        "dtype": str(field.layout.dtype),
        "nbytes": field.layout.nbytes,
        "n_items": field.n,
        "raw_sha256": field.raw_sha256,
        "recommended": field.recommended,
        "reason": field.reason,
        "frame_stack": field.frame_stack.config() if field.frame_stack else None,
        "stored_as": field.stored_as,
        "codecs": codecs,
    }


def compact_table(*columns: str, right: tuple[str, ...]) -> Table:
    """A table that fits into 60 characters: no lines but one stand between its columns."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _table(field: FieldReport) -> Table:
    table = compact_table(*COLUMNS, right=COLUMNS[1:])
    table.columns[0].no_wrap = True
    for of in sorted(field.measured, key=lambda of: of.item_bytes):
        table.add_row(
            escape(of.spec),
            str(of.block_frames),
            f"{of.ratio:,.1f}",
            f"{gb_per_million(of.item_bytes):,.3f}",
            f"{of.encode_us:,.1f}",
            f"{of.decode_us:,.1f}",
            "yes" if of.decoded_sha256 == field.raw_sha256 else "NO",
            style="bold green" if of == field.chosen else None,
        )
    return table


def why(field: FieldReport) -> str:
    """Why a codec is recommended, and what it takes."""
    takes = f"transition takes {field.item_bytes:,.0f} bytes, its next observation included"
    n = field.chosen.block_frames if field.chosen else 1
    blocks = f"In blocks of {n} frames, a" if n > 1 else "A"
    return f"{field.reason}. {blocks} {takes}; the ratio is one uncompressed observation to these bytes."


def notes(field: FieldReport) -> Iterator[str]:
    """What else is to be said of a field, in lines."""
    if field.frame_stack and field.frame_stack.depth == 1:
        yield f"Items are images of {field.layout.shape[-1]} channels, which are stored as planes."
    elif field.frame_stack:
        yield f"Items are stacks of {field.frame_stack.depth} frames; each frame is stored once."
    if field.stored_as:
        yield f"The numbers are few: each is stored as {field.stored_as}, and computed from that bit for bit."
    if not field.can_name_codec:
        yield (
            f"{field.recommended} takes no {field.layout.dtype}, so a field can't name it: its codec is 'auto', which "
            f"finds out that the numbers fit into {field.stored_as}, and then takes {field.recommended}."
        )
    if field.chosen and field.chosen.ratio < _HARDLY:
        yield "This hardly shrinks: it is noise, a textured camera image, or a vector."
    what = "equals that of all items read back, with every codec" if field.is_lossless else "DIFFERS from what was read"
    yield f"SHA-256 of the raw items {field.raw_sha256[:16]}… {what}."
