"""Configs that leave keys out mean what transformers takes them for, or are refused as incomplete."""

import pytest
from tests.parity.twins import TWINS, config_of

from penjing.errors import InputError
from penjing.model.families.registry import family_of_model_type
from penjing.model.foreign import ForeignConfig


@pytest.mark.parametrize("name", TWINS)
def test_an_absent_key_has_the_default_of_transformers_class(name):
    config = config_of(name)
    whole, default = config.to_dict(), type(config)().to_dict()
    sparse = {k: v for k, v in whole.items() if k == "model_type" or k not in default or default[k] != v}
    family = family_of_model_type(whole["model_type"], "test")
    try:
        read = family.read(ForeignConfig({**family.defaults, **sparse}, "test"))
    except InputError as error:
        assert "the config is incomplete" in str(error)
    else:
        assert read == family.read(ForeignConfig(whole, "test"))
