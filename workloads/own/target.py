"""Stand-in."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from workbench.contract import WorkloadError
from workbench.worker.code import Code
from workbench.worker.failures import first_line


def resolve(code: Code) -> Any:
    sys.path.insert(0, code.directory)
    module, _, name = code.target.partition(":")
    return getattr(importlib.import_module(module), name)


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    try:
        yield
    except WorkloadError:
        raise
    except (Exception, SystemExit) as error:
        raise WorkloadError(f"{what}: {first_line(error)}", code="user_code") from error
