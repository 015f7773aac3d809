"""The types of what public functions take by name, for type checkers alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
import pyopencl as cl

from ..codegen.config import Config
from ..device.discovery import FoundDevice
from ..problem.matrix import Transposition
from ..problem.precision import PrecisionName
from .epilogue import Epilogue

#: The arithmetic: a name, or a member of JAX's enumeration of these names.
PrecisionArgument: TypeAlias = PrecisionName | Enum | None

Transposed: TypeAlias = bool | np.bool_ | Transposition

DeviceArgument: TypeAlias = cl.CommandQueue | cl.Device | FoundDevice


class FormulaOptions(TypedDict, total=False):
    """What `gemm`'s formula has besides its matrices."""

    alpha: complex
    beta: complex | None
    trans_a: Transposed
    trans_b: Transposed
    epilogue: Epilogue | None
    precision: PrecisionArgument


class ProductOptions(FormulaOptions, total=False):
    """What a call takes that computes the formula, besides arrays and `return_event`."""

    config: Config | Mapping[str, Any] | None
    allocator: Callable[[int], Any] | None
    wait_for: Sequence[cl.Event] | None


class StreamOptions(FormulaOptions, total=False):
    """What `stream_gemm` takes besides arrays and `explain`."""

    devices: DeviceArgument | Sequence[DeviceArgument] | Literal["all"] | None
    memory: int | None
    progress: bool | Callable[[int, int], object] | None
