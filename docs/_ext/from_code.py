"""Directives whose text is made from the code, so that it cannot become stale.

`kernel-parameters`, `exceptions` and `database-schema` write Markdown, which the page's parser
reads.
"""

import dataclasses
import json
from collections.abc import Iterator

from docutils import nodes
from numpydoc.docscrape import NumpyDocString
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import pyclgemm
from pyclgemm.families.registry import FAMILIES
from pyclgemm.families.tiled.config import DIRECT_NAMES
from pyclgemm.resources import resource_folder


def table(heading: str, rows: list[tuple[str, ...]]) -> Iterator[str]:
    """The lines of a table; `heading` has the names of the columns, separated by bars."""
    yield from ("", f"| {heading} |", "|---" * len(heading.split("|")) + "|")
    for row in rows:
        cells = (" ".join(cell.split()).replace("|", r"\|") for cell in row)
        yield f"| {' | '.join(cells)} |"
    yield ""


def kernel_parameters() -> Iterator[str]:
    """Each family: its products, its parameters with values and meaning, its constraints."""
    for name, family in FAMILIES.items():
        cls = family.config_class
        doc = NumpyDocString(cls.__doc__)
        devices = "CPUs" if family.on_cpu else "GPUs and other accelerators"
        yield from (f"## {name}: `{cls.__name__}`", "", *doc["Summary"], "")
        yield from (*doc["Extended Summary"], "")
        yield f"For {family.role.value}, on {devices}."
        yield from ("", f"![The tile of a kernel](../_static/drawings/family-{name}.svg)")
        own = meanings(cls)
        rows: dict[tuple[str, ...], list[str]] = {}  # names of parameters by what is said of them
        for one in dataclasses.fields(cls):
            said = own.get(one.name) or tiled(one.name)
            row = (values(cls.bounds()[one.name]), default(one), said)
            rows.setdefault(row, []).append(f"`{one.name}`")
        yield from table(
            "parameter | values | default | meaning",
            [(", ".join(names), *row) for row, names in rows.items()],
        )
        yield from ("Constraints:", "")
        yield from (f"- {constraint.rule}" for constraint in family.constraints)
        yield ""


def meanings(cls: type) -> dict[str, str]:
    """What the docstring of a configuration says of its parameters, by name."""
    return {
        name: " ".join(described.desc)
        for described in NumpyDocString(cls.__doc__)["Attributes"]
        for name in described.name.split(", ")
    }


def tiled(name: str) -> str:
    """The meaning of a parameter of the direct path that the indirect path has, too."""
    names = {own: shared for shared, own in DIRECT_NAMES.items()}
    return meanings(pyclgemm.XgemmConfig)[names.get(name, name)]


def values(allowed: object) -> str:
    """The allowed values of a parameter in words."""
    if isinstance(allowed, range):
        return f"{allowed.start} to {allowed.stop - 1}"
    return ", ".join(map(str, allowed))


def default(field: dataclasses.Field) -> str:
    """The default of a parameter; one without must be stated."""
    return "" if field.default is dataclasses.MISSING else str(field.default)


def exceptions() -> Iterator[str]:
    """The public errors and warnings, what else they are, and when they are raised."""
    found = [getattr(pyclgemm, name) for name in pyclgemm.__all__]
    raised = [one for one in found if isinstance(one, type) and issubclass(one, BaseException)]
    yield from table(
        "name | is also | raised if",
        [
            (f"{{class}}`~pyclgemm.{one.__name__}`", also(one), one.__doc__.split("\n\n")[0])
            for one in sorted(raised, key=lambda one: (issubclass(one, Warning), one.__name__))
        ],
    )


def also(cls: type) -> str:
    """The bases of an exception that it is caught by, without the most general ones."""
    general = {cls, Exception, BaseException, object, pyclgemm.PyclgemmError}
    return ", ".join(f"`{base.__name__}`" for base in cls.__mro__ if base not in general)


def database_schema() -> Iterator[str]:
    """Each object of the schema of databases, with its properties."""
    schema = json.loads((resource_folder("databases") / "schema.json").read_text("utf-8"))
    yield from schema_object("A file", schema)
    for name in ("match", "source", "ceilings"):
        yield from schema_object(f"`{name}` of a file", schema["properties"][name])
    yield from schema_object("An entry", schema["$defs"]["entry"])
    for name in ("indirect_from", "like", "model"):
        part = schema["$defs"]["entry"]["properties"][name]
        yield from schema_object(f"`{name}` of an entry", part)
    yield from schema_object("`coefficients`, by path in `model`", schema["$defs"]["coefficients"])
    yield from schema_object("A record", schema["$defs"]["record"])


def schema_object(title: str, part: dict) -> Iterator[str]:
    """A section about an object: its description, and a table of its properties."""
    yield from (f"### {title}", "", part.get("description", ""))
    needed = set(part.get("required", ()))
    yield from table(
        "property | value | needed | meaning",
        [
            (
                f"`{name}`", schema_value(value), "yes" if name in needed else "",
                value.get("description", "").replace("*", r"\*"),
            )
            for name, value in part["properties"].items()
        ],
    )  # fmt: skip


def schema_value(value: dict) -> str:
    """What a property takes, in words."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return {"rate": "number", "coefficient": "number"}.get(name, f"`{name}`")
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if value.get("type") == "array":
        return f"list of {schema_value(value['items'])}"
    limits = [f"{word} {value[key]}" for key, word in _LIMITS.items() if key in value]
    return " ".join([value.get("type", ""), *limits])


_LIMITS = {"minimum": "from", "maximum": "to"}


def _directive(write) -> type[SphinxDirective]:
    class Written(SphinxDirective):
        def run(self) -> list[nodes.Node]:
            text = "\n".join(write())
            return self.parse_text_to_nodes(text, allow_section_headings=True)

    return Written


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives."""
    app.add_directive("kernel-parameters", _directive(kernel_parameters))
    app.add_directive("exceptions", _directive(exceptions))
    app.add_directive("database-schema", _directive(database_schema))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
