"""bfloat16: precisions that take it, and how a kernel loads and stores it."""

import ml_dtypes
import numpy as np
import pyopencl as cl
import pyopencl.array as cl_array
import pytest

from pyclgemm.codegen.element import ElementType
from pyclgemm.device.traits import typical_traits
from pyclgemm.errors import DtypeError
from pyclgemm.families.registry import family_of
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.shape import GemmShape
from tests.support.configs import BASES

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)

SINGLE = ElementType("float32", "float32")
STORED = ElementType("bfloat16", "float32")
#: Elements at a time, and whether they are aligned to so many.
ACCESSES = [(1, True), (2, True), (2, False), (16, True), (16, False)]


def test_bfloat16_operands_are_multiplied_as_they_are():
    rounded = resolve_precision("BF16_BF16_F32", "float32")
    stored = resolve_precision(None, "bfloat16")
    assert stored.name == rounded.name and stored != rounded
    assert (stored.product_error, rounded.product_error) == (0.0, 2 * 2.0**-8 + 2.0**-16)
    for parts in (3, 6, 9):
        with pytest.raises(DtypeError, match="multiplies float32; the operands are bfloat16"):
            resolve_precision(f"BF16_BF16_F32_X{parts}", "bfloat16")


@pytest.fixture(scope="session")
def conversions(context):
    """A program with a kernel for each kind of load and of store."""
    product = GemmShape(8, 8, 8).product("bfloat16")
    config = BASES["direct"]
    gemm = family_of(config).source(product.problem, config, typical_traits("sm_90")).text
    function = gemm[gemm.index("static inline ushort bfloat16_of") :]
    kernels = [function[: function.index("\n}\n") + 3]]
    for width, aligned in ACCESSES:
        for kind, source, target in (("load", STORED, SINGLE), ("store", SINGLE, STORED)):
            position = f"get_global_id(0) * {width}"
            value = source.load(f"from + {position}", width, aligned=aligned)
            kernels.append(
                f"__kernel void {kind}{width}_{aligned:d}(\n"
                f"    const __global {source.stored} *from, __global {target.stored} *to)\n{{\n"
                f"    const {source.vector(width)} x = {value};\n"
                f"    {target.store('x', f'to + {position}', width, aligned=aligned)}\n}}\n"
            )
    return cl.Program(context, "\n".join(kernels)).build()


def check(queue, program, name, width, given, right):
    """Run a kernel; NaN stays NaN, and everything else must be right to the last bit."""
    device_in = cl_array.to_device(queue, given)
    device_out = cl_array.empty(queue, given.shape, right.dtype)
    kernel = cl.Kernel(program, name)
    kernel(queue, (given.size // width,), None, device_in.base_data, device_out.base_data)
    got = device_out.get()
    is_nan = np.isnan(right)
    assert (np.isnan(got) == is_nan).all()
    assert got[~is_nan].tobytes() == right[~is_nan].tobytes()


@pytest.mark.parametrize(("width", "aligned"), ACCESSES)
def test_it_is_loaded_exactly_and_stored_to_nearest_even(queue, conversions, width, aligned):
    given = np.arange(2**16, dtype=np.uint16).view(BFLOAT16)  # every one
    check(queue, conversions, f"load{width}_{aligned:d}", width, given, given.astype(np.float32))
    # Behind each, what lies before, at and after the middle to the next one.
    upper = np.arange(2**16, dtype=np.uint32)[:, None] << 16
    lower = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    given = np.ravel(upper | lower).view(np.float32)
    with np.errstate(all="ignore"):
        right = given.astype(BFLOAT16)
    check(queue, conversions, f"store{width}_{aligned:d}", width, given, right)
