"""Draw the plots and write the tables of the documents from the data in `benchmarks/figures`."""

from __future__ import annotations

import argparse

from benchmarks.documents.figures import FIGURES, ROOT, index_page
from benchmarks.documents.pages import filled, pages
from benchmarks.documents.pictures import pictures
from benchmarks.documents.tables import TABLES

#: Where the plots are.
PLOTS = ROOT / "docs" / "_static" / "plots"


def main() -> None:
    """Write everything, or only the plots that are named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.documents", description=__doc__)
    known = pictures()
    parser.add_argument("plots", nargs="*", metavar="PLOT", help=f"only these: {', '.join(known)}")
    parser.add_argument("--tables", action="store_true", help="only the tables and the index")
    arguments = parser.parse_args()
    for name in arguments.plots:
        if name not in known:
            parser.error(f"{name!r} is no plot; the plots are {', '.join(known)}")
    if not arguments.plots:
        (FIGURES / "README.md").write_text(index_page(), "utf-8")
        for page in pages():
            text = page.read_text("utf-8")
            if (new := filled(text, TABLES)) != text:
                page.write_text(new, "utf-8")
                print(page.relative_to(ROOT))
    if arguments.tables:
        return
    PLOTS.mkdir(parents=True, exist_ok=True)
    for name, draw in known.items():
        if not arguments.plots or name in arguments.plots:
            # The README shows one of them.
            folder = PLOTS.parent if name == "speed" else PLOTS
            draw(folder / f"{name}.svg")
            print((folder / f"{name}.svg").relative_to(ROOT))


if __name__ == "__main__":
    main()
