"""Wrong use of the commands that measure is named, without a traceback."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from pyclgemm.analysis import ceilings
from pyclgemm.cli.main import main


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ab", "give a --change KEY=VALUE, or --table FILE"),
        ("ab --change KWG", "config is 'KWG'"),
        ("ab --change KWG=x", "'KWG=x' is not of the form"),
        ("ab --base what --change KWG=1", "config is 'what'"),
        ("ab --change KWG=1 --shapes 3x4", "shapes has '3x4'"),
        ("ab --change KWG=1 --rounds 2", "--rounds"),
        ("ab --change KWG=1 --change KWG=2 --technique x", "names one change"),
        ("ab --table no-such-file", "does not exist"),
        ("precision 2x3", "is not of the form MxNxK"),
        ("precision --data odd", "--data"),
        ("profile 2x3", "is not of the form MxNxK"),
        ("profile 2x3x4 --rounds 0", "--rounds"),
    ],
)
def test_what_cannot_be_read_is_named(command, message):
    assert message in failure(command, 2)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("profile 2x3x4 --config FOO=1", "has no parameter FOO"),
        ("profile 2x3x4 --device no-such-device", "device is 'no-such-device'"),
    ],
)
def test_what_cannot_be_done_is_named(monkeypatch, command, message):
    monkeypatch.setattr(ceilings, "ceilings_of", lambda queue, **others: None)
    assert message in failure(command, 1)


def failure(command, code):
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == code
    assert "Traceback" not in result.output
    return " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize("command", ["profile", "ab"])
def test_help_has_an_example(command):
    result = CliRunner().invoke(main, [command, "--help"])
    assert f"python -m pyclgemm {command}" in result.output.split("Example")[1]
