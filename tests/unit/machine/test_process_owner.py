"""Name and user of a process."""

import getpass
import os
from pathlib import Path

from workbench.machine.nvidia.gpu_fields import gpu_process


def test_a_process_of_this_machine_has_a_name_and_a_user() -> None:
    found = gpu_process(os.getpid(), 5)
    assert (found.pid, found.used_memory_bytes) == (os.getpid(), 5)
    assert found.name and found.user == getpass.getuser()


def test_a_number_of_another_namespace_has_neither(tmp_path: Path) -> None:
    found = gpu_process(4711, None, tmp_path)
    assert (found.name, found.user) == (None, None)


def test_a_name_that_would_steer_a_terminal_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "proc/4711").mkdir(parents=True)
    (tmp_path / "proc/4711/comm").write_text("\x1b[31mred\n")
    assert gpu_process(4711, None, tmp_path).name == r"\x1b[31mred"
