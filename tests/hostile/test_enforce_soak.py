"""Twenty seconds of what is by hand an hour: `python -m tests.hostile.enforce_soak`."""

import asyncio

from tests.hostile.enforce_soak import Soak


def test_no_write_is_wrong_through_churn_flapping_a_restore_and_a_clock_that_jumps() -> None:
    told = asyncio.run(Soak(20, seed=1).run())
    assert told["violations"] == 0, told["first"]
    happened = told["happened"]
    for what in ("flaps", "pods", "images", "restores", "clock jumps"):
        assert happened.get(what), (what, happened)
    assert told["applied"] > 20 and told["calledLostAfterSeconds"], told
