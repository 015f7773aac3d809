"""Invented devices, problems and products for the tests of modules that need no device."""

from types import SimpleNamespace

from pyclgemm.analysis import ab
from pyclgemm.device.ceilings import Ceilings
from pyclgemm.device.traits import DeviceTraits
from pyclgemm.mra.choice import Transform, contiguous_stack
from pyclgemm.problem.matrix import Matrix
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.problem.problem import GemmProblem, MatrixLayout
from pyclgemm.problem.product import make_product
from pyclgemm.problem.shape import GemmShape
from pyclgemm.selection.records import Record

ROW = MatrixLayout("row")
#: Of no device.
CEILINGS = Ceilings({"float32": 1000.0}, 100.0, 400.0, 2000.0, 1e-5, "2026-01-01")


def gpu(**changes):
    """An H100 as OpenCL shows it, but for the given changes."""
    facts = {
        "name": "NVIDIA H100 80GB HBM3", "vendor": "nvidia", "type": "gpu",
        "architecture": "sm_90", "platform": "NVIDIA CUDA", "driver": "580.0",
        "compute_units": 132, "vector_bytes": 4, "max_work_group_size": 1024,
        "local_memory_bytes": 48 * 1024, "max_allocation_bytes": 20 * 2**30,
        "float64": True, "float16": True, "fast_fma32": True, "fast_fma64": True,
    }  # fmt: skip
    return DeviceTraits(**(facts | changes))


#: An H100 with its warpgroup units.
HOPPER = gpu(fence_options="-cl-std=CL3.0", local_memory_bytes=229440, wgmma=True)


def cpu(**changes):
    """A CPU with AVX-512, but for the given changes."""
    facts = {
        "name": "AMD EPYC", "vendor": "amd", "type": "cpu", "architecture": "x86-64-v4",
        "platform": "Portable Computing Language", "compute_units": 2, "vector_bytes": 64,
    }  # fmt: skip
    return gpu(**(facts | changes))


def smallest_gpu():
    """The least that the generic entries must run on, of a vendor that has no file."""
    return gpu(
        name="G", vendor="other", architecture="", max_work_group_size=256,
        local_memory_bytes=16 * 1024,
    )  # fmt: skip


def recorded(text, config, gflops=None, **others):
    """The record of a shape as text, such as "64x64x64:NT*100"."""
    shape = GemmShape.parse(text)
    assert shape is not None, text
    return Record(shape, config, gflops, **others)


def problem_of(text, dtype="float32", precision=None, **options):
    """The product of a shape as text."""
    return GemmShape.parse(text).problem(dtype, precision, **options)


def problem(m, n, k, dtype="float32", **changes):
    """A product of plain row-major matrices."""
    precision = resolve_precision(changes.pop("precision", None), dtype)
    return GemmProblem(m, n, k, dtype, precision, ROW, ROW, ROW, **changes)


def product_of(
    m, n, k, dtype="float32", *, trans_a="N", trans_b="N", precision=None, reads_c=False,
    bias=False, batch=None, **options,
):  # fmt: skip
    """The product of operands that are stored as "N", "T" or "C" says; others as `make_product`."""

    def stored(rows, columns, transposition="N"):
        if transposition != "N":
            rows, columns = columns, rows
        stride = rows * columns if batch else 0
        matrix = Matrix(rows, columns, columns, 1, 0, batch_stride=stride)
        return matrix.operated(transposition, is_complex=dtype.startswith("complex"))

    out = stored(m, n)
    return make_product(
        stored(m, k, trans_a), stored(k, n, trans_b), out, out if reads_c else None, dtype=dtype,
        precision=resolve_precision(precision, dtype), bias_stride=1 if bias else None,
        batch=batch, **options,
    )  # fmt: skip


def transform_of(k, dtype="float64", count=2048):
    """A transform of tensors that lie one behind the other."""
    stack = contiguous_stack(count, k)
    return Transform(stack, Matrix(k, k, k, 1, 0), stack, dtype)


def analysed(config, utilisation, occupancy, traffic, flops=10**9, launches=1):
    """What `judge` and `bounds_of` take of an `Analysis`, of a product in float32."""
    computed = SimpleNamespace(flops=flops, precision=resolve_precision(None, "float32"))
    return SimpleNamespace(
        product=SimpleNamespace(problem=computed), kernels=("kernel",) * launches,
        choice=SimpleNamespace(path=config.family, config=config), utilisation=utilisation,
        occupancy=occupancy, traffic=traffic,
    )  # fmt: skip


def ab_record(**others):
    """What `ab` found for a change of two shapes."""
    slow, fast = (
        ab.Side({"path": "cpu", "MR": rows}, gflops, {})
        for rows, gflops in ((4, 100.0), (6, 400.0))
    )
    values = {
        "technique": "taller | tile", "base": "database", "change": "MR=6", "dtype": "float32",
        "device": "Some CPU", "platform": "P", "driver": "1", "version": "0", "date": "2026-01-01",
        "command": "ab", "rounds": 5, "verdict": "kept", "ratio": 2.0, "spread": 0.014,
        "results": (
            ab.ShapeResult("8x8x8", slow, fast, ratio=4.0, error=0.01),
            ab.ShapeResult("9x9x9", fast, fast, ratio=1.0, error=0.01),
        ),
        "skipped": {"7x7x7": "no"},
    }  # fmt: skip
    return ab.Record(**values | others)
