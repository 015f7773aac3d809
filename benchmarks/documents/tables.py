"""The tables of the documents, each made from the data by a function of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from benchmarks.documents.figures import geometric_mean, load, ratios, speeds
from benchmarks.documents.summary import summary
from benchmarks.documents.text import case_text, digits, markdown, ratio, tera

#: The tables by the name in their markers.
TABLES: dict[str, Callable[[], str]] = {}

_INTEL, _POCL = "Intel(R) OpenCL", "Portable Computing Language"
_RUNTIMES = {"Intel": _INTEL, "pocl": _POCL}
#: Layers k -> n, as (n, k).
_LAYERS = ((3072, 768), (768, 3072), (1024, 1024), (4096, 1024), (4096, 4096))


def table(name: str) -> Callable[[Callable[[], str]], Callable[[], str]]:
    """Enter a function that makes a table."""

    def enter(function: Callable[[], str]) -> Callable[[], str]:
        TABLES[name] = function
        return function

    return enter


def _of(frame: pd.DataFrame, **values: object) -> pd.DataFrame:
    for column, value in values.items():
        frame = frame[frame[column] == value]
    return frame


@table("speed")
def _speed() -> str:
    return markdown(
        ("device", "compared with", "type", ">products", ">mean speed", ">middle half"),
        (
            (row.device, row.reference, row.type, str(row.count), ratio(row.mean),
             f"{row.low:.2f} to {row.high:.2f}")
            for row in summary()
        ),
    )  # fmt: skip


@table("h100-float32")
def _h100_float32() -> str:
    rows = speeds(_of(load("h100/2026-11-22-products"), dtype="float32"), "pyclgemm", "cuBLAS")
    rows = rows[(rows["m"] > 32) | (rows["n"] != rows["k"])]  # `_h100_few_rows` has the others
    return markdown(
        ("m x n x k", ">pyclgemm, TFLOPS", ">cuBLAS, TFLOPS", ">over cuBLAS"), _compared(rows)
    )


def _compared(rows: pd.DataFrame) -> Iterator[list[str]]:
    """Yield the cells of rows whose last two columns are speeds, with their ratio."""
    first, second = rows.columns[-2:]
    ordered = rows.assign(work=rows["m"] * rows["n"] * rows["k"]).sort_values("work", kind="stable")
    for case, row in ordered.iterrows():
        yield [
            case_text(str(case)), tera(row[first]), tera(row[second]),
            ratio(row[first] / row[second]),
        ]  # fmt: skip


@table("h100-few-rows")
def _h100_few_rows() -> str:
    of_case = ratios(load("h100/2026-11-22-products"), "cuBLAS")
    counts = (1, 2, 4, 8, 16, 32)
    return markdown(
        ("rows m", *(f">{m}" for m in counts)),
        (
            [f"m x {n} x {n}", *(ratio(of_case[f"{m}x{n}x{n}"]) for m in counts)]
            for n in (4096, 1024)
        ),
    )


def _random(*names: str, reference: str = "cuBLAS", least: float = 0.0) -> str:
    """Tabulate the distribution of ratios by type; products below `least` seconds do not count."""
    rows = []
    for name in names:
        for (dtype, precision), part in load(name).groupby(["dtype", "precision"], sort=False):
            taken = part[part["contender"] == "pyclgemm"].set_index("case")["seconds"]
            ratio_of = ratios(part, reference)
            ratio_of = ratio_of[taken[ratio_of.index] >= least]
            low, middle, high = ratio_of.quantile([0.25, 0.5, 0.75])
            kind = dtype if not precision.startswith("TF32") else precision
            rows.append(
                [kind, str(len(ratio_of)), ratio(middle), f"{low:.2f}, {high:.2f}",
                 str(int((ratio_of < 0.5).sum())), ratio(ratio_of.min()),
                 case_text(str(ratio_of.idxmin()))]
            )  # fmt: skip
    headings = ("type", ">shapes", ">median", ">quartiles", ">below 0.5", ">least", "its shape")
    return markdown(headings, rows)


@table("h100-random")
def _h100_random() -> str:
    return _random("h100/2026-11-22-random")


@table("h200-random")
def _h200_random() -> str:
    return _random("h200/2026-11-22-random")


@table("xeon-random")
def _xeon_random() -> str:
    return _random("xeon/2026-11-22-random", reference="NumPy", least=0.2e-3)


@table("h100-matrix-units")
def _h100_matrix_units() -> str:
    frame = load("h100/2026-11-22-matrix-units")
    sizes = (1024, 2048, 4096, 8192)
    true_float32 = speeds(_of(frame, precision="F32_F32_F32"), "cuBLAS")["cuBLAS"]
    half = speeds(_of(frame, precision="F16_F16_F32"), "cuBLAS")["cuBLAS"]
    rows = []
    for precision, own, other, text in (
        ("F16_F16_F32", "pyclgemm", "cuBLAS", ""),
        ("F16_F16_F32", "DenseLayer", "cuBLAS.layer", ", layer"),
        ("BF16_BF16_F32", "pyclgemm", "cuBLAS", ""),
        ("BF16_BF16_F32", "DenseLayer", "cuBLAS.layer", ", layer"),
        ("TF32_TF32_F32", "pyclgemm", "cuBLAS", ""),
        ("F64_F64_F64", "pyclgemm", "cuBLAS", ""),
        ("I8_I8_I32", "pyclgemm", half, ", over F16_F16_F32 of cuBLAS"),
        ("TF32_TF32_F32_X3", "pyclgemm", true_float32, ", over float32 of cuBLAS"),
        ("BF16_BF16_F32_X6", "pyclgemm", true_float32, ", over float32 of cuBLAS"),
        ("F16_F16_F32", "pyclgemm.mma", "cuBLAS", ", only mma.sync"),
    ):
        part = _of(frame, precision=precision)
        if precision == "F16_F16_F32" or precision == "BF16_BF16_F32":
            part = part[part["dtype"] != "float32"]
        named = isinstance(other, str)
        table = speeds(part, own, other) if named else speeds(part, own)
        cells = [f"{precision}{text}"]
        for size in sizes:
            case = f"{size}x{size}x{size}"
            if case not in table.index:
                cells.append("")
                continue
            speed = table.loc[case, own]
            beside = table.loc[case, other] if named else other[case]
            cells.append(f"{tera(speed)} / {tera(beside)}, {ratio(speed / beside)}")
        rows.append(cells)
    return markdown(("precision", *(f">{size}³" for size in sizes)), rows)


def _layer_rows(
    pairs: Sequence[tuple[str, pd.Series]], counts: Sequence[int]
) -> Iterator[list[str]]:
    """Yield a row for each layer: the ratios of both series for each number of rows."""
    for n, k in _LAYERS:
        cells = [f"{k} -> {n}"]
        for m in counts:
            case = f"{m}x{n}x{k}"
            cells.append(", ".join(ratio(of[case]) for _, of in pairs if case in of.index))
        if any(cells[1:]):
            yield cells


@table("h100-layers")
def _h100_layers() -> str:
    counts, rows = (1, 8, 64, 128, 512), []
    for dtype in ("float16", "bfloat16"):
        frame = _of(load("h100/2026-11-22-layers"), dtype=dtype)
        pairs = [("product", ratios(frame, "cuBLAS")),
                 ("layer", ratios(frame, "cuBLAS.layer", "DenseLayer"))]  # fmt: skip
        rows += [[dtype, *cells] for cells in _layer_rows(pairs, counts)]
    return markdown(("type", "layer, rows m", *(f">{m}" for m in counts)), rows)


@table("h100-batches")
def _h100_batches() -> str:
    return _batches("h100/2026-11-22-batches")


@table("h100-clblast")
def _h100_clblast() -> str:
    of_case = speeds(load("h100/2026-11-21-clblast"), "CLBlast")["CLBlast"]
    cases = [case for case in of_case.index if _work(case) >= 256**3]
    return markdown(
        ("m x n x k", *(f">{case_text(case)}" for case in cases)),
        [["TFLOPS", *(tera(of_case[case]) for case in cases)]],
    )


@table("h200-batches")
def _h200_batches() -> str:
    return _batches("h200/2026-11-22-large")


def _batches(name: str) -> str:
    """Tabulate batches of float32 beside torch.bmm and CLBlast."""
    frame = _of(load(name), dtype="float32")
    frame = frame[frame["case"].str.contains("*", regex=False)]
    beside = {name: ratios(frame, name) for name in ("cuBLAS", "CLBlast")}
    rows = speeds(frame, "pyclgemm")["pyclgemm"]
    return markdown(
        ("batch", ">pyclgemm, TFLOPS", ">over torch.bmm", ">over CLBlast"),
        (
            [case_text(case), tera(speed), *(ratio(of[case]) for of in beside.values())]
            for case, speed in rows.items()
        ),
    )


@table("h100-batches-float16")
def _h100_batches_float16() -> str:
    rows = speeds(_of(load("h100/2026-11-22-batches"), dtype="float16"), "pyclgemm", "cuBLAS")
    headings = ("batch", ">pyclgemm, TFLOPS", ">torch.bmm, TFLOPS", ">over torch.bmm")
    return markdown(headings, _compared(rows))


@table("h200-launches")
def _h200_launches() -> str:
    frame = load("h200/2026-11-22-launches")
    rows = []
    for dtype in ("float16", "bfloat16"):
        part = _of(frame, dtype=dtype)
        names = ("pyclgemm", "cuBLAS.stream", "cuBLAS")
        times = part.pivot_table(index="case", columns="contender", values="seconds", sort=False)
        for case, row in times.iterrows():
            rows.append(
                [dtype, case_text(str(case)), *(f"{1e6 * row[name]:.2f}" for name in names),
                 *(ratio(row[name] / row["pyclgemm"]) for name in names[1:])]
            )  # fmt: skip
    headings = (
        "type", "m x n x k", ">pyclgemm, us", ">cuBLAS, stream", ">cuBLAS, graph",
        ">over cuBLAS in a stream", ">in a graph",
    )  # fmt: skip
    return markdown(headings, rows)


@table("h200-large")
def _h200_large() -> str:
    frame = load("h200/2026-11-22-large")
    rows = []
    for dtype in dict.fromkeys(frame["dtype"]):
        for own, other, text in (
            ("pyclgemm", "cuBLAS", ""), ("DenseLayer", "cuBLAS.layer", ", bias and ReLU"),
        ):  # fmt: skip
            single = frame[~frame["case"].str.contains("*", regex=False)]
            part = speeds(_of(single, dtype=dtype), own, other)
            rows += [[dtype, cells[0] + text, *cells[1:]] for cells in _compared(part)]
    headings = ("type", "m x n x k", ">pyclgemm, TFLOPS", ">cuBLAS, TFLOPS", ">over cuBLAS")
    return markdown(headings, rows)


@table("h200-layers")
def _h200_layers() -> str:
    frame = load("h200/2026-11-22-layers")
    columns = {
        heading: ratios(_of(frame, precision=precision), "cuBLAS")
        for heading, precision in (
            ("TF32_TF32_F32", "TF32_TF32_F32"), ("float64", "F64_F64_F64"), ("int8", "I8_I8_I32"),
        )
    }  # fmt: skip
    return markdown(
        ("m x n x k", *(f">{heading}" for heading in columns)),
        (
            [case_text(case), *(ratio(of[case]) if case in of else "" for of in columns.values())]
            for case in dict.fromkeys(frame["case"])
        ),
    )


def _xeon(platform: str, dtype: str = "float32") -> pd.DataFrame:
    return _of(load("xeon/2026-11-22-products"), platform=platform, dtype=dtype)


@table("xeon-squares")
def _xeon_squares() -> str:
    sizes, rows = (256, 512, 1024, 2048), []
    for name, platform in _RUNTIMES.items():
        waited, queued = _waited_and_queued(platform)
        cells = (f"{size}x{size}x{size}" for size in sizes)
        rows.append([name, *(f"{waited[one]:.2f}, {queued[one]:.2f}" for one in cells)])
    return markdown(("", *(f">{size}³" for size in sizes)), rows)


def _waited_and_queued(platform: str) -> tuple[pd.Series, pd.Series]:
    frame = _xeon(platform)
    return ratios(frame, "NumPy"), ratios(frame, "NumPy", "pyclgemm.queued")


@table("xeon-avx2")
def _xeon_avx2() -> str:
    frame = load("xeon/2026-11-22-avx2")
    both = frame["date"] == frame["date"].max()  # a later run, with the runtime's variable
    columns = {
        "NumPy alone": ratios(frame[~both], "NumPy"), "both": ratios(frame[both], "NumPy"),
    }  # fmt: skip
    cases = list(columns["NumPy alone"].index)
    return markdown(
        ("AVX2 in", *(f">{case_text(case)}" for case in cases)),
        ([name, *(ratio(of.get(case, float("nan"))) for case in cases)]
         for name, of in columns.items()),
    )  # fmt: skip


@table("xeon-layers")
def _xeon_layers() -> str:
    counts, rows = (1, 8, 32, 64, 128), []
    for name, platform in _RUNTIMES.items():
        pairs = list(zip(("waited", "queued"), _waited_and_queued(platform), strict=True))
        rows += [[name, *cells] for cells in _layer_rows(pairs, counts)]
    return markdown(("runtime", "layer, rows m", *(f">{m}" for m in counts)), rows)


@table("xeon-other-types")
def _xeon_other_types() -> str:
    columns = {
        (dtype, name): ratios(_xeon(platform, dtype), "NumPy")
        for dtype in ("float64", "complex64")
        for name, platform in _RUNTIMES.items()
    }
    cases = sorted({case for of in columns.values() for case in of.index}, key=_work)
    return markdown(
        ("m x n x k", *(f">{dtype}, {name}" for dtype, name in columns)),
        (
            [case_text(case), *(ratio(of.get(case, float("nan"))) for of in columns.values())]
            for case in cases
        ),
    )


def _work(case: str) -> int:
    m, n, k = map(int, case.split("x"))
    return m * n * k


@table("xeon-batches")
def _xeon_batches() -> str:
    columns = {name: ratios(_xeon(platform), "NumPy") for name, platform in _RUNTIMES.items()}
    cases = [case for case in columns["Intel"].index if "*" in case]
    return markdown(
        ("batch", *(f">{name}" for name in columns)),
        ([case_text(case), *(ratio(of[case]) for of in columns.values())] for case in cases),
    )


def _unseen(name: str) -> str:
    """Tabulate the choices for random shapes by arithmetic, batches and what was hidden."""
    frame = load(name)
    frame = frame.assign(
        hidden=frame["hidden"].fillna(""), batches=frame["batch"].notna(),
        runtime=frame["platform"] if frame["platform"].nunique() > 1 else "",
    )  # fmt: skip
    frame = frame[frame["ratio"].notna()]
    rows = []
    groups = frame.groupby(["runtime", "hidden", "batches", "arithmetic", "standing"], sort=False)
    for (runtime, hidden, batches, arithmetic, standing), part in groups:
        text = f"batches of {arithmetic}" if batches else str(arithmetic)
        text += f" on {runtime}" if runtime else ""
        if hidden:
            known = standing if standing in ("calibrated", "measured") else "not calibrated"
            text += f", without the device's records, {known}"
        worst = part.loc[part["ratio"].idxmin()]
        rows.append(
            [text, str(len(part)), ratio(geometric_mean(part["ratio"])), ratio(worst["ratio"]),
             case_text(worst["case"])]
        )  # fmt: skip
    return markdown(("", ">shapes", ">mean", ">worst", "its shape"), rows)


@table("h200-unseen")
def _h200_unseen() -> str:
    return _unseen("h200/2026-12-01-unseen")


@table("h100-unseen")
def _h100_unseen() -> str:
    return _unseen("h100/2026-11-28-unseen")


@table("h200-stream")
def _h200_stream() -> str:
    rows = []
    for row in load("h200/2026-11-29-stream").itertuples():
        memory = "free" if row.memory_gib == "free" else f"{row.memory_gib} GiB"
        where = "in its memory" if row.contender == "gemm" else memory
        speed = 2.0 * row.m * row.n * row.k / row.seconds
        rows.append(
            [row.contender, row.dtype, str(row.m), str(row.devices), where, f"{row.seconds:.2f}",
             tera(speed)]
        )  # fmt: skip
    return markdown(("", "type", ">m = n = k", ">GPUs", "memory", ">s", ">TFLOPS"), rows)


@table("h200-dask")
def _h200_dask() -> str:
    rows = []
    for workers, some in load("h200/2026-11-29-dask").groupby("workers"):
        seconds = some["seconds"].median()
        speed = 2.0 * some["size"].iloc[0] ** 3 / seconds
        rows.append([str(workers), str(len(some)), f"{seconds:.2f}", tera(speed)])
    return markdown((">processes", ">rounds", ">s", ">TFLOPS"), rows)


@table("xeon-unseen")
def _xeon_unseen() -> str:
    return _unseen("xeon/2026-11-24-unseen")


@table("epyc-unseen")
def _epyc_unseen() -> str:
    return _unseen("epyc/2026-11-29-unseen")


@table("zen5-unseen")
def _zen5_unseen() -> str:
    return _unseen("epyc/2026-12-01-unseen")


@table("h100-transform3d")
def _h100_transform3d() -> str:
    frame = load("h100/2026-11-22-transform3d")
    times = frame.pivot_table(index="K", columns="level", values="us", aggfunc="median")
    roofline = frame.groupby("K")[["roofline_gflops"]].first()["roofline_gflops"]
    speed = frame.pivot_table(index="K", columns="level", values="gflops", aggfunc="median")
    levels = [f"L{number}" for number in range(1, 7)]
    torch = times.filter(like="torch").min(axis=1)
    return markdown(
        ("K", *(f">{level}" for level in levels), ">L5 of the roofline", ">torch",
         ">times torch"),
        (
            [str(extent), *(digits(row[level]) for level in levels),
             ratio(speed.loc[extent, "L5"] / roofline[extent]), digits(torch[extent]),
             ratio(torch[extent] / row["L5"])]
            for extent, row in times.iterrows()
        ),
    )  # fmt: skip


@table("h100-precision")
def _h100_precision() -> str:
    frame = load("h100/2026-11-21-precision")
    frame = frame[frame["verdict"].notna() & frame["seconds"].notna()]
    return markdown(
        ("algorithm", "operands", "result", ">TFLOPS", ">x float32", ">max error", ">rms",
         ">bound"),
        (
            [row["precision"], row["operand"], row["result"], digits(row["tera_per_second"]),
             digits(row["times_f32"]),
             *(f"{row[name]:.1e}" for name in ("largest_error", "rms_error", "bound"))]
            for _, row in frame.iterrows()
        ),
    )  # fmt: skip


@table("techniques")
def _techniques() -> str:
    frame = load("techniques").astype(object)
    frame = frame.where(frame.notna(), "")
    rows, before = [], ("", "")
    for row in frame.itertuples():
        named = (row.technique, row.parameter)
        repeated = row.technique == before[0]
        gain = "" if row.ratio == "" else f"{row.ratio:.{2 if row.ratio < 10 else 0}f}"
        rows.append(
            ["" if repeated else row.technique, "" if named == before else row.parameter,
             row.product, row.pair.replace(" →", "\N{NBSP}→"), gain, str(row.pairs), row.verdict]
        )  # fmt: skip
        before = named
    headings = ("technique", "parameter", "product", "best pair: before → after", ">ratio",
                "pairs (median)", "verdict")  # fmt: skip
    return markdown(headings, rows)
