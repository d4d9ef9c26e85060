"""How many tokens are drafted where nobody says."""

from __future__ import annotations

import pytest

from rigup.planner.drafting.draft import draft_modules, usual_tokens
from tests.unit.planner.rules.builder import CATALOGUE


@pytest.mark.parametrize(("modules", "tokens"), [(1, 3), (2, 2), (3, 3), (7, 3)])
def test_the_usual_tokens_suit_every_number_of_modules(modules: int, tokens: int) -> None:
    model = CATALOGUE.models_by_name["Qwen3.6-27B"]
    several = model.mtp_attention[0].model_copy(update={"layers": tuple(range(modules))})
    model = model.model_copy(update={"mtp_attention": (several,)})
    assert (draft_modules(model), usual_tokens(model)) == (modules, tokens)
