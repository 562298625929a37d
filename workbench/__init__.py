"""CPU or GPU for this job, on this machine, measured: the core without a user interface.

Importing this package is cheap: standard library only, because a worker under a foreign
interpreter imports it too.
"""

__version__ = "0.1.0"
