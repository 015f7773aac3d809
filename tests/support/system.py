"""Processes that tests start, and what the command line prints."""

import os
import subprocess
import sys
import time
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from pyclgemm.cli.main import main
from pyclgemm.device.discovery import working_devices

#: The folder of the source tree.
ROOT = Path(__file__).resolve().parents[2]


def tree_first(environment=os.environ):
    """An environment whose Python imports this tree, and then what this process can."""
    path = (str(ROOT), environment.get("PYTHONPATH"))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, path))}


def start_python(*arguments, environment=os.environ, **options):
    """Start Python with this tree; its output and errors are one text, unless options say else."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, env=tree_first(environment), **pipes | options)


def ended(process, *statuses):
    """What a process prints that ends with one of these statuses: never a traceback."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode in statuses, output[-4000:]
    assert "Traceback" not in output
    return output


def is_running(pid):
    """Whether a process still runs; one that has ended may be left for init to collect."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, what, seconds=60.0, pause=0.02):
    """What a condition gives once it is true; fail with `what` if that takes too long."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(pause)
    return found


def text_of(table):
    console = Console(width=160)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def output_of(*arguments, code=0, command=main, width=120):
    """What a command prints that ends with this status, or one of these: never a traceback."""
    runner = CliRunner(env={"COLUMNS": width and str(width)})
    result = runner.invoke(command, [str(one) for one in arguments])
    codes = code if isinstance(code, tuple) else (code,)
    assert result.exit_code in codes, result.output
    assert "Traceback" not in result.output
    return result.output


def rank_of(device):
    """The number by which ``--device`` names a device."""
    return str([one.device for one in working_devices()].index(device))
