"""The error of workloads, backends and devices, importable without the rest of the contract."""


class WorkloadError(Exception):
    """A workload, device or library cannot do what a case asks for.

    `code` is a stable word for scripts, `hint` the remedy in one sentence.
    """

    def __init__(self, message: str, *, code: str = "unsupported", hint: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint
