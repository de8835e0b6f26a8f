"""The docstrings of the packages as Markdown, for the site."""

import re

import griffe


class Docstrings(griffe.Extension):
    """Reads a section of doctests, and the roles of Sphinx."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Change what griffe does not know into what it knows."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = re.sub(r":[a-z]+:`~?([^`]+)`", r"`\1`", text)
