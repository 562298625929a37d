"""The cost of a case in a process of its own, derived from a process that many cases share."""

import pytest

from workbench.worker.start_up import ColdStart, StartUp


def test_the_first_case_of_a_process_has_paid_for_everything() -> None:
    measured = StartUp({"build": 3.0, "compile": 2.0}, 1.0)
    alone = ColdStart().alone(measured, StartUp({"build": 1.0}, 0.1))
    assert alone == StartUp({"build": 1.0, "compile": 2.0, "loading": 2.0}, 1.0)
    assert alone.seconds == measured.seconds


def test_later_cases_get_what_the_first_one_paid_for_loading() -> None:
    process = ColdStart()
    process.alone(StartUp({"build": 3.0, "compile": 2.0}, 1.0), StartUp({"build": 1.0}, 0.1))
    later = process.alone(StartUp({"build": 0.5, "compile": 4.0}, 0.2), StartUp({}, 0.0))
    assert later.phases == {"build": 0.5, "compile": 4.0, "loading": 2.0}, "each compiles alone"
    assert later.first_step_s == pytest.approx(0.9), "the longer one: both load kernels"


def test_a_second_preparation_that_took_longer_means_nothing_was_loaded() -> None:
    process = ColdStart()
    process.alone(StartUp({"build": 1.0}, 0.1), StartUp({"build": 2.0}, 0.3))
    later = StartUp({"build": 0.5}, 0.2)
    assert process.alone(later, later) == StartUp({"build": 0.5, "loading": 0.0}, 0.2)
