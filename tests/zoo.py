"""The user's files in `tests/fixtures/zoo`: what each is good for, and what is said of the rest."""

from pathlib import Path

ZOO = Path(__file__).resolve().parent / "fixtures" / "zoo"

# Cannot be described: name to a part of the reason.
UNUSABLE = {
    "allocates": "Cannot allocate memory",
    "another_name": "a Workload named 'another_name'",
    "binds_nothing": "no attribute 'WORKLOAD'",
    "closes_all": "its process ended",
    "crashes": "its process ended (killed by SIGSEGV)",
    "deep": "RecursionError",
    "default_outside": "n must be between 8 and 9, not 7",
    "dies": "its process ended (exit code 7)",
    "exits": "its process ended (exit code 3)",
    "exits_well": "its process ended (exit code 0)",
    "garbles": "can't decode byte 0xff",
    "garbles_without_end": "its answer is too long",
    "interrupts": "its log ends: ",
    "loops": "it gave no answer within",
    "many_variants": "length <= 256 - at `$.variants`",
    "no_variants": "length >= 1 - at `$.variants`",
    "not_utf8": "SyntaxError: ",  # Python 3.14 words it differently
    "odd_default": "Object of type object is not JSON serializable",
    "odd_parameters": "TypeError",
    "odd_variant": "precision must be one of",
    "prints_forever": "File too large",
    "raises_escapes": r"ValueError: \x1b[31m\x07\x1b]0;owned\x07\n\u202ered",
    "raises_much": "ValueError: xxx",
    "raises_twice": "its process ended (exit code 1)",
    "syntax": "SyntaxError: invalid syntax",
}
# Cannot describe their cases.
UNPLANNABLE = {
    "tuning_endless": "tuning_values(): it gave no answer within",
    "tuning_outside": "tuning_values(): n must be between 1 and 100, not 1000",
    "tuning_raises": "tuning_values(): RuntimeError",
    "work_absurd": "work(): amounts must be between 0 and 1e+30",
    "work_dies": "work(): its process ended (killed by SIGKILL)",
    "work_exits": "work(): its process ended (exit code 0)",
    "work_loops": "work(): it gave no answer within",
    "work_nan": "work(): the workload produced NaN or infinity",
    "work_negative": "work(): amounts must be between 0 and 1e+30",
    "work_none": "work(): TypeError: expected a Work, not NoneType",
    "work_raises": "work(): ValueError: xxx",
    "work_text": "work(): Expected `float | null`, got `str` - at `$.flops`",
    "work_zero": "work(): items must be at least 1e-30",
}
ENDLESS = {"loops", "tuning_endless", "work_loops"}
