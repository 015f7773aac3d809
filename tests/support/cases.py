"""Products in which any two options occur together: all pairs, not all combinations."""

import random
from itertools import combinations, product

from pyclgemm.families.registry import violations
from tests.support.buffers import COLUMN, COLUMN_ALIGNED, ROW, ROW_ALIGNED, STRIDED, Layout
from tests.support.facts import problem
from tests.support.families import refusal
from tests.support.reference import ACTIVATIONS, COMPLEX_DTYPES

LAYOUTS = (ROW, COLUMN, STRIDED, ROW_ALIGNED, COLUMN_ALIGNED, Layout(alignment=2))

#: Options of `check_gemm`. A dictionary is a value that sets several options.
PRODUCT_AXES = {
    "a": LAYOUTS,
    "b": LAYOUTS,
    "out": LAYOUTS,
    "trans_a": "NTC",
    "trans_b": "NTC",
    # A kernel leaves out what a factor of zero, or no depth, makes superfluous.
    "factors": (
        {"alpha": 2},
        {"alpha": 0},
        {"alpha": 0.5, "c": ROW, "beta": -2},
        {"alpha": 3, "c": STRIDED, "beta": 1},
        {"alpha": 3, "c": COLUMN, "beta": 0},
        {"alpha": 0, "c": ROW_ALIGNED, "beta": 0},
        {"alpha": 0, "c": COLUMN, "beta": -2},
        {"alpha": -1, "in_place": True, "beta": 2},
        {"alpha": 0.5 - 2j, "c": ROW, "beta": 1j},
    ),
    "bias": (0, 1, 2, -1),
    "activation": (None, *ACTIVATIONS),
}

#: Batches, and how the matrices of a, b, out and c follow one another.
BATCHES = (
    {},
    {"batch": 3, "steps": "backwards shared apart apart"},
    {"batch": 5, "steps": "shared backwards interleaved matrix"},
)

#: Random valid cases of which the one with the most new pairs is taken, and the most draws for
#: them: a pair that no draw makes valid is left out.
_VALID_DRAWS, _MOST_DRAWS = 4, 200


def all_pairs(traits=None, **axes):
    """Return cases in which each pair of values of two axes occurs, if a device computes it.

    A case is a dictionary with a value for each axis, or with the options of that value. Without an
    axis of configurations the library chooses, on any device. The cases are the same in every run.
    """
    rng = random.Random(0)
    axes = {name: list(values) for name, values in (PRODUCT_AXES | axes).items()}
    missing = {
        ((one, i), (other, j)): None
        for one, other in combinations(axes, 2)
        for i, j in product(range(len(axes[one])), range(len(axes[other])))
    }
    cases = []
    for pair in list(missing):
        if pair not in missing:
            continue
        valid = []
        for _ in range(_MOST_DRAWS):
            numbers = {name: rng.randrange(len(values)) for name, values in axes.items()}
            numbers |= dict(pair)
            case = _case_of(numbers, axes)
            if is_computed(case, traits):
                pairs = missing.keys() & combinations(numbers.items(), 2)
                valid.append((len(pairs), case, pairs))
            if len(valid) == _VALID_DRAWS:
                break
        if valid:
            _, case, pairs = max(valid, key=lambda draw: draw[0])
            cases.append(case)
            for one in pairs:
                del missing[one]
    return cases


def _case_of(numbers, axes):
    case = {}
    for name, number in numbers.items():
        value = axes[name][number]
        case |= value if isinstance(value, dict) else {name: value}
    return case


def is_computed(case, traits):
    """Whether the library, or a configuration, computes a product on such a device."""
    config, dtype, activation = case.get("config"), case["dtype"], case["activation"]
    factors = case["alpha"], case.get("beta", 1)
    if dtype in COMPLEX_DTYPES:
        fits = activation is None
    elif dtype == "int8":
        fits = activation in (None, "relu") and all(isinstance(one, int) for one in factors)
    else:
        fits = not any(isinstance(one, complex) for one in factors)
    if case.get("pack") and case.get("batch"):
        return False
    if config is None:
        return fits
    named = {name: case.get(name) for name in ("precision", "batch")}
    asked = problem(*case["sizes"], dtype, **named)
    return fits and not violations(config, dtype, traits) and not refusal(config, asked, traits)
