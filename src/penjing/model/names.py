"""Which tensor of a file holds which tensors of the module.

A rule is a pattern: `{i}` stands for the layer and `{e}` for the expert. A rule whose stored name has no
`{e}` while the module's names do is about all experts at once.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from penjing.model.layouts import AS_IS, Layout, Rows, Shape

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_PLACES = ("{i}", "{e}")
_SCALES = ("weight_scale", "weight_scale_inv")  # they lie one below another, as the rows that they are for


@dataclass(frozen=True)
class Rule:
    """The module's tensors `native` lie in the file's tensor `stored`, by `layout`."""

    stored: str
    native: tuple[str, ...]
    layout: Layout = AS_IS


@dataclass(frozen=True)
class Stored:
    """A rule with its numbers filled in, and the shapes that the module wants."""

    name: str
    native: tuple[str, ...]
    shapes: tuple[Shape, ...]
    layout: Layout

    @property
    def shape(self) -> Shape:
        """What the file's tensor must look like."""
        return self.layout.stored_shape(self.shapes)


def rename(stored: str, native: str, layout: Layout | None = None) -> Rule:
    """The rule for a single tensor."""
    return Rule(stored, (native,), layout or AS_IS)


def apply_rules(rules: Iterable[Rule], shapes: Mapping[str, Shape]) -> list[Stored]:
    """Where each of the module's tensors (`shapes`) lies, in its order; those that no rule names keep their
    own name, and parts of a packed matrix go where its weight would. Where rules name a tensor twice, the
    first decides; a rule that names a tensor that the module hasn't is left out."""
    by_pattern: dict[str, Rule] = {}
    for rule in rules:
        for native in rule.native:
            by_pattern.setdefault(native, rule)
    placed: dict[str, Stored] = {}
    for name in shapes:
        pattern, numbers = _pattern(name)
        rule = by_pattern.get(pattern) or _rule_of_part(pattern, by_pattern)
        stored = _fill(rule.stored, numbers)
        if stored not in placed:
            placed[stored] = _stored(rule, stored, numbers, shapes)
    return list(placed.values())


def used_rules(rules: Iterable[Rule], names: Iterable[str]) -> list[Rule]:
    """Those of the rules that are about a tensor of the file: some files hold apart what others fuse."""
    patterns = {_pattern(name)[0] for name in names}
    return [rule for rule in rules if rule.stored in patterns]


def _rule_of_part(pattern: str, by_pattern: Mapping[str, Rule]) -> Rule:
    """A tensor that no rule names, beside its module's weight if that is merely renamed; scales also beside
    fused ones."""
    module, _, leaf = pattern.rpartition(".")
    weight = by_pattern.get(f"{module}.weight")
    fused_along = (Rows(),) if leaf in _SCALES else ()
    if weight is None or weight.layout not in (AS_IS, *fused_along):
        return Rule(pattern, (pattern,))
    native = tuple(f"{name.removesuffix('weight')}{leaf}" for name in weight.native)
    return Rule(f"{weight.stored.removesuffix('weight')}{leaf}", native, weight.layout)


def _stored(rule: Rule, name: str, numbers: Sequence[str], shapes: Mapping[str, Shape]) -> Stored:
    if len(numbers) == 2 and "{e}" not in rule.stored:
        experts: Iterable[str] = map(str, range(_count_experts(rule.native[0], numbers[0], shapes)))
        native = tuple(_fill(n, (numbers[0], e)) for e in experts for n in rule.native)
    else:
        native = tuple(_fill(n, numbers) for n in rule.native)
    native = tuple(n for n in native if n in shapes)
    return Stored(name, native, tuple(shapes[n] for n in native), rule.layout)


def _count_experts(native: str, layer: str, shapes: Mapping[str, Shape]) -> int:
    count = 0
    while _fill(native, (layer, str(count))) in shapes:
        count += 1
    return count


def _pattern(name: str) -> tuple[str, tuple[str, ...]]:
    """The name with places for its numbers, and the numbers: the layer, then the expert."""
    numbers = tuple(_NUMBER.findall(name))
    places = iter(_PLACES)
    return _NUMBER.sub(lambda _: next(places), name), numbers


def _fill(pattern: str, numbers: Sequence[str]) -> str:
    for place, number in zip(_PLACES, numbers, strict=False):
        pattern = pattern.replace(place, number)
    return pattern
