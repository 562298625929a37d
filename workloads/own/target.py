"""What the user names, and the errors of the user's code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from workbench.contract import WorkloadError
from workbench.worker.failures import first_line, is_out_of_memory


@contextmanager
def user_errors(what: str) -> Iterator[None]:
    """Turn what the user's code raises into a WorkloadError "user_code" that names `what`."""
    try:
        yield
    except WorkloadError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise WorkloadError(f"{what} raised {first_line(error)}", code="user_code") from error
