"""What the tests of attention share."""

from __future__ import annotations

import pytest

from rigup.catalogue.model import Model
from tests.unit.planner.asking import catalogue


@pytest.fixture
def m2() -> Model:
    """A model of one class."""
    return catalogue().models_by_name["MiniMax-M2.5"]
