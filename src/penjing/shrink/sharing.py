"""Copies of a module that share its weights."""

import copy
from typing import TypeVar

from torch import nn

AnyModule = TypeVar("AnyModule", bound=nn.Module)


def share_copy(module: AnyModule) -> AnyModule:
    """A second module tree over the same parameters: replacing a submodule of one leaves the other alone."""
    return copy.deepcopy(module, {id(parameter): parameter for parameter in module.parameters()})
