"""A ReFrame check: each verdict's lead, and each pick's time, as performance variables.

    WORKBENCH='/path/to/python -m workbench advise --quick' \
        reframe -C your-site.py -c reframe_check.py -r --performance-report

`--distribute` runs it on every node of a partition; references for `lead:SCENARIO` find the nodes
that have fallen behind.  See docs/fleet.md.
"""

import json
import os
from pathlib import Path

import reframe as rfm
import reframe.utility.sanity as sn

# ruff: noqa: F821, RUF012 - a check is read by ReFrame, which defines the decorators


@rfm.simple_test
class WorkbenchCheck(rfm.RunOnlyRegressionTest):
    descr = "CPU or GPU, measured by workbench"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = os.environ.get("WORKBENCH", "workbench advise --quick")
    executable_opts = ["--json", "--no-samples"]
    time_limit = "30m"
    exclusive_access = True

    @run_before("run")
    def prepare(self):
        self.env_vars = {"XDG_STATE_HOME": "$PWD/state"}

    @property
    def document(self):
        return json.loads((Path(self.stagedir) / self.stdout.evaluate()).read_text())

    @sanity_function
    def has_answers(self):
        measured = [each for each in self.document["measurements"] if each["n"]]
        return sn.assert_true(measured, "no candidate was measured")

    @run_before("performance")
    def read_ratios(self):
        document, found = self.document, {}
        for verdict in document["summary"]:
            if verdict["lead"] is not None:
                found[f"lead:{verdict['scenario']}"] = (verdict["lead"], "x")
        for verdict in document["verdicts"]:
            if verdict["device_ratio"] is not None:
                found[f"cpu_over_gpu:{verdict['scenario']}"] = (verdict["device_ratio"], "x")
        for case in document["measurements"]:
            if case["n"]:
                found[f"time:{case['id'].replace('/', ':')}"] = (case["median_s"], "s")
        self.perf_variables = {
            name: sn.make_performance_function(sn.defer(value), unit)
            for name, (value, unit) in found.items()
        }
