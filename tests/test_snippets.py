"""The Python blocks of the documents run, from top to bottom."""

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

pytestmark = pytest.mark.in_background  # as for whoever pastes them
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


CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.mark.slow
def test_the_codec_of_the_documents_keeps_the_contract(tmp_path: Path) -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    codec, contract = (dedent(block) for block in re.findall(r"^ *```python\n(.*?)^ *```", text, re.M | re.S))
    installed = tmp_path / "my_package-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[obscodec.codecs]\nbzip2 = my_package:Bzip2\n")
    (tmp_path / "my_package.py").write_text(codec)
    (tmp_path / "test_bzip2.py").write_text(contract)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", tmp_path, tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert re.search(r"= \d+ passed in", done.stdout)
