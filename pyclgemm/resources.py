"""Find what ships with the library: its version, kernel templates and databases.

In an installed wheel the folders are packages inside `pyclgemm`. In a source tree they stand beside
it, and setup.cfg maps them into the package. `importlib.resources` finds them neither in a bare
checkout nor in every kind of editable install, so this module uses plain paths.
"""

from __future__ import annotations

import functools
import importlib.metadata
from pathlib import Path
from typing import Any

from mako.lookup import TemplateLookup

from .errors import PyclgemmError

_PACKAGE = Path(__file__).resolve().parent


def library_version() -> str:
    """The version that is installed, if any is."""
    try:
        return importlib.metadata.version("pyclgemm")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"


def resource_folder(name: str) -> Path:
    """Find a folder that ships with the library, "kernels_cl" or "databases".

    It is inside the installed package or, in a source tree (known by its setup.cfg), beside it.
    """
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
def _templates() -> TemplateLookup:
    return TemplateLookup(directories=[str(resource_folder("kernels_cl"))], strict_undefined=True)


def filled(template: str, **context: Any) -> str:
    """The text of a template of ``kernels_cl/``."""
    try:
        return str(_templates().get_template(template).render_unicode(**context))
    except IndexError as error:
        # Where a signal handler raises within Mako, its clean-up may fail and hide that.
        if error.__context__ is None:
            raise
        raise error.__context__ from None


def names_file(text: str) -> bool:
    """Whether `text` is the path of a file; a text too long for a path is none."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False
