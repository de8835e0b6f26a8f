"""What mkdocs doesn't do itself: pages from outside of `docs`, and links that GitHub and the site both understand."""

import logging
import re
from os.path import relpath
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BLOB = "https://github.com/obscodec/obscodec/blob/main/"
LINK_OR_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]+`|(?<=\]\()(?P<target>[^)\s#]+)", re.MULTILINE | re.DOTALL)
PAGES = {
    "start/stable-baselines3.md": "packages/obscodec-sb3/README.md",
    "start/torchrl.md": "packages/obscodec-torchrl/README.md",
    "start/rllib.md": "packages/obscodec-rllib/README.md",
    "gpu.md": "packages/obscodec-cupy/README.md",
    "extending.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
}


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add PAGES, and the tables and plots of the benchmarks."""
    results = [path for path in ROOT.glob("benchmarks/results/**/*") if path.suffix in (".md", ".svg")]
    for uri, source in {**PAGES, **{path.relative_to(ROOT).as_posix(): path for path in results}}.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point each link to a file of the repository at its page, or at the repository if it has none."""
    source = Path(str(page.file.abs_src_path))
    uris = {Path(str(file.abs_src_path)): file.src_uri for file in files}

    def link(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None or (":" in target and not target.startswith(BLOB)):
            return match[0]
        path = (ROOT / target.removeprefix(BLOB) if target.startswith(BLOB) else source.parent / target).resolve()
        if not path.exists():
            logging.getLogger("mkdocs").warning("%s links to %s, which does not exist", source, target)
        uri = uris.get(path) or uris.get(path / "README.md")
        return relpath(uri, Path(page.file.src_uri).parent) if uri else BLOB + path.relative_to(ROOT).as_posix()

    return LINK_OR_CODE.sub(link, markdown)
