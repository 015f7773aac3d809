"""Matrix products for every OpenCL device: generated kernels, chosen by predicted time.

An import of the package makes no OpenCL call and imports little. Each public name is imported when
it is first used, from the module that `__init__.pyi` names.
"""

from typing import Any

import lazy_loader

from .host import process as _process  # noqa: F401 - its exit handler comes first
from .host.runtimes import make_room_for_pocl, register_runtimes

# The first OpenCL call of a process fixes its runtimes. These calls set variables for it.
make_room_for_pocl()
register_runtimes()

_public, _, __all__ = lazy_loader.attach_stub(__name__, __file__)
__all__ += ["__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name or a room, or find the version."""
    if name in __all__:
        value: Any = _version() if name == "__version__" else _public(name)
        return value
    from importlib import import_module, util

    if name.startswith("_") or util.find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")


def _version() -> str:
    from .resources import library_version

    return library_version()


def __dir__() -> list[str]:
    """All names, whether they have been imported or not."""
    return sorted({*globals(), *__all__})
