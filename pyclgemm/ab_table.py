"""What the command line shows of a comparison."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from .ab_record import Record, Side

_STYLES = {"kept": "bold green", "rejected": "bold red", "failed": "bold red"}


def record_table(record: Record) -> Table:
    """Tabulate a comparison, shape by shape, with the verdict below.

    Parameters
    ----------
    record : Record
        Of `pyclgemm.ab.Bench.compare`.
    """
    table = Table(
        title=f"{record.technique}: {record.base} -> {record.change}, {record.types}, "
        f"on {record.device}",
        title_justify="left",
        show_footer=True,
    )
    verdict = Text(record.verdict, style=_STYLES.get(record.verdict, "bold"))
    total = "" if record.ratio is None else f"{record.ratio:.3f} ± {record.spread:.3f}"
    table.add_column("shape", footer=verdict, no_wrap=True)
    table.add_column("GFLOPS before", justify="right")
    table.add_column("after", justify="right")
    table.add_column("ratio", justify="right", footer=total, no_wrap=True)
    table.add_column("limited by", ratio=1, overflow="fold")
    for result in record.results:
        limits = dict.fromkeys(filter(None, map(_limit, (result.before, result.after))))
        table.add_row(
            result.shape,
            _number(result.before.gflops),
            _number(result.after.gflops),
            f"{result.ratio:.3f}",
            " -> ".join(limits),
        )
    for shape, reason in record.skipped.items():
        table.add_row(shape, "-", "-", "-", Text(reason), style="dim")
    return table


def _limit(side: Side) -> str:
    if not side.bottleneck:
        return ""
    return f"{side.bottleneck['limit']} ({side.bottleneck['share']:.0%})"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
