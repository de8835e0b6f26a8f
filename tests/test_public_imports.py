"""Adapters are built on the public names of the core, so that everything they do is open to anybody."""

import ast
from collections.abc import Iterator
from pathlib import Path

import obscodec
import pytest

SOURCES = sorted(Path(__file__).parents[1].glob("packages/*/src/obscodec_*/**/*.py"))


def private_imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("obscodec."))
        elif isinstance(node, ast.ImportFrom) and node.module == "obscodec":
            yield from (f"obscodec.{alias.name}" for alias in node.names if alias.name not in obscodec.__all__)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("obscodec."):
            yield str(node.module)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "obscodec":
            yield from () if node.attr in obscodec.__all__ else (f"obscodec.{node.attr}",)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_adapters_import_only_public_names(path: Path) -> None:
    assert list(private_imports(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from obscodec import codec, Layout", []),
        ("import obscodec; obscodec.codecs.codec", []),
        ("import obscodec.codecs.codec", ["obscodec.codecs.codec"]),
        ("from obscodec.codecs.codec import Codec", ["obscodec.codecs.codec"]),
        ("from obscodec import chain", ["obscodec.codecs.chain"]),
        ("import obscodec; obscodec.registry.Entry", ["obscodec.codecs.registry"]),
    ],
)
def test_private_imports_are_found(source: str, found: list[str]) -> None:
    assert list(private_imports(source)) == found
