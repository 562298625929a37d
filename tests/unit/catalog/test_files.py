"""Folders of the user's own that cannot be read."""

import pytest

from workbench import catalog
from workbench.contract import WorkloadError


def test_a_folder_that_cannot_be_looked_at_is_named_and_leaves_the_backends(monkeypatch) -> None:
    built_in = catalog.backends()
    monkeypatch.setenv(catalog.ENV, "/" + 300 * "x")  # File name too long
    assert catalog.backends() == built_in
    with pytest.raises(WorkloadError, match="is not a folder that can be read"):
        catalog.files()
