"""The pages of the API have all public names, and of classes what the pages list: a file hides a function, for one."""

import ast
import logging
import re
from pathlib import Path

from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^::: (\S+)\n(?: +members: \[([^]]*)\]\n| .*\n)*", re.MULTILINE)


def on_page_content(html: str, page: Page, **_: object) -> None:
    """Warn about names in ``__all__`` of a package that its page lacks, and about other members than it lists."""
    match = re.fullmatch(r"api/(\w+)\.md", page.file.src_uri)
    if match is None:
        return
    log = logging.getLogger("mkdocs")
    (init,) = ROOT.glob(f"packages/*/src/{match[1]}/__init__.py")
    for statement in ast.parse(init.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            for name in ast.literal_eval(statement.value):
                if not re.search(rf'<h3 id="{match[1]}\.([\w.]+\.)?{name}"', html):
                    log.warning("%s lacks %s", page.file.src_uri, name)
    listed = [f"{of}.{name}" for of, names in BLOCK.findall(str(page.markdown)) for name in re.findall(r"\w+", names)]
    shown = re.findall(r'<h4 id="([^"]+)"', html)
    if shown != listed:
        log.warning("%s shows %s of classes, and lists %s", page.file.src_uri, shown, listed)
