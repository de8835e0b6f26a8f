"""The pages of the API have all public names: a submodule of the same name, for one, hides a function."""

import ast
import logging
import re
from pathlib import Path

from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]


def on_page_content(html: str, page: Page, **_: object) -> None:
    """Warn about names in ``__all__`` of a package that its page lacks."""
    match = re.fullmatch(r"api/(\w+)\.md", page.file.src_uri)
    if match is None:
        return
    (init,) = ROOT.glob(f"packages/*/src/{match[1]}/__init__.py")
    for statement in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            for name in ast.literal_eval(statement.value):
                if not re.search(rf'<h2 id="{match[1]}\.([\w.]+\.)?{name}"', html):
                    logging.getLogger("mkdocs").warning("%s lacks %s", page.file.src_uri, name)
