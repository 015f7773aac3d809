"""Links to files of the repository beside docs/ lead to GitHub; a missing file is a warning."""

import os
import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util import logging

FILES = "https://github.com/pyclgemm/pyclgemm/blob/main/"
#: A link, and not an image, to a relative path.
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#:\s]+)(#[^)\s]*)?\)")

logger = logging.getLogger(__name__)


def to_github(text: str, folder: Path, docs: Path) -> str:
    """Replace relative links of a page in `folder`: out of `docs`, and within it from its root.

    A page of another folder may be included, where relative links would lead elsewhere.
    """

    def replaced(link: re.Match[str]) -> str:
        words, path, fragment = link.groups()
        target = Path(os.path.normpath(folder / path))
        if target.is_relative_to(docs):
            return f"[{words}](/{target.relative_to(docs).as_posix()}{fragment or ''})"
        if not target.exists():
            logger.warning("%s links to %s, which does not exist", folder, path, type="repository")
        return f"[{words}]({FILES}{target.relative_to(docs.parent).as_posix()}{fragment or ''})"

    return _LINK.sub(replaced, text)


def _page(app: Sphinx, name: str, source: list[str]) -> None:
    path = Path(app.env.doc2path(name))
    if path.suffix == ".md":
        source[0] = to_github(source[0], path.parent, Path(app.srcdir))


def _included(app: Sphinx, path: Path, parent: str, source: list[str]) -> None:
    source[0] = to_github(source[0], (Path(app.srcdir) / path).resolve().parent, Path(app.srcdir))


def setup(app: Sphinx) -> dict[str, bool]:
    """Change pages as they are read."""
    app.connect("source-read", _page)
    app.connect("include-read", _included)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
