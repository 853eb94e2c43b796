"""What the fuzz tests share: how much they try, odd values, and what may come out."""

import functools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from penjing.errors import PenjingError

# Seconds that each kind of file is tried for; its tests share them.
SECONDS = float(os.environ.get("PENJING_SOAK_SECONDS", "120"))

soak = settings(
    max_examples=1000,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

extreme = st.sampled_from([0, 1, 2, 7, 31, 32, 255, 2**16, 2**31, 2**32 - 1, 2**48, 2**62, 2**63, 2**64 - 1])
scalars = st.one_of(st.none(), st.booleans(), extreme, st.integers(), st.floats(), st.text(max_size=5))
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)


@contextmanager
def nothing_but_clear_refusals() -> Iterator[None]:
    """The block works, or ends in a `PenjingError` with a message that can be printed."""
    try:
        yield
    except PenjingError as error:
        assert 0 < len(str(error)) < 3000
        str(error).encode("utf-8")


def keep_trying(share: float = 1.0) -> Callable[[Any], Any]:
    """Repeat a property with fresh examples for a share of the kind's seconds."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def repeated(*args: Any, **kwargs: Any) -> None:
            end = time.monotonic() + share * SECONDS
            test(*args, **kwargs)
            while time.monotonic() < end:
                test(*args, **kwargs)

        return repeated

    return decorate
