"""Every family as host code under AddressSanitizer and UndefinedBehaviorSanitizer.

A read or write beyond a buffer or a local array, an access by a vector that is not aligned as its
type asks, and an index that overflows end the program. Left out are the kernels for warpgroups:
`tests.support.emulation.wgmma` runs them on the host, and checks what they copy.
"""

from contextlib import contextmanager
from dataclasses import asdict, replace
from unittest.mock import patch

import pyopencl as cl
import pytest

from pyclgemm.codegen.matrix_units import required_unit
from pyclgemm.device.traits import typical_traits
from tests.support import buffers, checks, memory_cases
from tests.support.configs import CPU, DIRECT, INDIRECT
from tests.support.emulation import sanitizers
from tests.support.emulation.host import kernels_on_the_host
from tests.support.emulation.matrix import without_units
from tests.support.emulation.ptx import in_plain_c, through_local_memory
from tests.support.families import changed_kernels, imagined_traits
from tests.support.poisoned import PoisonedBuffer

pytestmark = [
    pytest.mark.skipif(bool(sanitizers.missing()), reason=sanitizers.missing()),
    pytest.mark.first_runtime,
    pytest.mark.usefixtures("cpu_only"),
]

ON_CPU, ON_GPU, ON_NVIDIA = (
    replace(typical_traits(name), compute_units=2) for name in ("x86-64-v2", "gfx1012", "sm_90")
)


@pytest.fixture
def bare_queue(context, monkeypatch):
    """A queue whose buffers have nothing around them, and are NaN where nobody wrote."""
    monkeypatch.setattr(buffers, "GUARD", 0)
    monkeypatch.setattr(cl, "Buffer", PoisonedBuffer)
    return cl.CommandQueue(context)


@contextmanager
def sanitized(config=None):
    """Let a device pass for one that a family is for, and run its kernels on the host."""
    special = ("ASYNC", "SHUFFLE", "SUBGROUPS", "SUBGROUPS_M", "STREAMB")
    traits = ON_NVIDIA if any(getattr(config, name, 0) for name in special) else ON_GPU
    if config is not None and config.family in ("cpu", "small_cpu"):
        traits = ON_CPU
    with (
        changed_kernels(in_host_code),
        imagined_traits(**asdict(traits)),
        patch("pyclgemm.api.prepare.check_supported"),  # bfloat16 without units, too
        kernels_on_the_host(sanitizers.run_sanitized),
    ):
        yield


def in_host_code(source, problem, config, traits):
    """The kernel without instructions of a GPU."""
    if "mma.sync" in source.text:
        return without_units(source, required_unit(problem.precision, traits))
    if "shuffle(" in source.text:
        return through_local_memory(source)
    return replace(source, text=in_plain_c(source.text))


PRODUCTS = [
    # Every parameter of the families of which there are tables.
    *(f"{family}/{name}/odd" for family in ("indirect", "direct", "gemv", "cpu")
      for name in memory_cases.CONFIGS[family]),
    *(one for one in memory_cases.PRODUCTS if not one.endswith("/odd")),
    "indirect/plain/float16", "cpu/plain/bfloat16", "cpu/plain/float64", "direct/plain/complex128",
    # Matrix units, emulated; operands packed, whole and in split terms.
    *(f"matrix/plain/{case}" for case in ("float16", "float64", "three products", "six products")),
    "matrix/slabs divided/float16", "gemv_unit/plain/float16", "gemv_unit/streamed/float16",
]  # fmt: skip


@pytest.mark.one_in(6)
@pytest.mark.parametrize("product", PRODUCTS)
def test_products(bare_queue, product):
    family, name, case = product.split("/")
    config = memory_cases.CONFIGS[family][name]
    with sanitized(config):
        memory_cases.multiply(bare_queue, family, config, case)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("level", "k"),
    [("L1", 5), ("L2", 5), ("L3", 6), ("L5", 5), ("L5", 8), ("parts", 12), ("parts", 20)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_transforms(bare_queue, level, k, dtype):
    """L4 has the units of `test_units`; L6 is a product, with a kernel before it."""
    with sanitized():
        memory_cases.transform(bare_queue, level, k, dtype)


#: A vector that is stored behind where it should, one that starts an element too early, and a slab
#: of A with room for one element less.
BEYOND = ("out += out_offset;", "out += out_offset + 4;")
MISALIGNED = ("a_offset;", "a_offset;\n    *(__global float2 *)(out + 1) = (float2)(0);")
SHORT = ("a_local[", "a_local[-1 + ")


@pytest.mark.parametrize(
    ("config", "fault", "said"),
    [
        *((config, BEYOND, "heap-buffer-overflow") for config in (CPU, DIRECT, INDIRECT)),
        *((config, MISALIGNED, "misaligned address") for config in (CPU, DIRECT, INDIRECT)),
        (INDIRECT, SHORT, "global-buffer-overflow"),
    ],
)
def test_faults_are_found(bare_queue, config, fault, said):
    def broken(source, *_):
        head, kernel, body = source.text.partition("__kernel")
        changed = replace(source, text=head + kernel + body.replace(*fault))
        assert changed != source
        return changed

    with (
        sanitized(config),
        changed_kernels(broken),
        pytest.raises(sanitizers.Fault, match=said),
    ):
        checks.check_gemm(bare_queue, (8, 8, 8), config=config, **memory_cases.LIES)
