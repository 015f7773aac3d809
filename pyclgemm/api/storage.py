"""Files of layers: ``.npz`` and ``.safetensors``, by the suffix of the name.

A file has the arrays ``0.weight``, ``0.bias``, ``1.weight`` and so on, weights of shape (in, out),
and a JSON document under the name ``pyclgemm``: the version of this format, whether it is a
`DenseLayer` or a `Sequential`, the element type of each array, and the activation and precision of
each layer. ``.npz`` has no bfloat16, which it holds as uint16. Nothing in a file is a pickle.
"""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, FileError, UnsupportedError, printable, shown, wrong_type
from ..host.files import Purpose, parse_json, write_whole
from ..problem.precision import PrecisionName
from ..problem.problem import ActivationName
from .importers import optional

_KINDS = ("DenseLayer", "Sequential")

#: The version that is written, and the only one that is read.
_VERSION = 1

#: The name of the document in a file.
_DOCUMENT = "pyclgemm"

_PURPOSE = Purpose("the layers", "save them to another file")

#: The largest number of characters of a message from a package that reads files.
_MOST_CHARACTERS = 200

_Arrays: TypeAlias = dict[str, NDArray[Any]]


class StoredLayer(NamedTuple):
    """The parts of a `DenseLayer`, on the host."""

    weight: NDArray[Any]  # (in, out)
    bias: NDArray[Any] | None  # (out,)
    activation: ActivationName | None
    precision: PrecisionName | None


def write_layers(path: Any, kind: str, layers: Sequence[StoredLayer]) -> None:
    """Replace a file by one with these layers, atomically; `kind` names the class."""
    path = _checked(path)
    arrays = {
        f"{number}.{name}": array
        for number, one in enumerate(layers)
        for name, array in (("weight", one.weight), ("bias", one.bias))
        if array is not None
    }
    document = {
        "version": _VERSION,
        "kind": kind,
        "layers": [{"activation": one.activation, "precision": one.precision} for one in layers],
        "dtypes": {name: array.dtype.name for name, array in arrays.items()},
    }
    to_bytes, _ = _FORMATS[path.suffix]
    write_whole(path, to_bytes(arrays, json.dumps(document)), _PURPOSE)


def read_layers(path: Any, kind: str, make: Callable[[StoredLayer], Any]) -> list[Any]:
    """What `make` makes of the layers of a file; `FileError` names the file and what is wrong."""
    path = _checked(path)
    _, from_file = _FORMATS[path.suffix]
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a regular file")
        layers = _layers(kind, *from_file(path))
        return [make(one) for one in layers]
    except (UnsupportedError, MemoryError):
        raise
    except OSError as error:
        message = f"{str(path)!r} cannot be read: {error.strerror or error}"
        raise FileError(error.errno, printable(message), str(path)) from error
    except Exception as error:  # a package may raise anything for a file that is broken
        fault = str(error) or type(error).__name__
        message = f"{str(path)!r} holds no {kind} that can be read: {fault[:_MOST_CHARACTERS]}"
        raise FileError(None, printable(message), str(path)) from error


def _checked(path: Any) -> Path:
    """The argument `path`, with a suffix of a known format."""
    if not isinstance(path, (str, os.PathLike)):
        raise wrong_type("path", path, "a str or an os.PathLike")
    found = Path(path)
    if found.suffix not in _FORMATS:
        raise ArgumentError(
            f"path is {shown(os.fspath(path), 200)}; a name that ends in {' or '.join(_FORMATS)} "
            "is wanted"
        )
    return found


def _layers(kind: str, arrays: _Arrays, text: Any) -> list[StoredLayer]:
    """The layers of a file's arrays and document; `ValueError` says what is wrong with them."""
    if text is None:
        raise ValueError(f"it has no entry {_DOCUMENT!r}, so pyclgemm did not write it")
    document = parse_json(text)
    if not isinstance(document, dict):
        raise ValueError(f"its entry {_DOCUMENT!r} is no JSON object")
    if document.get("version") != _VERSION:
        version = shown(document.get("version"))
        raise ValueError(f"its format has version {version}, and this pyclgemm reads {_VERSION}")
    facts, dtypes = document.get("layers"), document.get("dtypes")
    if not isinstance(facts, list) or not isinstance(dtypes, dict):
        raise ValueError(f"its entry {_DOCUMENT!r} lacks a list 'layers' or an object 'dtypes'")
    if document.get("kind") != kind:
        other = document.get("kind")
        advice = f", which {other}.load reads" if other in _KINDS else ""
        raise ValueError(f"it holds a {shown(other)}{advice}")
    if dtypes.keys() != arrays.keys():
        odd = sorted(dtypes.keys() ^ arrays.keys())
        raise ValueError(f"its arrays are not those that it lists: {shown(odd)}")
    arrays = {name: _typed(name, array, dtypes[name]) for name, array in arrays.items()}
    layers = []
    for number, one in enumerate(facts):
        weight, bias = (arrays.pop(f"{number}.{name}", None) for name in ("weight", "bias"))
        if weight is None or not isinstance(one, dict):
            raise ValueError(f"layer {number} has no weight, or no facts")
        layers.append(StoredLayer(weight, bias, one.get("activation"), one.get("precision")))
    if kind == "DenseLayer" and len(layers) != 1:
        raise ValueError(f"it holds {len(layers)} layers; one is wanted")
    if arrays or not layers:
        raise ValueError(f"its arrays {shown(sorted(arrays))} belong to no layer")
    return layers


def _typed(name: str, array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """An array in the element type that the document states for it."""
    stored = array.view(dtype) if dtype == "bfloat16" and array.dtype == np.uint16 else array
    if stored.dtype.name != dtype:
        raise ValueError(f"its array {name!r} is {array.dtype}, and {shown(dtype)} is stated")
    return stored


def _to_npz(arrays: _Arrays, text: str) -> Any:
    stored = {
        name: array.view(np.uint16) if array.dtype.name == "bfloat16" else array
        for name, array in arrays.items()
    }
    file = io.BytesIO()
    entries: dict[str, Any] = {_DOCUMENT: np.array(text), **stored}
    np.savez(file, **entries)
    return file.getbuffer()


def _from_npz(path: Path) -> tuple[_Arrays, Any]:
    if not zipfile.is_zipfile(path):
        raise ValueError("it is no .npz archive")
    with np.load(path, allow_pickle=False) as archive:
        arrays = dict(archive)
    text = arrays.pop(_DOCUMENT, None)
    return arrays, None if text is None or text.dtype.kind != "U" else str(text)


def _to_safetensors(arrays: _Arrays, text: str) -> Any:
    package = optional("safetensors.numpy", "path", "written")
    if any(array.dtype.name == "complex128" for array in arrays.values()):
        raise UnsupportedError("a weight is complex128, which .safetensors lacks; save it as .npz")
    return package.save(arrays, {_DOCUMENT: text})


def _from_safetensors(path: Path) -> tuple[_Arrays, Any]:
    optional("safetensors.numpy", "path", "read")
    from safetensors import safe_open

    with safe_open(path, "np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        return arrays, (file.metadata() or {}).get(_DOCUMENT)


#: By the suffix: the bytes of arrays and a document, and these of a file.
_FORMATS: dict[str, tuple[Callable[[_Arrays, str], Any], Callable[[Path], tuple[_Arrays, Any]]]] = {
    ".npz": (_to_npz, _from_npz),
    ".safetensors": (_to_safetensors, _from_safetensors),
}
