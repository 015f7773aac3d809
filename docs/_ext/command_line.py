"""The commands of ``python -m pyclgemm``, for sphinx-click.

It does not find commands that are loaded on demand, and reads their help as reStructuredText.
"""

import click

from pyclgemm.cli.main import main as _group


def _plain(text: str | None) -> str | None:
    return text and text.replace("*", r"\*").replace("|", r"\|")


def _loaded(name: str, context: click.Context) -> click.Command:
    command = _group.get_command(context, name)
    command.help = _plain(command.help)
    for option in command.params:
        if isinstance(option, click.Option):
            option.help = _plain(option.help)
    return command


main = click.Group(
    "pyclgemm",
    {name: _loaded(name, click.Context(_group)) for name in _group.list_commands(None)},
    help=_group.help,
    epilog=_group.epilog,
    params=_group.params,
    context_settings=_group.context_settings,
)
