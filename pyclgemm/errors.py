"""The exceptions of pyclgemm, and the safe display of outside text in messages.

All derive from `PyclgemmError`, and each from the built-in exception that a caller would expect,
such as ``ValueError`` for a bad shape.
"""

from collections.abc import Collection


class PyclgemmError(Exception):
    """Base of every error that pyclgemm raises on purpose.

    Examples
    --------
    >>> import numpy as np
    >>> try:
    ...     gemm(queue, np.ones((2, 3)), np.ones((4, 5)))
    ... except PyclgemmError as error:
    ...     print(type(error).__name__)
    ShapeError
    """


class ArgumentError(PyclgemmError, ValueError):
    """An argument has a value that cannot be used, or arguments contradict each other."""


class ShapeError(ArgumentError):
    """The shapes, strides or sizes of the operands do not fit together."""


class DtypeError(PyclgemmError, TypeError):
    """An argument has an unsupported type or element type."""


class UnsupportedError(PyclgemmError, NotImplementedError):
    """The request is valid, but this device (or this version) cannot run it."""


class ConfigError(PyclgemmError, ValueError):
    """A kernel configuration breaks a constraint of its family or of the device."""


class LaunchError(ConfigError, RuntimeError):
    """The device refused to launch a kernel that needs more resources than it has."""


class AllocationError(MemoryError, PyclgemmError):
    """The device has no memory for an array or for the library's scratch space."""


class DatabaseError(PyclgemmError, ValueError):
    """A database file is malformed or has an invalid configuration."""


class DatabaseWarning(UserWarning):
    """A record of a database file cannot be used and is ignored."""


class KernelBuildError(PyclgemmError, RuntimeError):
    """The device's compiler refused a generated kernel.

    Attributes
    ----------
    log : str
        The compiler's own output.
    source : str
        The OpenCL C source.
    """

    def __init__(self, message: str, *, log: str = "", source: str = "") -> None:
        super().__init__(f"{message}\n{log}".rstrip())
        self.log = log
        self.source = source


def shown(value: object, most: int = 60) -> str:
    """The ``repr`` of a value for a message, cut to `most` characters; it never raises."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # too many digits, or too deep a nesting
        return f"a value of type {type(value).__name__} that is too long to show"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def described(value: object) -> str:
    """What a value is, in words, without its content."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    return f"a {type(value).__name__}"


def wrong_type(name: str, value: object, wanted: str) -> DtypeError:
    """The error for an argument of another type than the wanted one."""
    return DtypeError(f"{name} is {described(value)}; {wanted} is wanted")


def check_name(argument: str, value: object, known: Collection[str], kind: str) -> None:
    """Raise `ArgumentError` unless a value is one of the known names, such as "algorithms"."""
    if not (isinstance(value, str) and value in known):
        raise ArgumentError(f"{argument} is {shown(value)}; {known_names(value, known, kind)}")


def known_names(value: object, known: Collection[str], kind: str) -> str:
    """The end of a message about an unknown name: the known ones, and the most similar."""
    listed = f"known {kind} are {', '.join(known)}"
    if not isinstance(value, str):
        return listed
    import difflib  # errors are rare

    names = {name.lower(): name for name in known}
    similar = difflib.get_close_matches(value[:60].lower(), names, n=1, cutoff=_SIMILAR)
    return f"{listed}; did you mean {names[similar[0]]!r}?" if similar else listed


#: How similar names are for a suggestion: "tf32" is to "TF32_TF32_F32", "softmax" is not to "tanh".
_SIMILAR = 0.42


class FileError(PyclgemmError, OSError):
    """A file of the user's cannot be written or read.

    Attributes
    ----------
    errno : int or None
        The system's error number, as in any `OSError`.
    filename : str or None
        The file.
    """

    def __str__(self) -> str:
        return str(self.strerror)


def printable(text: str, *, lines: bool = False) -> str:
    """Escape control characters in a text from outside; `lines` keeps line breaks.

    Escape sequences, or marks of writing direction, in the name of a device could forge output.
    """
    if text.isprintable():  # nearly always, and quickly told
        return text
    return "".join(
        one
        if one.isprintable() or (lines and one == "\n")
        else one.encode("unicode_escape").decode("ascii")
        for one in text
    )
