"""The products that are measured: suites of shapes, and shapes given as text."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

#: Suites that `all` stands for; `random` is asked for by name.
SUITES = ("square", "dense", "skinny", "odd")

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)(?::([NT])([NT]))?(?:\+(\d+))?")


@dataclass(frozen=True)
class Case:
    """One product ``out = op(a) op(b)``, row-major, out (m, n).

    Attributes
    ----------
    m, n, k : int
        Sizes in elements.
    suite : str
        The suite that it belongs to.
    trans_a, trans_b : bool
        Whether the operand lies transposed in memory.
    padding : int
        Elements between the end of a row and the start of the next, in all three matrices.
    dense : bool
        Whether it stands for a dense layer: constant second operand, bias and activation.
    """

    m: int
    n: int
    k: int
    suite: str = "shapes"
    trans_a: bool = False
    trans_b: bool = False
    padding: int = 0
    dense: bool = False

    @property
    def label(self) -> str:
        """How tables and `parse_shapes` write it."""
        layout = self.layout
        suffix = "" if layout == "NN" else f":{layout}"
        return f"{self.m}x{self.n}x{self.k}{suffix}" + (f"+{self.padding}" if self.padding else "")

    @property
    def layout(self) -> str:
        """Two letters, T for an operand stored transposed and N for one that is not."""
        return "NT"[self.trans_a] + "NT"[self.trans_b]

    @property
    def shape_a(self) -> tuple[int, int]:
        """Shape of a as it is stored."""
        return (self.k, self.m) if self.trans_a else (self.m, self.k)

    @property
    def shape_b(self) -> tuple[int, int]:
        """Shape of b as it is stored."""
        return (self.n, self.k) if self.trans_b else (self.k, self.n)

    @property
    def shape_out(self) -> tuple[int, int]:
        """Shape of the result."""
        return (self.m, self.n)

    def flops(self, dtype: str) -> int:
        """Floating-point operations: 2 m n k, four times as many for a complex type."""
        return (8 if dtype.startswith("complex") else 2) * self.m * self.n * self.k

    def bytes(self, dtype: str) -> int:
        """Bytes that the three matrices take, padding included."""
        elements = sum(
            rows * (columns + self.padding)
            for rows, columns in (self.shape_a, self.shape_b, self.shape_out)
        )
        return elements * np.dtype(dtype).itemsize


def _square() -> list[Case]:
    return [Case(size, size, size, "square") for size in (64 << step for step in range(8))]


def _dense() -> list[Case]:
    """Batches of 1 to 512 through layers as transformers and classifiers have them."""
    layers = ((768, 3072), (3072, 768), (1024, 1024), (1024, 4096), (4096, 4096))
    return [
        Case(batch, outputs, inputs, "dense", dense=True)
        for inputs, outputs in layers
        for batch in (1, 8, 64, 128, 512)
    ]


def _skinny() -> list[Case]:
    """One or two sizes far smaller than the third."""
    few_rows = [(m, size, size) for size in (1024, 4096) for m in (1, 2, 4, 8, 16, 32)]
    others = [
        (65536, 64, 64),  # tall m
        (8192, 128, 128),
        (64, 65536, 64),
        (64, 64, 65536),  # large k
        (16, 16, 100_000),
        (4096, 1, 4096),
    ]
    return [Case(*shape, suite="skinny") for shape in (*few_rows, *others)]


def _odd() -> list[Case]:
    """Primes, sizes just past a tile, rows at odd distances, and every layout."""
    return [
        Case(127, 127, 127, "odd"),
        Case(997, 997, 997, "odd"),
        Case(1009, 1013, 1019, "odd"),
        Case(1000, 1000, 1000, "odd"),
        Case(1000, 1000, 1000, "odd", padding=7),
        Case(1000, 1000, 1000, "odd", trans_b=True, padding=7),
        Case(1024, 1024, 1024, "odd", trans_a=True),
        Case(1024, 1024, 1024, "odd", trans_b=True),
        Case(1024, 1024, 1024, "odd", trans_a=True, trans_b=True),
        Case(35, 8457, 2560, "odd"),
        Case(5124, 700, 2048, "odd"),
        Case(4097, 4097, 4097, "odd"),
    ]


def random_cases(count: int, seed: int = 0, largest: int = 8192) -> list[Case]:
    """Shapes with m, n and k log-uniform in 1...`largest`, in random layouts.

    Parameters
    ----------
    count : int
        How many.
    seed : int
        Equal seeds give equal shapes.
    largest : int
        Bound on each size.
    """
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(0.0, np.log(largest), size=(count, 3))).round().astype(int)
    layouts = rng.integers(0, 2, size=(count, 2)).astype(bool)
    return [
        Case(int(m), int(n), int(k), "random", bool(trans_a), bool(trans_b))
        for (m, n, k), (trans_a, trans_b) in zip(sizes, layouts, strict=True)
    ]


def suite_cases(name: str, *, count: int = 200, seed: int = 0) -> list[Case]:
    """List the products of a suite.

    Parameters
    ----------
    name : str
        One of `SUITES`, "random", or "all".
    count, seed : int
        For "random".
    """
    makers = {"square": _square, "dense": _dense, "skinny": _skinny, "odd": _odd}
    if name == "all":
        return [case for suite in SUITES for case in makers[suite]()]
    if name == "random":
        return random_cases(count, seed)
    if name not in makers:
        raise ValueError(f"suite is {name!r}; known are {', '.join((*SUITES, 'random', 'all'))}")
    return makers[name]()


def parse_shapes(text: str, *, dense: bool = False) -> list[Case]:
    """Read shapes such as ``"1024x1024x1024,64x3072x768:NT,1000x1000x1000+7"``.

    Parameters
    ----------
    text : str
        MxNxK separated by commas; ``:NT`` says which operands lie transposed, ``+7`` puts
        7 elements between rows.
    dense : bool
        Measure them as dense layers too.

    Examples
    --------
    >>> [case.label for case in parse_shapes("64x3072x768:NT,1000x1000x1000+7")]
    ['64x3072x768:NT', '1000x1000x1000+7']
    """
    cases = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _SHAPE.fullmatch(item)
        if match is None or not all(int(size) for size in match.group(1, 2, 3)):
            raise ValueError(
                f"shape is {item!r}; wanted MxNxK with sizes of at least 1, "
                "optionally with :NT (layout) and +7 (padding), such as 64x3072x768:NT"
            )
        m, n, k = (int(size) for size in match.group(1, 2, 3))
        trans_a, trans_b = match.group(4) == "T", match.group(5) == "T"
        padding = int(match.group(6) or 0)
        cases.append(Case(m, n, k, "shapes", trans_a, trans_b, padding, dense))
    if not cases:
        raise ValueError("shapes is empty; wanted MxNxK separated by commas")
    return cases
