"""Whole commands of the user, which run as they would in the user's shell."""

from workbench.contract import Backend


class Command(Backend):
    name = "command"
    install = "check --command"
    own_environment = True

    def version(self) -> str:
        return ""  # the version of a command's program is unknown


BACKEND = Command()
