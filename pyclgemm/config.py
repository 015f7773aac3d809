"""Kernel configurations, by CLBlast's parameter names, and the one list of what makes one valid.

The tuner, the database, the selector and a caller's ``config=`` all check with
`violations`, so a configuration that one of them accepts is accepted by all.

Names that CLBlast has mean here what they mean there (C. Nugteren, "CLBlast: A Tuned
OpenCL BLAS Library", IWOCL 2018, section 4). Names of other origin: ``STAGES`` and
``GROUP_M`` are Triton's, ``MR``, ``NR`` and ``KC`` are those of BLIS (F. Van Zee and
R. van de Geijn, ACM TOMS 41(3), 2015).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Union

from .device import DeviceTraits
from .errors import ConfigError
from .precision import is_complex
from .tiling import slab_copy

#: Bytes of an element in local memory; half may be staged as the float it is computed with.
STAGED_BYTES = {"float16": 4, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}


class _Config:
    """What all families share: a readable form, and conversion from and to plain dicts."""

    family: ClassVar[str]

    def as_dict(self) -> dict[str, int]:
        """The parameters by name."""
        return asdict(self)  # type: ignore[call-overload, no-any-return]

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.as_dict().items())


@dataclass(frozen=True)
class XgemmConfig(_Config):
    """The indirect path: operands packed k-major and padded to whole tiles.

    Attributes
    ----------
    MWG, NWG, KWG : int
        Tile of a work-group: rows, columns, and the slab of k that is staged at a time.
    MDIMC, NDIMC : int
        Work-items of a group along rows and columns of the tile.
    MDIMA, NDIMB : int
        Work-items along m while a slab of A is copied, and along n for B.
    KWI : int
        Unrolling of the loop over a slab.
    VWM, VWN : int
        Vector width, in elements, along m (A) and along n (B, C).
    SA, SB : int
        1 stages that operand in local memory, 0 reads it through the caches.
    STRM, STRN : int
        1 interleaves the vectors of the work-items along that dimension, 0 gives each
        work-item a contiguous piece.
    PADA, PADB : int
        Elements added to a row of the staged slab, against local-memory bank conflicts.
    STAGES : int
        2 fetches the next slab into registers and a second buffer while one is used.
    LANES_M : int
        Work-items along m within a run of `LANES_M` * `LANES_N` consecutive ones; a
        sub-group that is nearly square reads less local memory. `MDIMC` means none.
    LANES_N : int
        Likewise along n; 1 with ``LANES_M == MDIMC``.
    GROUP_M : int
        Tile rows that are walked together, column by column, so that groups which run
        at the same time share operands in the L2 cache.
    """

    MWG: int
    NWG: int
    KWG: int
    MDIMC: int
    NDIMC: int
    MDIMA: int
    NDIMB: int
    KWI: int
    VWM: int
    VWN: int
    SA: int = 1
    SB: int = 1
    STRM: int = 1
    STRN: int = 1
    PADA: int = 0
    PADB: int = 0
    STAGES: int = 1
    LANES_M: int = 0
    LANES_N: int = 1
    GROUP_M: int = 1

    family: ClassVar[str] = "indirect"

    def __post_init__(self) -> None:
        if self.LANES_M == 0:
            object.__setattr__(self, "LANES_M", self.MDIMC)

    @property
    def tile_m(self) -> int:
        """Rows of a work-group's tile."""
        return self.MWG

    @property
    def tile_n(self) -> int:
        """Columns of a work-group's tile."""
        return self.NWG

    @property
    def tile_k(self) -> int:
        """Depth of a staged slab."""
        return self.KWG

    @property
    def work_items(self) -> int:
        """Work-items of a group."""
        return self.MDIMC * self.NDIMC

    def local_elements(self) -> int:
        """Elements of local memory that a work-group holds."""
        staged_a = self.SA * (self.MWG + self.PADA)
        staged_b = self.SB * (self.NWG + self.PADB)
        return self.STAGES * self.KWG * (staged_a + staged_b)


@dataclass(frozen=True)
class XgemmDirectConfig(_Config):
    """The direct path: operands read where they lie, in any layout, with bounds checks.

    Attributes
    ----------
    WGD : int
        Rows and columns of the tile of a work-group.
    KWGD : int
        Slab of k that is staged at a time (CLBlast fixes it to `WGD`).
    MDIMCD, NDIMCD : int
        Work-items of a group along rows and columns of the tile.
    MDIMAD, NDIMBD : int
        Work-items along the unit-stride index while a slab of A, or of B, is copied
        whose unit-stride index is m, or n. Along k it follows from the slab's depth.
    KWID : int
        Unrolling of the loop over a slab.
    VWMD, VWND : int
        Vector width, in elements, along m and along n.
    PADA, PADB : int
        Elements added to a row of the staged slab, against local-memory bank conflicts.
    STAGES : int
        2 fetches the next slab into registers and a second buffer while one is used.
    LANES_M, LANES_N : int
        As for `XgemmConfig`.
    RUN_K : int
        Elements that neighbouring work-items read side by side where k is the unit-stride
        index, if the slab divides so. Long runs use whole cache lines, short ones leave
        work-items side by side in other rows, which meet fewer bank conflicts as they
        write the slab k-major.
    """

    WGD: int
    MDIMCD: int
    NDIMCD: int
    MDIMAD: int
    NDIMBD: int
    KWID: int
    VWMD: int
    VWND: int
    PADA: int = 1
    PADB: int = 1
    KWGD: int = 0
    STAGES: int = 1
    LANES_M: int = 0
    LANES_N: int = 1
    RUN_K: int = 8

    family: ClassVar[str] = "direct"

    def __post_init__(self) -> None:
        if self.KWGD == 0:
            object.__setattr__(self, "KWGD", self.WGD)
        if self.LANES_M == 0:
            object.__setattr__(self, "LANES_M", self.MDIMCD)

    def as_xgemm(self) -> XgemmConfig:
        """The same tiling in `XgemmConfig`'s names, for what both families share."""
        return XgemmConfig(
            MWG=self.WGD, NWG=self.WGD, KWG=self.KWGD,
            MDIMC=self.MDIMCD, NDIMC=self.NDIMCD, MDIMA=self.MDIMAD, NDIMB=self.NDIMBD,
            KWI=self.KWID, VWM=self.VWMD, VWN=self.VWND, PADA=self.PADA, PADB=self.PADB,
            STAGES=self.STAGES, LANES_M=self.LANES_M, LANES_N=self.LANES_N,
        )  # fmt: skip


@dataclass(frozen=True)
class CpuConfig(_Config):
    """CPU devices: one work-item a core, explicit vectors, operands packed by the item.

    Attributes
    ----------
    MR : int
        Rows of the register tile.
    NR : int
        Columns of the register tile, in elements.
    KC : int
        Depth of a block of k; a packed panel of B is KC x NR.
    VW : int
        Vector width in elements; `NR` is a multiple of it. A complex element counts once
        and takes two components.
    """

    MR: int
    NR: int
    KC: int
    VW: int

    family: ClassVar[str] = "cpu"


Config = Union[XgemmConfig, XgemmDirectConfig, CpuConfig]

#: The configuration class of each path.
FAMILIES: dict[str, type[Any]] = {
    cls.family: cls for cls in (XgemmConfig, XgemmDirectConfig, CpuConfig)
}


def config_from_dict(family: str, parameters: Mapping[str, Any]) -> Config:
    """Build the configuration of a family from its parameters by name.

    Raises
    ------
    ConfigError
        If the family or a parameter is unknown, one is missing, or a value is not an
        integer.

    Examples
    --------
    >>> print(config_from_dict("cpu", {"MR": 6, "NR": 64, "KC": 512, "VW": 16}))
    MR=6 NR=64 KC=512 VW=16
    """
    if family not in FAMILIES:
        raise ConfigError(f"path is {family!r}; known paths are {', '.join(FAMILIES)}")
    cls = FAMILIES[family]
    known = {field.name for field in fields(cls)}
    if unknown := sorted(set(parameters) - known):
        raise ConfigError(
            f"{cls.__name__} has no parameter {', '.join(unknown)}; it has {', '.join(sorted(known))}"
        )
    for name, value in parameters.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{name} is {value!r}; a configuration parameter is an integer")
    try:
        config: Config = cls(**parameters)
    except TypeError as error:
        raise ConfigError(f"{cls.__name__} lacks a parameter: {error}") from None
    return config

def as_config(config: Config | Mapping[str, Any]) -> Config:
    """Accept a configuration, or its parameters by name with "path", the family.

    Raises
    ------
    ConfigError
        If `config` is neither, or names no family.
    """
    if isinstance(config, _Config):
        return config  # type: ignore[return-value]
    if not isinstance(config, Mapping) or "path" not in config:
        raise ConfigError(
            f"config is {config!r}; an XgemmConfig, an XgemmDirectConfig, a CpuConfig, or a mapping "
            "with 'path' and the parameters of that family is wanted"
        )
    parameters = dict(config)
    return config_from_dict(parameters.pop("path"), parameters)


# --------------------------------------------------------------------------------------
# Constraints
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Constraint:
    """One condition, the families that it binds, and how to state both of its sides."""

    rule: str
    families: tuple[str, ...]
    holds: Callable[[Any, str, DeviceTraits | None], bool]
    values: Callable[[Any, str, DeviceTraits | None], str]


def _divides(rule: str, families: tuple[str, ...], whole: str, *parts: str) -> Constraint:
    """`whole` must be a multiple of the product of `parts`."""

    def product(config: Any) -> int:
        result = 1
        for part in parts:
            result *= getattr(config, part)
        return result

    return Constraint(
        rule,
        families,
        lambda config, dtype, traits: getattr(config, whole) % product(config) == 0,
        lambda config, dtype, traits: (
            f"{whole} is {getattr(config, whole)}, {' * '.join(parts)} is {product(config)}"
        ),
    )


def _one_of(name: str, families: tuple[str, ...], allowed: tuple[int, ...]) -> Constraint:
    return Constraint(
        f"{name} must be one of {', '.join(map(str, allowed))}",
        families,
        lambda config, dtype, traits: getattr(config, name) in allowed,
        lambda config, dtype, traits: f"{name} is {getattr(config, name)}",
    )


def local_bytes(config: XgemmConfig, dtype: str) -> int:
    """Bytes of local memory of a work-group."""
    return config.local_elements() * STAGED_BYTES[dtype]


_GPU = ("indirect", "direct")
_ALL = ("indirect", "direct", "cpu")
_VECTORS = (1, 2, 4, 8, 16)


def _tiles(config: Any) -> XgemmConfig:
    tiles: XgemmConfig = config.as_xgemm() if isinstance(config, XgemmDirectConfig) else config
    return tiles


def _gpu(
    rule: str,
    holds: Callable[[XgemmConfig, str, DeviceTraits | None], bool],
    values: Callable[[XgemmConfig, str, DeviceTraits | None], str],
) -> Constraint:
    """A constraint on the tiling that both GPU families share."""
    return Constraint(
        rule,
        _GPU,
        lambda config, dtype, traits: holds(_tiles(config), dtype, traits),
        lambda config, dtype, traits: values(_tiles(config), dtype, traits),
    )


CONSTRAINTS: tuple[Constraint, ...] = (
    Constraint(
        "every parameter except SA, SB, STRM, STRN, PADA and PADB must be at least 1",
        _ALL,
        lambda config, dtype, traits: all(
            value >= (0 if name in ("SA", "SB", "STRM", "STRN", "PADA", "PADB") else 1)
            for name, value in config.as_dict().items()
        ),
        lambda config, dtype, traits: f"they are {config}",
    ),
    *(_one_of(name, ("indirect",), (0, 1)) for name in ("SA", "SB", "STRM", "STRN")),
    *(_one_of(name, ("indirect",), _VECTORS) for name in ("VWM", "VWN")),
    *(_one_of(name, ("direct",), _VECTORS) for name in ("VWMD", "VWND")),
    _one_of("VW", ("cpu",), _VECTORS),
    _one_of("STAGES", _GPU, (1, 2)),
    _gpu(
        "a vector of a complex type must fit OpenCL's 16 components",
        lambda c, dtype, traits: not is_complex(dtype) or max(c.VWM, c.VWN) <= 8,
        lambda c, dtype, traits: f"{dtype} with vector widths {c.VWM} and {c.VWN}",
    ),
    _gpu(
        "the rows of the tile must divide among work-items and vectors",
        lambda c, dtype, traits: c.MWG % (c.MDIMC * c.VWM) == 0,
        lambda c, dtype, traits: f"{c.MWG} rows, {c.MDIMC} work-items, vectors of {c.VWM}",
    ),
    _gpu(
        "the columns of the tile must divide among work-items and vectors",
        lambda c, dtype, traits: c.NWG % (c.NDIMC * c.VWN) == 0,
        lambda c, dtype, traits: f"{c.NWG} columns, {c.NDIMC} work-items, vectors of {c.VWN}",
    ),
    _gpu(
        "the slab's depth must be a multiple of the unrolling",
        lambda c, dtype, traits: c.KWG % c.KWI == 0,
        lambda c, dtype, traits: f"depth {c.KWG}, unrolling {c.KWI}",
    ),
    _gpu(
        "a slab of A must divide among the work-items that copy it",
        lambda c, dtype, traits: (
            c.work_items % c.MDIMA == 0
            and slab_copy(c.MWG, c.KWG, c.work_items, c.VWM, c.MDIMA) is not None
        ),
        lambda c, dtype, traits: (
            f"{c.KWG} x {c.MWG} elements, {c.work_items} work-items, {c.MDIMA} of them along m, "
            f"vectors of {c.VWM}"
        ),
    ),
    _gpu(
        "a slab of B must divide among the work-items that copy it",
        lambda c, dtype, traits: (
            c.work_items % c.NDIMB == 0
            and slab_copy(c.NWG, c.KWG, c.work_items, c.VWN, c.NDIMB) is not None
        ),
        lambda c, dtype, traits: (
            f"{c.KWG} x {c.NWG} elements, {c.work_items} work-items, {c.NDIMB} of them along n, "
            f"vectors of {c.VWN}"
        ),
    ),
    Constraint(
        "a slab whose unit-stride index is k must divide among the work-items",
        ("direct",),
        lambda config, dtype, traits: (
            slab_copy(config.KWGD, config.WGD, _tiles(config).work_items, 1) is not None
        ),
        lambda config, dtype, traits: (
            f"{config.WGD} x {config.KWGD} elements, {_tiles(config).work_items} work-items"
        ),
    ),
    _gpu(
        "padding must keep the vectors of a staged slab aligned",
        lambda c, dtype, traits: c.PADA % c.VWM == 0 and c.PADB % c.VWN == 0,
        lambda c, dtype, traits: (
            f"PADA {c.PADA} with vectors of {c.VWM}, PADB {c.PADB} with vectors of {c.VWN}"
        ),
    ),
    _gpu(
        "the work-items must divide into runs of LANES_M * LANES_N",
        lambda c, dtype, traits: c.MDIMC % c.LANES_M == 0 and c.NDIMC % c.LANES_N == 0,
        lambda c, dtype, traits: (
            f"{c.MDIMC} x {c.NDIMC} work-items, runs of {c.LANES_M} x {c.LANES_N}"
        ),
    ),
    _gpu(
        "two stages need both operands in local memory",
        lambda c, dtype, traits: c.STAGES == 1 or (c.SA == 1 and c.SB == 1),
        lambda c, dtype, traits: f"STAGES is {c.STAGES}, SA is {c.SA}, SB is {c.SB}",
    ),
    _divides("NR must be a multiple of VW", ("cpu",), "NR", "VW"),
    # Rows of the packed A are KC apart, and the panel of B follows them: both are read by vectors.
    _divides("KC must be a multiple of VW", ("cpu",), "KC", "VW"),
    Constraint(
        "a vector of a complex type must fit OpenCL's 16 components",
        ("cpu",),
        lambda config, dtype, traits: not is_complex(dtype) or config.VW <= 8,
        lambda config, dtype, traits: f"{dtype} with vector width {config.VW}",
    ),
    _gpu(
        "the work-group must not exceed the device's limit",
        lambda c, dtype, traits: traits is None or c.work_items <= traits.max_work_group_size,
        lambda c, dtype, traits: (
            f"{c.work_items} work-items, limit {traits.max_work_group_size if traits else '-'}"
        ),
    ),
    _gpu(
        "the staged slabs must fit the device's local memory",
        lambda c, dtype, traits: (
            traits is None or local_bytes(c, dtype) <= traits.local_memory_bytes
        ),
        lambda c, dtype, traits: (
            f"{local_bytes(c, dtype)} bytes, limit {traits.local_memory_bytes if traits else '-'}"
        ),
    ),
)


def violations(config: Config, dtype: str, traits: DeviceTraits | None = None) -> list[str]:
    """State every constraint that a configuration breaks.

    Parameters
    ----------
    config : XgemmConfig, XgemmDirectConfig or CpuConfig
        The configuration.
    dtype : str
        NumPy name of the operands' element type.
    traits : DeviceTraits, optional
        The device; without it its limits are not checked.

    Returns
    -------
    list of str
        One sentence each, with the values on both sides; empty if the configuration is valid.

    Examples
    --------
    >>> violations(CpuConfig(MR=6, NR=40, KC=512, VW=16), "float32")
    ['NR must be a multiple of VW: NR is 40, VW is 16']
    """
    broken = []
    for constraint in CONSTRAINTS:
        if config.family not in constraint.families:
            continue
        try:
            fine = constraint.holds(config, dtype, traits)
        except ZeroDivisionError:  # a zero parameter, which the first constraint reports
            continue
        if not fine:
            broken.append(f"{constraint.rule}: {constraint.values(config, dtype, traits)}")
    return broken


def check_config(config: Config, dtype: str, traits: DeviceTraits | None = None) -> None:
    """Raise `ConfigError`, with every broken constraint, unless `config` is valid."""
    if broken := violations(config, dtype, traits):
        raise ConfigError(f"{type(config).__name__}({config}): " + "; ".join(broken))
