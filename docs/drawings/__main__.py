"""Draw all drawings into docs/_static/drawings."""

from __future__ import annotations

from pathlib import Path

from docs.drawings import families, local_memory, products, stream_k, transform, wgmma

FOLDER = Path(__file__).parents[1] / "_static" / "drawings"

DRAWINGS = {
    "local-memory": local_memory.draw,
    "row-major-swap": products.draw_swap,
    "xgemm-and-direct": products.draw_paths,
    "stream-k": stream_k.draw,
    "wgmma": wgmma.draw,
    "transform3d": transform.draw,
    **families.drawings(),
}


def main() -> None:
    """Write every drawing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        draw(FOLDER / f"{name}.svg")
        print(f"docs/_static/drawings/{name}.svg")


if __name__ == "__main__":
    main()
