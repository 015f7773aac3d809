"""The content of a database file as frozen dataclasses, and its entries as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NoReturn, get_args

from ..codegen.config import Config
from ..device.traits import DeviceTraits
from ..errors import ConfigError, DatabaseError, shown
from ..families.cost import Coefficients
from ..families.family import Role
from ..families.registry import FAMILIES, config_from_dict, family_of, violations
from ..problem.bounds import ALIGNMENTS, BATCHES, FASTEST, SIZES, SLOWEST, is_integer, wanted
from ..problem.matrix import MAX_ALIGNMENT
from ..problem.shape import LAYOUTS, GemmShape

#: The levels of files, from the most to the least specific.
LEVELS = ("device", "architecture", "vendor", "generic")

#: The kinds of products that records are measured on, in the order of a file.
Kind = Literal["single", "batch", "small"]

#: Alignment of rows, in elements, that allows every vector type of OpenCL C.
ALIGNED = MAX_ALIGNMENT


def kind_of(traits: DeviceTraits) -> Literal["gpu", "cpu"]:
    """The type of a device as `Match` names it."""
    return "cpu" if traits.type == "cpu" else "gpu"


@dataclass(frozen=True)
class Match:
    """The devices that a file covers; a name that is None matches every device."""

    level: Literal["device", "architecture", "vendor", "generic"]  # how specific the file is
    type: Literal["gpu", "cpu"]  # an accelerator counts as a gpu
    # As in `DeviceTraits`; `device` is its `name`.
    vendor: str | None = None
    architecture: str | None = None
    device: str | None = None
    core: str | None = None

    @property
    def order(self) -> tuple[int, bool]:
        """Sorts the most specific match first."""
        return LEVELS.index(self.level), self.core is None

    def fits(self, traits: DeviceTraits) -> bool:
        """Whether the file covers the device."""
        return (
            self.type == kind_of(traits)
            and self.vendor in (None, traits.vendor)
            and self.architecture in (None, traits.architecture)
            and self.device in (None, traits.name)
            and self.core in (None, traits.core)
        )

    def __str__(self) -> str:
        if self.level == "device":
            return str(self.device)
        if self.level == "architecture":
            core = f" ({self.core})" if self.core else ""
            return f"{self.vendor or self.type}/{self.architecture}{core}"
        return f"{self.vendor if self.level == 'vendor' else 'generic'}/{self.type}"


@dataclass(frozen=True)
class Source:
    """Where the numbers of a file come from: a kind, and a text that `explain` prints."""

    kind: Literal["measured", "published", "default"]
    text: str


@dataclass(frozen=True)
class Threshold:
    """The sizes from which the indirect path is faster; one of the two conditions is enough."""

    mnk: int | None = None  # least m * n * k
    m_or_n: int | None = None  # least value of the larger of m and n

    def compare(self, m: int, n: int, k: int) -> tuple[bool, str]:
        """Whether these sizes reach the threshold, and the comparison that decides, as text."""
        sides = ("m*n*k", m * n * k, self.mnk), ("max(m, n)", max(m, n), self.m_or_n)
        below = []
        for name, value, limit in sides:
            if limit is None:
                continue
            if value >= limit:
                return True, f"{name} = {_number(value, limit)} is at least {_number(limit, value)}"
            below.append(f"{name} = {_number(value, limit)} is below {_number(limit, value)}")
        return False, " and ".join(below)


def _number(value: int, other: int) -> str:
    """A short form, unless the other number has the same short form."""
    if value < 100_000 or f"{value:.1e}" == f"{other:.1e}":
        return str(value)
    return f"{value:.1e}".replace("e+", "e").replace("e0", "e")


@dataclass(frozen=True)
class Model:
    """Coefficients of predicted times, and where they come from."""

    source: str  # the device and the measurements
    date: str  # ISO 8601
    paths: Mapping[str, Coefficients] = field(hash=False)  # by family

    @classmethod
    def read(cls, document: dict[str, Any]) -> Model:
        """Parse the JSON object of a file."""
        paths = {path: Coefficients.of(one) for path, one in document["paths"].items()}
        return cls(document["source"], document["date"], paths)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON object; coefficients have three digits."""
        paths = {
            path: {name: float(f"{value:.3g}") for name, value in vars(coefficients).items()}
            for path, coefficients in self.paths.items()
        }
        return {"source": self.source, "date": self.date, "paths": paths}


@dataclass(frozen=True)
class Record:
    """A configuration, and the product that it was measured on."""

    #: The product; its result is row-major. Kernels for small products compute only batches:
    #: without a batch, their record stands for batches of any number of products.
    shape: GemmShape
    config: Config  # its family is the path
    gflops: float | None = None  # the speed measured at that shape
    #: Alignment of the rows of operands and result, in elements, a power of two. None for
    #: contiguous matrices, whose alignment follows from their sizes.
    alignment: int | None = None
    packed: bool = False  # B was packed ahead; the speed does not include packing
    #: A time from which predictions learn, though another configuration may be faster on this very
    #: product: the record does not decide for it.
    sample: bool = False

    @property
    def kind(self) -> Kind:
        """A single product, a batch, or a batch for kernels of small products."""
        if family_of(self.config).role is Role.SMALL_BATCH:
            return "small"
        return "single" if self.shape.batch is None else "batch"

    @property
    def product(self) -> tuple[Any, ...]:
        """The product by which a file sorts its records: its kind, sizes and places in memory."""
        kind, shape = get_args(Kind).index(self.kind), self.shape
        return kind, shape.sizes, shape.layout, self.alignment or 0, shape.batch or 0, self.packed

    def __str__(self) -> str:
        aligned = "" if self.alignment is None else f" with rows aligned to {self.alignment}"
        return f"{self.shape}{aligned}{' with B packed' if self.packed else ''}"


@dataclass(frozen=True)
class Entry:
    """The records of a file for one element type and arithmetic."""

    dtype: str  # NumPy's name
    precision: str  # JAX's name
    own: tuple[Record, ...]  # the entry's own records, in the order of the file
    indirect_from: Threshold | None = None  # None where predicted times decide
    like: Entry | None = None  # an entry of the same file whose records count here too
    fitted: Model | None = None  # fitted to measured times of this type and arithmetic

    @property
    def model(self) -> Mapping[str, Coefficients]:
        """The coefficients of predicted times by family, fitted here or else for `like`."""
        models = (self.like.fitted if self.like else None, self.fitted)
        return {path: one for model in models if model for path, one in model.paths.items()}

    @property
    def name(self) -> tuple[str, str]:
        """Element type and arithmetic, the key of an entry in its file."""
        return self.dtype, self.precision

    @cached_property
    def borrowed(self) -> tuple[Record, ...]:
        """The records of `like` that count here, without the speed, which is of another type.

        A record is left out if the entry has its own record of the same path and product, or if
        the configuration is invalid for the entry's element type. A record of another path stays:
        drivers may refuse the path of the entry's own record.
        """
        if self.like is None:
            return ()
        known = {_key(record) for record in self.own if not record.sample}
        return tuple(
            replace(record, gflops=None)
            for record in self.like.own
            if not record.sample
            and _key(record) not in known
            and not violations(record.config, self.dtype)
        )

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """The entry's own records, then the borrowed ones."""
        return (*self.own, *self.borrowed)


def _key(record: Record) -> tuple[str, GemmShape, int | None, bool]:
    return record.config.family, record.shape, record.alignment, record.packed


def _is_speed(value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and SLOWEST <= value <= FASTEST


#: The required keys of a record; and for each optional key the check of a value, and its wording.
_REQUIRED = ("path", "shape", "config")
_OPTIONAL: dict[str, tuple[Callable[[Any], bool], str]] = {
    "layout": (LAYOUTS.__contains__, f"one of {', '.join(LAYOUTS)}"),
    "alignment": (partial(is_integer, allowed=ALIGNMENTS), wanted(ALIGNMENTS)),
    "batch": (partial(is_integer, allowed=BATCHES), wanted(BATCHES)),
    "packed": (lambda value: value is True, "true"),
    "sample": (lambda value: value is True, "true"),
    "gflops": (_is_speed, f"a number of {SLOWEST:g} to {FASTEST:g}"),
}

#: Cached: many records have the same configuration.
_violations = lru_cache(1024)(violations)


def read_record(document: Any, dtype: str, where: str) -> Record:
    """Parse the JSON object of a record, whose configuration must be valid for `dtype`.

    `DatabaseError` names the faulty part; `where` is the position of the record in its file.
    """
    if not isinstance(document, dict):
        raise DatabaseError(f"{where} is {shown(document)}: an object is wanted")
    for name in document:
        if name not in _REQUIRED and name not in _OPTIONAL:
            raise DatabaseError(
                f"{where} has {shown(name)}: known are {', '.join((*_REQUIRED, *_OPTIONAL))}"
            )
    for name in _REQUIRED:
        if name not in document:
            raise DatabaseError(f"{where} lacks {name!r}, which is required")
    family, sizes, parameters = (document[name] for name in _REQUIRED)
    if not isinstance(family, str) or family not in FAMILIES:
        _refuse(f"{where}.path", family, f"one of {', '.join(FAMILIES)}")
    is_shape = isinstance(sizes, list) and len(sizes) == 3
    if not is_shape or not all(is_integer(size, SIZES) for size in sizes):
        _refuse(f"{where}.shape", sizes, f"a list of m, n and k, each {wanted(SIZES)},")
    for name, (is_valid, expected) in _OPTIONAL.items():
        if name in document and not is_valid(document[name]):
            _refuse(f"{where}.{name}", document[name], expected)
    if not isinstance(parameters, dict):
        _refuse(f"{where}.config", parameters, "an object with parameters by name")
    try:
        config = config_from_dict(family, parameters)
    except ConfigError as error:
        raise DatabaseError(f"{where}.config: {error}") from None
    if broken := _violations(config, dtype):
        raise DatabaseError(f"{where}.config is {config}: {'; '.join(broken)}")
    m, n, k = sizes
    shape = GemmShape(m, n, k, document.get("layout", "NN"), batch=document.get("batch"))
    gflops, alignment = document.get("gflops"), document.get("alignment")
    return Record(shape, config, gflops, alignment, "packed" in document, "sample" in document)


def _refuse(where: str, value: object, expected: str) -> NoReturn:
    raise DatabaseError(f"{where} is {shown(value)}: {expected} is wanted")


def record_document(record: Record) -> dict[str, Any]:
    """The JSON object of a record, without default values."""
    shape = record.shape
    document = {
        "path": record.config.family,
        "shape": list(shape.sizes),
        "layout": None if shape.layout == "NN" else shape.layout,
        "alignment": record.alignment,
        "batch": shape.batch,
        "packed": record.packed or None,
        "sample": record.sample or None,
        "gflops": record.gflops,
        "config": record.config.as_dict(),
    }
    return without_none(document)


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """The items whose value is not None."""
    return {name: value for name, value in values.items() if value is not None}


def entry_document(entry: Entry) -> dict[str, Any]:
    """The JSON object of an entry, without borrowed records."""
    threshold, like = entry.indirect_from, entry.like
    document = {
        "dtype": entry.dtype,
        "precision": entry.precision,
        "indirect_from": without_none(vars(threshold)) if threshold else None,
        "like": {"dtype": like.dtype, "precision": like.precision} if like else None,
        "model": entry.fitted.document if entry.fitted else None,
        "records": [record_document(record) for record in entry.own],
    }
    return without_none(document)


def read_entries(
    documents: Sequence[dict[str, Any]], file: str
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """The entries of a file that matches the schema, and messages about unusable records."""
    names = list(map(name_of, documents))
    for index, name in enumerate(names):
        if name in names[:index]:
            raise DatabaseError(
                f"{file}: $.entries[{index}] is a second entry for {' by '.join(name)}; one entry "
                "with all records is wanted"
            )
    refused: list[str] = []
    entries = [
        _read_entry(document, f"{file}: $.entries[{index}]", refused)
        for index, document in enumerate(documents)
    ]
    for index, document in enumerate(documents):
        if "like" in document:
            lender = entries[_lender(documents, index, file)]
            entries[index] = replace(entries[index], like=lender)
    return tuple(entries), tuple(refused)


def _read_entry(document: dict[str, Any], where: str, refused: list[str]) -> Entry:
    """An entry with the usable records; messages about the others are added to `refused`."""
    (dtype, precision), threshold = name_of(document), document.get("indirect_from")
    records = []
    for index, record in enumerate(document["records"]):
        try:
            records.append(read_record(record, dtype, f"{where}.records[{index}]"))
        except DatabaseError as error:
            refused.append(str(error))
    return Entry(
        dtype,
        precision,
        tuple(records),
        Threshold(**threshold) if threshold is not None else None,
        fitted=Model.read(document["model"]) if "model" in document else None,
    )


def _lender(documents: Sequence[dict[str, Any]], borrower: int, file: str) -> int:
    """The index of the entry that entry number `borrower` is like; it has no like itself."""
    names = list(map(name_of, documents))
    wanted, own = name_of(documents[borrower]["like"]), names[borrower]
    lenders = [
        index
        for index, document in enumerate(documents)
        if "like" not in document and names[index] != own
    ]
    for index in lenders:
        if names[index] == wanted:
            return index
    fault = "of which the file has no entry"
    if wanted in names:
        fault = "the entry itself" if wanted == own else "which is like another itself"
    listed = ", ".join(" by ".join(names[index]) for index in lenders) or "it has none"
    raise DatabaseError(
        f"{file}: $.entries[{borrower}].like is {' by '.join(wanted)}, {fault}; wanted is "
        f"another entry of the file that has no like: {listed}"
    )


def name_of(document: Mapping[str, Any]) -> tuple[str, str]:
    """The element type and the arithmetic of an entry's JSON object."""
    return document["dtype"], document["precision"]
