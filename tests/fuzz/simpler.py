"""Simpler cases of products: smaller sizes, plain layouts, numbers and types."""

from collections.abc import Iterator
from typing import Any

from pyclgemm.families.registry import FAMILIES

from .campaign import Case

_PLAIN_LAYOUT = {"order": "row", "alignment": 1, "flip_rows": False, "flip_columns": False}


def smaller_sizes(case: Case, names: tuple[str, ...]) -> Iterator[Case]:
    """One size smaller: 1, half, less one."""
    for name in names:
        size = case[name]
        for less in (1, size // 2, size - 1):
            if 0 < less < size:
                yield case | {name: less}


def simpler_products(case: Case) -> Iterator[Case]:
    """Cases simpler in one respect, those that leave most out first."""
    changes: list[dict[str, Any]] = [
        {"queue": []}, {"entry": "gemm", "batch": 1}, {"buffers": 1}, {"activation": None},
        {"bias": 0}, {"c": None, "beta": 0.0}, {"alpha": 1.0},
        {"beta": 1.0} if case["c"] is not None else {}, {"values": "integers"},
        {"values": "uniform"}, {"gaps": [0, 0, 0, 0]}, {"precision": None},
        {"result": case["dtype"]} if case["dtype"] != "int8" else {}, {"config": None},
    ]  # fmt: skip
    for name in ("a", "b", "out", "c"):
        if isinstance(case[name], dict):
            plain = _PLAIN_LAYOUT | {"trans": "N", "stack": "packed"}
            parts = [plain, _PLAIN_LAYOUT, *({key: value} for key, value in plain.items())]
            changes += [{name: case[name] | part} for part in parts]
    numbers = (case["alpha"], case["beta"])
    is_complex = case["dtype"] in ("complex64", "complex128")
    if is_complex and not any(isinstance(one, list) for one in numbers):
        changes.append({"dtype": "float32", "result": "float32"})
    if case["dtype"] != "float32" and case["dtype"] == case["result"]:
        changes.append({"dtype": "float32", "result": "float32", "precision": None})
    for change in changes:
        if any(case[key] != value for key, value in change.items()):
            yield case | change
    yield from smaller_sizes(case, ("batch", "m", "n", "k"))
    if case["config"] is not None:
        for parameters in _simpler_configs(case["config"]):
            yield case | {"config": parameters}


def _simpler_configs(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A parameter at its default, or halved."""
    cls = FAMILIES[config["path"]].config_class
    for name, value in config.items():
        if name == "path":
            continue
        default = getattr(cls, name, None)
        if isinstance(default, int) and value != default:
            yield config | {name: default}
        elif default is None and isinstance(value, int) and value > 1:
            yield config | {name: 1}
            yield config | {name: value // 2}
