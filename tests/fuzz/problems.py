"""Two campaigns of products: by legal configurations, and by some that no tuner would write."""

import numpy as np

from pyclgemm.device.traits import traits_of
from pyclgemm.errors import ConfigError, KernelBuildError, UnsupportedError
from pyclgemm.families.registry import FAMILIES
from tests.support.poisoned import poison_allocations

from .calls import PLAIN, PLAIN_LAYOUT, check_call, made_call
from .campaign import BLOCK, Campaign, Failure, simpler
from .devices import device_of, device_texts, queue_of
from .forms import UNCONFIGURED, any_config, drawn_form, drawn_problem, mutated

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
            form = drawn_form(rng, device, traits_of(device_of(device)))
            # With fewer problems of a form, compilers would take most of the time.
            yield from (drawn_problem(rng, form) for _ in range(BLOCK))

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
            form = drawn_form(rng, device, traits)
            form |= {"config": None, "sizes": []}
            if form["entry"] in UNCONFIGURED:
                form["entry"] = "gemm"
            family = rng.choice(sorted(FAMILIES))
            base = any_config(rng, family, form, traits)
            for _ in range(_MUTATIONS):
                config = {"path": family, **mutated(rng, base)}
                yield drawn_problem(rng, form) | {"config": config}

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
