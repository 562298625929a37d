"""Commands that must start fast import nothing heavy, shown in a subprocess."""

import json
import subprocess
import sys

import pytest
from support import budget

PROBE = """
import json, sys
sys.argv = ["workbench", *{arguments!r}]
from workbench.cli.main import main
try:
    main()
except SystemExit:
    pass
heavy = ("torch", "onnxruntime", "onnx", "textual", "scipy")
print(json.dumps([name for name in heavy if name in sys.modules]), file=sys.stderr)
"""


def heavy_imports(environment: dict[str, str], *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROBE.format(arguments=list(arguments))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return json.loads(done.stderr.strip().splitlines()[-1])


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("detect", "--json"), ("list",), ("open", "last"), ("run", "--help")],
    ids=" ".join,
)
def test_light_commands_import_nothing_heavy(environment, earlier_run, arguments) -> None:
    assert heavy_imports(environment, *arguments) == []


def test_completion_imports_nothing_heavy(environment, earlier_run) -> None:
    words = {"COMP_WORDS": "workbench open ", "COMP_CWORD": "2"}
    asked = {**environment, **words, "_WORKBENCH_COMPLETE": "bash_complete"}
    assert heavy_imports(asked) == []
    asked["COMP_WORDS"] = "workbench advise "
    assert heavy_imports(asked) == []


def test_an_engine_imports_no_backend_even_while_it_runs_them(environment) -> None:
    assert heavy_imports(environment, "run", "spin", *budget(3), "--json") == []


def test_the_screens_import_no_backend_and_no_page_before_it_is_shown(environment) -> None:
    """Drawing takes no time from the candidates that are measured."""
    code = (
        "import sys, screens.app, screens.state.event_source, workbench.cli.main;"
        "heavy = {'torch', 'onnxruntime', 'onnx', 'numpy', 'pynvml'} & sys.modules.keys();"
        "print(*heavy, *(name for name in sys.modules if name.startswith('screens.pages.')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "screens.pages.base"
