"""Find the library's version, kernel templates and databases.

An installed wheel has the folders inside `pyclgemm`. A source tree has them beside it, and
setup.cfg maps them into the package. `importlib.resources` does not find them in a bare checkout
nor in every kind of editable install, so this module uses plain paths.
"""

import functools
import importlib.metadata
import re
from pathlib import Path
from typing import Any

from .errors import PyclgemmError

_PACKAGE = Path(__file__).resolve().parent


def library_version() -> str:
    """The installed version; of a source tree the last release that it knows, with "+source"."""
    try:
        return importlib.metadata.version("pyclgemm")
    except importlib.metadata.PackageNotFoundError:
        settings = _PACKAGE.parent / "pyproject.toml"
        text = settings.read_text(encoding="utf-8") if settings.is_file() else ""
        stated = re.search(r'^fallback_version = "(.+)"$', text, re.MULTILINE)
        return f"{stated[1] if stated else 0}+source"


def resource_folder(name: str) -> Path:
    """Find the folder "kernels_cl" or "databases" in the package or in a source tree."""
    candidates = [_PACKAGE / name]
    if (_PACKAGE.parent / "setup.cfg").is_file():
        candidates.append(_PACKAGE.parent / name)
    for folder in candidates:
        if folder.is_dir():
            return folder
    places = " nor ".join(str(folder) for folder in candidates)
    raise PyclgemmError(
        f"the folder {name!r} of pyclgemm is missing: there is no {places}; "
        "the installation is incomplete, install pyclgemm again"
    )


@functools.lru_cache(maxsize=1)
def _templates() -> Any:
    from mako.lookup import TemplateLookup

    return TemplateLookup(directories=[str(resource_folder("kernels_cl"))], strict_undefined=True)


def filled(template: str, **context: Any) -> str:
    """Render a template of ``kernels_cl/``."""
    try:
        return str(_templates().get_template(template).render_unicode(**context))
    except IndexError as error:
        # If a signal handler raises within Mako, Mako's clean-up may fail and hide the exception.
        if error.__context__ is None:
            raise
        raise error.__context__ from None


def names_file(text: str) -> bool:
    """Whether a text is the path of a file; one that is too long for a path is not."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False
