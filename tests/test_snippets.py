"""The Python blocks of the documents run, from top to bottom."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^ *```python\n(?P<code>.*?)^ *```", re.MULTILINE | re.DOTALL)
DOCUMENTS = [
    path
    for path in [*ROOT.glob("*.md"), *ROOT.glob("packages/*/README.md"), *ROOT.glob("docs/**/*.md")]
    if BLOCK.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_of_a_document_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = path.read_text(encoding="utf-8")
    namespace = {"__name__": "snippet"}
    for block in BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start("code"))
        exec(compile("\n" * lines_before + dedent(block["code"]), path, "exec"), namespace)
