"""The page that ``obscodec doctor --html`` writes: one file, without scripts, that loads nothing."""

from collections.abc import Mapping
from html import escape

from obscodec.cli.doctor.plots import frame_and_patch, memory_against_latency, size_over_time
from obscodec.cli.doctor.report import COLUMNS, Report, cells, gb_per_million, notes, title, why
from obscodec.cli.doctor.sources import Array
from obscodec.cli.doctor.trials import FieldReport

_CSS = """
:root { color-scheme: light dark; --text: #1d2430; --back: #fbfbfd; --card: #ffffff; --line: #dfe3ea; --soft: #5b6676;
  --good: #17744d; --bad: #b3261e; --mark: #e5f5ee; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e8ef; --back: #14171c; --card: #1c2027; --line: #343b46;
  --soft: #9aa6b8; --good: #6fd3a6; --bad: #ff8a80; --mark: #17352a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 68rem; color: var(--text); background: var(--back);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: .35rem 0; } .soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
section { margin-top: 1.5rem; padding: 1.25rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 10px; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(12rem, 1fr)); gap: .25rem 2rem;
  margin: 1rem 0 0; }
.facts p { overflow-wrap: anywhere; }
.facts b { display: block; font-size: 1.6rem; line-height: 1.3; }
.scroll { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { font-weight: 600; color: var(--soft); font-size: .875rem; }
th:first-child, td:first-child { text-align: left; }
tr.chosen { background: var(--mark); font-weight: 600; }
code { font: .9em ui-monospace, monospace; }
pre { margin: 1rem 0; padding: .75rem 1rem; border: 1px solid var(--line); border-radius: 8px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1.5rem; }
.plots svg { width: 100%; height: auto; } figure { margin: 0; } figcaption { color: var(--soft); font-size: .875rem; }
.frames { display: flex; gap: 1.5rem; flex-wrap: wrap; margin-top: 1.5rem; }
.frames img { width: 14rem; max-width: 100%; image-rendering: pixelated; border: 1px solid var(--line); }
"""


def page(report: Report, items: Mapping[str, Array]) -> str:
    """A page of HTML.

    Args:
        report: what the doctor found out.
        items: of each field, some of which are shown.
    """
    compressed = [field for field in report.fields if field.measured]
    plain = [field for field in report.fields if not field.measured]
    sections = [_section(field, items[field.name]) for field in compressed]
    raw = sum(field.layout.nbytes for field in report.fields)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(report.source)}: obscodec doctor</title>
<style>{_CSS}</style>
</head>
<body>
<h1>{escape(report.source)}</h1>
<p class="soft">obscodec doctor</p>
<div class="facts">
<p><b>{gb_per_million(report.step_bytes):.3g} GB</b>a million transitions{escape(report.shared)}</p>
<p><b>{gb_per_million(raw):.3g} GB</b>uncompressed{", without these next observations" if report.shared else ""}</p>
<p><b>{raw / report.step_bytes:.3g} times</b>smaller</p>
<p><b class="{"good" if report.is_lossless else "bad"}">{"lossless" if report.is_lossless else "CHANGED"}</b>{
        "every bit comes back" if report.is_lossless else "an item comes back changed"
    }</p>
</div>
{"".join(sections)}
{_plain(plain)}
{_pastes(report)}
{"".join(f'<p class="soft">{escape(remark)}</p>' for remark in report.remarks)}
</body>
</html>
"""


def _section(field: FieldReport, items: Array) -> str:
    lines = "".join(f"<p>{escape(line)}</p>" for line in notes(field))
    return f"""<section>
<h2>{escape(title(field))}</h2>
<div class="scroll">{_table(field)}</div>
<p>Recommended: <b>{escape(field.recommended or "")}</b>, {escape(why(field))}</p>
{lines}
<div class="plots">
<figure>{memory_against_latency(field)}
<figcaption>Memory against latency: the lower left is best, green is recommended.</figcaption></figure>
<figure>{size_over_time(field)}
<figcaption>Size over time, as recommended; the first items wait uncompressed.</figcaption></figure>
</div>
{_frames(field, items)}
</section>
"""


def _table(field: FieldReport) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in COLUMNS)
    rows = []
    for of in sorted(field.measured, key=lambda of: of.item_bytes):
        chosen = ' class="chosen"' if of == field.chosen else ""
        rows.append(f"<tr{chosen}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(field, of)) + "</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _pastes(report: Report) -> str:
    lines = "".join(f"<p>For {of}:</p><pre><code>{escape(lines)}</code></pre>" for of, lines in report.pastes.items())
    return f"<section><h2>Paste</h2>{lines}</section>"


def _frames(field: FieldReport, items: Array) -> str:
    shown = frame_and_patch(field, items)
    if shown is None:
        return ""
    frame, patch, part = shown
    return f"""<div class="frames">
<figure><img src="{frame}" alt="A frame"><figcaption>A frame</figcaption></figure>
<figure><img src="{patch}" alt="Its patch"><figcaption>Its patch: {part:.2%} of the bytes have changed</figcaption>
</figure>
</div>"""


def _plain(fields: list[FieldReport]) -> str:
    if not fields:
        return ""
    items = "".join(f"<li><code>{escape(of.name)}</code> {escape(str(of.layout))}</li>" for of in fields)
    return f"<section><h2>Plain arrays</h2><p class='soft'>{escape(fields[0].reason)}.</p><ul>{items}</ul></section>"
