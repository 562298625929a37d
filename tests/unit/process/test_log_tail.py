"""The end of a child in words."""

import os
import tempfile

from workbench.process.children import LOG_TAIL_BYTES, log_tail


def test_reading_a_log_leaves_its_writers_position_alone() -> None:
    with tempfile.TemporaryFile() as log:
        os.write(log.fileno(), b"one\n")
        os.lseek(log.fileno(), 2, os.SEEK_SET)
        assert log_tail(log) == "one"
        assert os.lseek(log.fileno(), 0, os.SEEK_CUR) == 2


def test_the_tail_of_a_log_is_its_end() -> None:
    with tempfile.TemporaryFile() as log:
        log.write(b"first" + b"\n" * LOG_TAIL_BYTES + b"last \xff\n")
        assert log_tail(log).endswith("last \N{REPLACEMENT CHARACTER}")
        assert "first" not in log_tail(log)
