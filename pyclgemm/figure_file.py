"""A Matplotlib figure in a file, where Matplotlib is installed."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from .errors import ArgumentError, PyclgemmError
from .user_files import Purpose, write_whole

#: What a plot is to errors of writing.
PLOT = Purpose("the plot", "name another file with --plot")


def new_figure() -> Any:
    """An empty figure that needs no display.

    Raises
    ------
    PyclgemmError
        If Matplotlib is missing.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PyclgemmError('a plot needs Matplotlib: pip install "pyclgemm[profile]"') from error
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Any, path: Path, dpi: int = 150) -> None:
    """Write a figure to a file whose suffix names one of Matplotlib's formats.

    Raises
    ------
    ArgumentError
        If the suffix names no format.
    FileError
        If the file cannot be written.
    """
    image = io.BytesIO()
    try:
        figure.savefig(image, format=path.suffix[1:].lower() or None, dpi=dpi)
    except ValueError as error:
        raise ArgumentError(f"plot is {str(path)!r}, which cannot be written: {error}") from error
    write_whole(path, image.getvalue(), PLOT)
