"""Two campaigns of products: by legal configurations, and by some that no tuner would write.

Building a kernel takes far longer than running it on small matrices, so one form is drawn for many
problems. A form decides the kernel's text: device, configuration, types, layouts, operands that are
read, and the epilogue. Sizes, gaps, scalars and data differ from problem to problem. A case has
both, and is complete. Configurations are legal ones from the tuner's space, or mutations of these.
"""

import functools
import math

import numpy as np

from pyclgemm.api.prepare import check_supported
from pyclgemm.device.traits import traits_of, typical_traits
from pyclgemm.errors import ConfigError, KernelBuildError, UnsupportedError
from pyclgemm.families.family import MOST_SMALL
from pyclgemm.families.registry import FAMILIES, family_of
from pyclgemm.problem.precision import resolve_precision
from pyclgemm.tuning.search import search_space
from tests.support.buffers import poison_allocations
from tests.support.configs import FLOAT32_PRECISIONS
from tests.support.families import SMALL_FAMILIES
from tests.support.reference import ACTIVATIONS

from .calls import PLAIN, PLAIN_LAYOUT, check_call, made_call
from .campaign import BLOCK, Campaign, Failure, simpler
from .devices import device_of, device_texts, queue_of
from .operands import SORTS

#: Fraction of forms that are transforms of tensors.
_TRANSFORMS = 0.06
#: Mutations of one configuration, each with a problem of its own.
_MUTATIONS = 8
#: Characters of a build log that are quoted.
_LOG = 600

#: The simplest cases.
_PLAIN_TRANSFORM = {
    "queue": [], "level": None, "tensors": "contiguous", "out": "contiguous", "lead": 64,
    "matrix": "row", "dtype": "float32", "count": 1, "extent": 1,
}  # fmt: skip
_PLAIN_PRODUCT = {
    "queue": [], **PLAIN, "buffers": 1, "beta": 1.0, "values": ("integers", "uniform"),
    "m": 1, "n": 1, "k": 1,
}  # fmt: skip

#: Layouts of tensors. All tensors of "repeated" share their memory, which results cannot.
_LAYOUTS = ("contiguous", "padded", "reversed dimensions", "every other", "backwards", "repeated")
#: Values of each fact of a transform.
_TRANSFORM_VALUES = {
    "level": (None, None, "L1", "L2", "L3", "L4", "L5", "L6"), "dtype": ("float32", "float64"),
    "extent": (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 17, 20), "count": (0, 1, 1, 2, 3, 5, 16),
    "queue": ([], [], [], ["out"], ["profiling"]), "tensors": _LAYOUTS, "out": _LAYOUTS[:-1],
    "lead": (64, 64, 65, 66), "matrix": ("row", "column", "backwards"),
}  # fmt: skip
#: The largest extent for L6, whose Kronecker product has K^6 elements.
_MAX_L6 = 8

#: Weights of the families on a CPU and on a GPU; None lets the library choose.
_FAMILIES = {
    "cpu": {"cpu": 9, "small_cpu": 5, "direct": 4, "indirect": 4, "gemv": 3, "small": 3, None: 3},
    "gpu": {"direct": 6, "indirect": 6, "gemv": 3, "small": 4, "matrix": 6, "wgmma": 4,
            "gemv_unit": 2, None: 4},
}  # fmt: skip
_DTYPES = {
    "float32": 10, "float64": 4, "float16": 3, "complex64": 3, "complex128": 2, "int8": 1,
    "bfloat16": 1,
}  # fmt: skip
#: Precisions other than the default; devices without matrix units refuse most.
_PRECISIONS = {
    "float16": ("F16_F16_F16",),
    "float32": FLOAT32_PRECISIONS,
}
_RESULTS = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}
_ENTRIES = {
    "gemm": 10, "batched": 5, "sequence": 3, "plan": 3, "packed": 3, "host": 1, "matmul": 2,
    "layer": 2,
}  # fmt: skip
#: Entry points that take no configuration, or only few.
_UNCONFIGURED = ("matmul", "layer", "packed")
_ACTIVATIONS = tuple(ACTIVATIONS)
_QUEUES = ([], [], [], [], ["out"], ["profiling"])
_STACKS = {"packed": 5, "apart": 3, "backwards": 1, "shared": 2, "matrix": 2}
_SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 32, 33, 47, 64, 65, 97, 127, 128, 149)

#: Fraction of products that are drawn with few rows or columns.
_SKINNY = 0.08
#: Facts of a form that its cases lack.
_FORM_ONLY = ("sizes", "edges", "reads")
#: Number of sizes of a form whose kernels are written for one size each.
_FIXED_SIZES = 3
#: Fraction of requests that a device refuses which are drawn nevertheless.
_REFUSED = 0.02
#: Limits of tiles for CPUs, whose compilers take seconds for larger ones.
_MAX_CPU_TILE = 64 * 64
_MAX_CPU_SUMS = 256
#: Attempts to draw a configuration of a family.
_ATTEMPTS = 12

#: Senseless values, which a hostile or damaged record could hold.
_SENSELESS = (
    0, -1, -8, 3, 5, 7, 17, 100, 1 << 10, 1 << 12, 10**6, 1 << 16, (1 << 16) - 1, 1 << 20,
    1 << 30, (1 << 31) - 1, 1 << 31, 1 << 32, -(1 << 31), 1 << 40, 1 << 62, 1 << 63, 10**30,
)  # fmt: skip


class Problems(Campaign):
    """Products of random shapes, layouts, scalars and data, by random legal configurations."""

    def __init__(self):
        poison_allocations()

    def cases(self, rng):
        devices = device_texts()
        while True:
            device = rng.choice(devices)
            if rng.random() < _TRANSFORMS:
                yield from (_drawn_transform(rng, device) for _ in range(BLOCK))
                continue
            form = _drawn_form(rng, device, traits_of(device_of(device)))
            # With fewer problems of a form, compilers would take most of the time.
            yield from (_drawn_problem(rng, form) for _ in range(BLOCK))

    def run(self, case):
        try:
            _check(case)
        except (ConfigError, UnsupportedError) as refusal:
            return f"refused by {type(refusal).__name__}"
        except KernelBuildError as error:
            raise Failure(f"a legal configuration is not built: {str(error)[:_LOG]}") from error
        return None

    def smaller(self, case):
        if case["entry"] == "transform3d":
            return simpler(case, _PLAIN_TRANSFORM)
        return _simpler_products(case)


class Configs(Problems):
    """Configurations changed at random: refused by a typed error, or right; then a plain call."""

    seconds_per_case = 40.0

    def cases(self, rng):
        devices = device_texts()
        while True:
            device = rng.choice(devices)
            traits = traits_of(device_of(device))
            form = _drawn_form(rng, device, traits)
            form |= {"config": None, "sizes": []}
            if form["entry"] in _UNCONFIGURED:
                form["entry"] = "gemm"
            family = rng.choice(sorted(FAMILIES))
            base = _any_config(rng, family, form, traits)
            for _ in range(_MUTATIONS):
                config = {"path": family, **_mutated(rng, base)}
                yield _drawn_problem(rng, form) | {"config": config}

    def run(self, case):
        try:
            _check(case)
        except (ConfigError, UnsupportedError, KernelBuildError) as refusal:
            _check(case | PLAIN)
            return f"refused by {type(refusal).__name__}"
        return None


def _check(case):
    queue = queue_of(case["device"], tuple(case["queue"]))
    with np.errstate(all="ignore"):
        check_call(made_call(queue, case))


def _drawn_transform(rng, device):
    """A transform of a few small tensors."""
    case = {name: rng.choice(values) for name, values in _TRANSFORM_VALUES.items()}
    if case["level"] == "L6":
        case |= {"tensors": "contiguous", "out": "contiguous"}
        case["extent"] = min(case["extent"], _MAX_L6)
    return case | {"device": device, "entry": "transform3d", "data": rng.randrange(1 << 30)}


def _simpler_products(case):
    """Cases that are simpler in one respect, the simplest first."""
    plain = dict(_PLAIN_PRODUCT)
    if case["config"] is not None:
        yield case | {"config": None}
        cls = FAMILIES[case["config"]["path"]].config_class
        plain["config"] = {name: getattr(cls, name, 1) for name in case["config"] if name != "path"}
    if isinstance(case["c"], dict):
        yield case | {"c": None}
        plain["c"] = PLAIN_LAYOUT
    yield case | {"dtype": "float32", "result": "float32", "precision": None}
    yield from simpler(case, plain)


def _weighted(rng, weights):
    """A random key of a dictionary of weights."""
    return rng.choices(tuple(weights), tuple(weights.values()))[0]


# Configurations


@functools.cache
def _space(family, dtype, precision, traits):
    return search_space(family, dtype, traits, resolve_precision(precision, dtype))


def _drawn_config(rng, family, dtype, precision, traits):
    """A legal configuration of a family that is quick to build; None if none was found."""
    space = _space(family, dtype, precision, traits)
    if not all(space.axes.values()):
        return None  # no vector of such elements is narrow enough
    for _ in range(_ATTEMPTS):
        point = space.repaired(space.draw(rng), rng, tries=200)
        config = space.config(point) if point is not None else None
        if config is not None and (traits.type != "cpu" or _is_quick(config)):
            return config
    return None


def _is_quick(config):
    if config.family in ("direct", "indirect"):
        tiles = config.tiles
        sums = tiles.MWI * tiles.NWI * tiles.KWI
        return tiles.MWG * tiles.NWG <= _MAX_CPU_TILE and sums <= _MAX_CPU_SUMS
    return config.family != "small" or config.MWI * config.NWI * config.KWI <= _MAX_CPU_SUMS


def _any_config(rng, family, form, traits):
    """Parameters that are legal here, or else on a GPU with matrix units, or else any."""
    for where, dtype in ((traits, form["dtype"]), (typical_traits("sm_90"), "float16")):
        config = _drawn_config(rng, family, dtype, None, where)
        if config is not None:
            return config.as_dict()
    names = FAMILIES[family].config_class.__dataclass_fields__
    return {name: rng.choice((1, 2, 4, 8, 16, 64)) for name in names}


def _mutated(rng, parameters):
    """Change one to three parameters: a little, to the value of another one, or to any value."""
    changed = dict(parameters)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        name = rng.choice(sorted(changed))
        value = changed[name]
        near = (value + 1, value - 1, value * 2, value // 2, value * 3, -value)
        others = (rng.choice(sorted(changed.values())), *rng.choices(_SENSELESS, k=2))
        changed[name] = rng.choice((*near, *others))
    return changed


def _tile_edges(config):
    """Rows, columns and depth of the kernel's tiles."""
    if config is None:
        return 16, 16, 16
    tile = family_of(config).tile(config)
    return tile.rows, tile.columns, max(tile.depth, getattr(config, "KC", 1))


# Forms


def _drawn_form(rng, device, traits):
    """Draw all that decides the kernel's text."""
    dtype, precision = _drawn_types(rng, traits)
    has_wide_result = dtype == "int8" or (dtype in _RESULTS and rng.random() < 0.4)
    family = _weighted(rng, _FAMILIES["cpu" if traits.type == "cpu" else "gpu"])
    entry = _weighted(rng, _ENTRIES)
    if family in SMALL_FAMILIES and rng.random() > _REFUSED:
        entry = rng.choice(("batched", "sequence"))
    config = None
    if family is not None and entry not in _UNCONFIGURED:
        config = _drawn_config(rng, family, dtype, precision, traits)
    form = {
        "device": device, "queue": rng.choice(_QUEUES), "entry": entry,
        "config": None if config is None else {"path": config.family, **config.as_dict()},
        "dtype": dtype, "result": _RESULTS[dtype] if has_wide_result else dtype,
        "precision": precision,
        "a": _drawn_layout(rng, "NTC"), "b": _drawn_layout(rng, "NTC"),
        "out": _drawn_layout(rng, "N"), "c": None, "bias": rng.choice((0, 0, 0, 1, 1, 2, -1)),
        "activation": None, "sizes": [], "edges": _tile_edges(config),
    }  # fmt: skip
    if rng.random() < 0.4:
        form["c"] = rng.choice(("out", _drawn_layout(rng, "N", broadcast=1)))
    if dtype not in ("complex64", "complex128") and rng.random() < 0.35:
        form["activation"] = "relu" if dtype == "int8" else rng.choice(_ACTIVATIONS)
    form["reads"] = [rng.random() > 0.04, form["c"] is not None and rng.random() > 0.15]
    is_sized = config is None and entry in ("batched", "sequence", "matmul")
    if is_sized or getattr(config, "family", "") == "small":
        form["sizes"] = [_drawn_sizes(rng, form) for _ in range(_FIXED_SIZES)]
    return form


def _drawn_types(rng, traits):
    """Draw an element type and a precision, rarely ones that the device refuses."""
    while True:
        dtype = _weighted(rng, _DTYPES)
        precision = None
        if dtype in _PRECISIONS and rng.random() < 0.5:
            precision = rng.choice(_PRECISIONS[dtype])
        try:
            check_supported(dtype, resolve_precision(precision, dtype), traits)
        except UnsupportedError:
            if rng.random() >= _REFUSED:
                continue
        return dtype, precision


def _drawn_layout(rng, transpositions, *, broadcast=0):
    orders = {"row": 6, "column": 4, "strided": 1, "broadcast": broadcast}
    return {
        "order": _weighted(rng, orders), "alignment": rng.choice((1, 1, 2, 4, 8, 16, 16)),
        "flip_rows": rng.random() < 0.08, "flip_columns": rng.random() < 0.05,
        "trans": rng.choice(transpositions), "stack": _weighted(rng, _STACKS),
    }  # fmt: skip


# Problems


def _drawn_problem(rng, form):
    """Draw a problem of a form, and return the complete case."""
    m, n, k = rng.choice(form["sizes"]) if form["sizes"] else _drawn_sizes(rng, form)
    batch = rng.choice((1, 2, 3, 3, 5, 8, 17)) if form["entry"] in ("batched", "sequence") else 1
    if form["entry"] == "matmul":
        batch = rng.choice((0, 0, 1, 2, 3))
    is_small = form["config"] is not None and form["config"]["path"] in SMALL_FAMILIES
    if is_small and batch == 1 and form["entry"] != "gemm":
        batch = 4
    if batch > 2 or (is_small and rng.random() > _REFUSED):
        m, n, k = min(m, MOST_SMALL), min(n, MOST_SMALL), min(k, MOST_SMALL)
    scalar_sort = "whole" if form["dtype"] == "int8" else rng.choice(("whole", "any"))
    is_complex = form["dtype"].startswith("complex")
    alpha, beta = (_drawn_scalar(rng, scalar_sort, is_complex) for _ in range(2))
    reads_product, reads_c = form["reads"]
    layouts = {
        role: form[role] | {"gap": rng.choice((0, 0, 1, 1, 2, 3))}
        for role in ("a", "b", "out", "c")
        if isinstance(form[role], dict)
    }
    return {
        **{name: value for name, value in form.items() if name not in _FORM_ONLY}, **layouts,
        "m": m, "n": n, "k": k, "batch": batch, "values": _weighted(rng, SORTS),
        "alpha": alpha if reads_product else 0.0, "beta": beta if reads_c else 0.0,
        # Kernels for small matrices refuse a buffer with a single product.
        "buffers": 1 if is_small else rng.choice((1, 2)),
        "data": rng.randrange(1 << 30),
    }  # fmt: skip


def _drawn_sizes(rng, form):
    """Rows, columns and depth, often near multiples of those of a tile."""
    m, n, k = (_drawn_size(rng, edge) for edge in form["edges"])
    if rng.random() < _SKINNY:
        m, n = rng.choice(((1, n), (m, 1), (m, rng.randrange(1, 5))))
    return m, n, k


def _drawn_size(rng, edge):
    kind = rng.random()
    if kind < 0.02:
        return 0
    if kind < 0.45:
        size = edge * rng.choice((1, 1, 2, 3)) + rng.choice((-1, 0, 1))
        if 0 < size <= 160:
            return size
    if kind < 0.47:
        return rng.randrange(150, 700)
    return rng.choice(_SIZES) if kind < 0.75 else rng.randrange(1, 100)


def _drawn_scalar(rng, sort, is_complex):
    """Alpha or beta, never 0; a list of the parts if complex."""
    if rng.random() < 0.5:
        return 1.0
    if sort == "any" and rng.random() < 0.02:
        return math.nan
    whole = [-1.0, 2.0, -3.0]
    value = rng.choice(whole) if sort == "whole" else rng.choice((*whole, rng.uniform(-2, 2), 1e-3))
    if is_complex and rng.random() < 0.5:
        other = rng.choice((1.0, -2.0)) if sort == "whole" else rng.uniform(-1, 1)
        return [value, other]
    return value
