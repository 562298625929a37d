"""Property tests judge results, not speed: no example fails for being slow on a busy machine."""

from hypothesis import settings

settings.register_profile("workbench", deadline=None)
settings.load_profile("workbench")
