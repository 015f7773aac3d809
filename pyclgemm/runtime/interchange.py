"""Arrays of other libraries on the host: their memory as NumPy's, and results of their type.

What has ``__dlpack__`` or ``__array__`` is such an array: a tensor of torch, an array of JAX, a
data frame of pandas. None of these libraries is imported.
"""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, DtypeError, described

#: Types of devices of DLPack whose memory is the host's: kDLCPU, kDLCUDAHost and kDLROCMHost.
_ON_HOST = frozenset((1, 3, 11))
#: Names of other types.
_DEVICES = {2: "CUDA", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 13: "CUDA", 14: "oneAPI"}

#: What libraries raise if they cannot give or take an array.
_REFUSALS = (AttributeError, BufferError, RuntimeError, TypeError, ValueError)


class ForeignArray(np.ndarray[Any, Any]):
    """An array of NumPy with the entries of another library's array."""

    #: That array. Views have none.
    owner: Any = None


def read(name: str, array: Any) -> NDArray[Any] | None:
    """The entries of another library's array; None if `array` has neither protocol."""
    kind = type(array)
    if not (hasattr(kind, "__array__") or hasattr(kind, "__dlpack__")):
        return None
    try:
        device = int(array.__dlpack_device__()[0]) if hasattr(kind, "__dlpack_device__") else 1
        entries = _entries(array) if device in _ON_HOST else None
    except _REFUSALS as error:
        raise DtypeError(
            f"{name} is {described(array)} that NumPy cannot read ({error}); an array that can be "
            "read on the host is wanted"
        ) from error
    if entries is None:
        raise DtypeError(
            f"{name} is {described(array)} on a {_DEVICES.get(device, 'foreign')} device (type "
            f"{device} of DLPack); an array on the host, or a pyopencl.array.Array, is wanted"
        )
    return owned(entries, array)


def owned(entries: NDArray[Any], owner: Any) -> NDArray[Any]:
    """An array whose results have the type of `owner`."""
    if isinstance(owner, np.ndarray):
        return entries
    foreign = entries.view(ForeignArray)
    foreign.owner = owner
    return foreign


def owner_of(array: Any) -> Any:
    """The array of another library that an array has the entries of, or the array itself."""
    owner = getattr(array, "owner", None)
    return array if owner is None else owner


def check_destination(out: NDArray[Any]) -> None:
    """Raise `ArgumentError` unless entries that are written to `out` reach its owner."""
    owner = owner_of(out)
    if not out.flags.writeable:
        kind = "NumPy array" if owner is out else type(owner).__name__
        raise ArgumentError(f"out is a read-only {kind}; a writable one is wanted")
    # Two copies that live at once have memory of their own each.
    if owner is not out and out.size and not np.may_share_memory(out, _entries(owner)):
        raise ArgumentError(
            f"out is {described(owner)} that gives copies of its entries; an array whose memory "
            "can be written is wanted"
        )


def like(example: Any, result: NDArray[Any]) -> Any:
    """A result as an array of the library of `example`, where that can take NumPy's memory."""
    owner = owner_of(example)
    if owner is example:
        return result
    library = _library(owner)
    try:
        if result.dtype.name == "bfloat16":
            return library.from_dlpack(result.view(np.int16)).view(library.bfloat16)
        return library.from_dlpack(result)
    except _REFUSALS:
        return result


def _entries(array: Any) -> NDArray[Any]:
    """The entries of another library's array, without a copy if the library allows that."""
    dtype = getattr(array, "dtype", None)
    if str(dtype).endswith("bfloat16") and not isinstance(dtype, np.dtype):
        # DLPack has a number for bfloat16, which NumPy does not take.
        bits: NDArray[Any] = _entries(array.view(_library(array).int16))
        return bits.view("bfloat16")
    return np.asarray(array) if hasattr(array, "__array__") else np.from_dlpack(array)


def _library(array: Any) -> Any:
    """The namespace of an array by the array API standard, or else the package of its type."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    return sys.modules.get(type(array).__module__.partition(".")[0])
