"""Elements in OpenCL C: their types, loads and stores.

Arithmetic may be wider than storage (float16 in memory, float32 in registers), and a complex
element is a pair. The templates use these functions and need no such distinctions.

OpenCL C has no bfloat16: it is stored as a ushort, the upper half of a float. The functions that
some of these loads and stores call (`bfloat16_of`, `halves_of`, `floats_of`) are in
``common/prelude.mako``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..problem.precision import is_complex, real_part_name

C_NAME = {
    "float16": "half", "bfloat16": "ushort", "float32": "float", "float64": "double",
    "int8": "char", "int32": "int", "uint32": "uint",
}  # fmt: skip
_BYTES = {
    "float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "int8": 1, "int32": 4, "uint32": 4,
}  # fmt: skip

#: C types for data of any meaning, by their bytes.
WORDS = {2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}

#: Address spaces of elements.
Space = Literal["__global", "__local", "__private"]


@dataclass(unsafe_hash=True)
class ElementType:
    """The type of an element in memory and in registers."""

    dtype: str  # NumPy name of the type in memory
    arithmetic: str  # NumPy name of the real type in registers
    #: Whether vectors of halves are loaded and stored as words. NVIDIA's compiler makes vload_half4
    #: four loads of two bytes, and vstore_half4 as many stores (driver 580.159.04).
    in_words: bool = False

    def __post_init__(self) -> None:
        self.parts = 2 if is_complex(self.dtype) else 1  # real numbers of an element
        # C types of a real part in registers and in memory; whether loads and stores convert.
        self.real = C_NAME[self.arithmetic]
        # Sums of int32 may overflow, which C defines for unsigned integers alone; the bits agree.
        self.stored_real = C_NAME[real_part_name(self.dtype)]
        if self.arithmetic == "uint32":
            self.stored_real = self.real
        self.converts = self.real != self.stored_real
        # C type of an element in memory.
        self.stored = self.stored_real + ("2" if self.parts > 1 else "")
        # Bytes of a real part and of an element in registers, and of an element in memory.
        self.real_bytes = _BYTES[self.arithmetic]
        self.bytes = self.parts * self.real_bytes
        self.stored_bytes = stored_bytes(self.dtype)
        # C types of the words in which vectors of halves are moved, by their elements.
        are_halves = self.in_words and self.stored_real == "half" and self.converts
        self.words = {size // 2: word for size, word in WORDS.items() if are_halves and size > 2}

    def vector(self, width: int) -> str:
        """C type of `width` elements in registers."""
        count = width * self.parts
        return self.real if count == 1 else f"{self.real}{count}"

    def lane(self, index: int, width: int) -> str:
        """Selector of element `index` of a vector of `width` elements."""
        if width == 1:
            return ""
        first = index * self.parts
        return ".s" + "".join(f"{first + part:x}" for part in range(self.parts))

    def conjugation(self, width: int) -> str:
        """The factor that conjugates each of a vector of `width` complex elements."""
        return f" * ({self.vector(width)})({', '.join(['1', '-1'] * width)})"

    def load(
        self, pointer: str, width: int, *, aligned: bool = True, space: Space = "__global"
    ) -> str:
        """Expression for `width` elements at a `pointer` to stored elements in `space`."""
        if self.stored_real == "half" and self.converts:
            if width == 1:
                return f"vload_half(0, {pointer})"
            if aligned and width in self.words and space != "__private":
                return f"floats_of{width}(*(const {space} {self.words[width]} *)({pointer}))"
            return f"vload{'a' if aligned else ''}_half{width}(0, {pointer})"
        count = width * self.parts
        if width == 1:
            stored = f"*({pointer})"
        elif aligned:
            stored = f"*(const {space} {self.stored_real}{count} *)({pointer})"
        else:
            stored = f"vload{count}(0, (const {space} {self.stored_real} *)({pointer}))"
        return self._converted(stored, count)

    def entry(self, array: str, index: str) -> str:
        """Expression for the element at an `index` of an `array` of stored elements."""
        if self.stored_real == "half" and self.converts:
            return f"vload_half({index}, {array})"
        return self._converted(f"*{array}" if index == "0" else f"{array}[{index}]", self.parts)

    def _converted(self, stored: str, count: int) -> str:
        """Expression for `count` stored real numbers, converted to their type in registers."""
        if not self.converts:
            return stored
        lanes = "" if count == 1 else str(count)
        if self.dtype == "bfloat16":
            wide = f"convert_uint{lanes}({stored})" if lanes else f"(uint){stored}"
            return f"as_float{lanes}({wide} << 16)"
        return f"convert_{self.real}{lanes}({stored})"

    def assign(self, value: str, array: str, index: str) -> str:
        """Statement that stores an element at an `index` of an `array` of stored elements."""
        if self.stored_real == "half" and self.converts:
            return f"vstore_half({value}, {index}, {array});"
        if self.dtype == "bfloat16":
            value = f"bfloat16_of({value})"
        return f"*{array} = {value};" if index == "0" else f"{array}[{index}] = {value};"

    def store(
        self,
        value: str,
        pointer: str,
        width: int,
        *,
        aligned: bool = True,
        space: Space = "__global",
    ) -> str:
        """Statement that stores `width` elements."""
        if self.stored_real == "half" and self.converts:
            if width == 1:
                return f"vstore_half({value}, 0, {pointer});"
            if aligned and width in self.words:
                return f"*({space} {self.words[width]} *)({pointer}) = halves_of{width}({value});"
            return f"vstore{'a' if aligned else ''}_half{width}({value}, 0, {pointer});"
        count = width * self.parts
        if self.dtype == "bfloat16":
            value = f"bfloat16_of{'' if width == 1 else width}({value})"
        if width == 1:
            return f"*({pointer}) = {value};"
        if aligned:
            return f"*({space} {self.stored_real}{count} *)({pointer}) = {value};"
        return f"vstore{count}({value}, 0, ({space} {self.stored_real} *)({pointer}));"


def stored_bytes(dtype: str) -> int:
    """Bytes of an element of `dtype` in memory."""
    return (2 if is_complex(dtype) else 1) * _BYTES[real_part_name(dtype)]


def epilogue_type(result_dtype: str, arithmetic: str, *, in_words: bool = False) -> ElementType:
    """The type of C, bias and result: alpha, beta and activations are never computed in half."""
    wide = "float32" if arithmetic == "float16" else arithmetic
    return ElementType(result_dtype, wide, in_words)
