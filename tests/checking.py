"""The check of a task as a worker makes it, and how a workload fails."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from workbench.contract import Accuracy, Task, WorkloadError


def checked(task: Task) -> Accuracy:
    """The check, after a step where it judges what the latest one left."""
    if task.checks_latest:
        task.step()
        task.finish()
    return task.check()


@contextmanager
def fails_with(
    code: str, match: str | None = None, hint: str | bool = False
) -> Iterator[pytest.ExceptionInfo[WorkloadError]]:
    """The block fails in one line; `hint` is part of the remedy, or says that there is one."""
    with pytest.raises(WorkloadError, match=match) as caught:
        yield caught
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    if hint:
        assert caught.value.hint if hint is True else hint in str(caught.value.hint)
