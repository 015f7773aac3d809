"""A record of a database file as JSON has it: read with every value checked, and written."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, NoReturn, cast

from ..errors import ConfigError, DatabaseError, shown
from ..families.registry import FAMILIES, config_from_dict, violations
from ..problem.bounds import (
    ALIGNMENTS,
    BATCHES,
    FASTEST,
    SIZES,
    SLOWEST,
    Allowed,
    is_integer,
    wanted,
)
from ..problem.shape import LAYOUTS, Layout
from .records import Record

_REQUIRED = ("path", "shape", "config")
_OPTIONAL = ("layout", "alignment", "batch", "gflops")


def read_record(document: Any, dtype: str, place: str) -> Record:
    """Make a record of what a file says.

    Parameters
    ----------
    document : object
        What stands in the file.
    dtype : str
        NumPy name of the element type, for which its configuration must be valid.
    place : str
        The file, and where in it, for the message.

    Raises
    ------
    DatabaseError
        If it is no record, a value is out of bounds, or the configuration breaks a constraint.

    Examples
    --------
    >>> config = {"MR": 6, "NR": 64, "KC": 128, "VW": 16}
    >>> print(read_record({"path": "cpu", "shape": [8, 9, 7], "config": config}, "float32", "it"))
    8x9x7
    """
    if not isinstance(document, dict):
        raise DatabaseError(f"{place} is {shown(document)}: an object is wanted")
    for name in document:
        if name not in _REQUIRED and name not in _OPTIONAL:
            raise DatabaseError(
                f"{place} has {shown(name)}: known are {', '.join((*_REQUIRED, *_OPTIONAL))}"
            )
    for name in _REQUIRED:
        if name not in document:
            raise DatabaseError(f"{place} lacks {name!r}, which is required")
    path, shape, parameters = (document[name] for name in _REQUIRED)
    if not isinstance(path, str) or path not in FAMILIES:
        _refuse(f"{place}.path", path, f"one of {', '.join(FAMILIES)}")
    if (
        not isinstance(shape, list)
        or len(shape) != 3
        or not all(is_integer(size, SIZES) for size in shape)
    ):
        _refuse(f"{place}.shape", shape, f"a list of m, n and k, each {wanted(SIZES)},")
    layout = document.get("layout", "NN")
    if layout not in LAYOUTS:
        _refuse(f"{place}.layout", layout, f"one of {', '.join(LAYOUTS)}")
    gflops = document.get("gflops")
    if "gflops" in document and not _is_speed(gflops):
        _refuse(f"{place}.gflops", gflops, f"a number of {SLOWEST:g} to {FASTEST:g}")
    m, n, k = shape
    return Record(
        (m, n, k),
        _config(path, parameters, dtype, f"{place}.config"),
        gflops,
        cast(Layout, layout),
        _integer(document, "alignment", ALIGNMENTS, place),
        _integer(document, "batch", BATCHES, place),
    )


def _refuse(place: str, value: object, what: str) -> NoReturn:
    raise DatabaseError(f"{place} is {shown(value)}: {what} is wanted")


def _is_speed(value: object) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and SLOWEST <= cast(float, value) <= FASTEST


def _integer(document: dict[str, Any], name: str, allowed: Allowed, place: str) -> int | None:
    if name not in document:
        return None
    value = document[name]
    if not is_integer(value, allowed):
        _refuse(f"{place}.{name}", value, f"{wanted(allowed)}")
    return cast(int, value)


def _config(path: str, parameters: Any, dtype: str, place: str) -> Any:
    if not isinstance(parameters, dict):
        _refuse(place, parameters, "an object with parameters by name")
    try:
        config = config_from_dict(path, parameters)
    except ConfigError as error:
        raise DatabaseError(f"{place}: {error}") from None
    if broken := violations(config, dtype):
        raise DatabaseError(f"{place} is {config}: {'; '.join(broken)}")
    return config


def record_document(record: Record) -> dict[str, Any]:
    """What a file says of a record; what is as usual is left out."""
    document = {
        "path": record.config.family,
        "shape": list(record.shape),
        "layout": None if record.layout == "NN" else record.layout,
        "alignment": record.alignment,
        "batch": record.batch,
        "gflops": record.gflops,
        "config": record.config.as_dict(),
    }
    return {name: value for name, value in document.items() if value is not None}


# --------------------------------------------------------------------------------------
# The schema
# --------------------------------------------------------------------------------------


def parameter_schemas() -> dict[str, Any]:
    """What ``databases/schema.json`` says of the parameters of each path."""
    return {
        name: {
            "type": "object",
            "required": [
                field.name for field in fields(family.config_class) if field.default is MISSING
            ],
            "additionalProperties": False,
            "properties": {
                field.name: integer_schema(family.bounds[field.name])
                for field in fields(family.config_class)
            },
        }
        for name, family in FAMILIES.items()
    }


def integer_schema(allowed: Allowed) -> dict[str, Any]:
    """The values in the words of JSON Schema."""
    if isinstance(allowed, range):
        return {"type": "integer", "minimum": allowed[0], "maximum": allowed[-1]}
    return {"enum": list(allowed)}
