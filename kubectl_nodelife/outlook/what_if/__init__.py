"""Acts are played on the joined present, beside the present without them: `what-if`.

    words or a file --> acts --> scenario events --> question: two plays of the present
                                                       |           (sim/present)
                               service_levels follows each play and counts what serves
                                                       |
                                                    answer: what differs, as a document

`acts` reads what is asked, `question` plays it, `service_levels` watches a play from outside, and
`answer` is the document `WhatIf`. No rule of a controller is here: all of it is the simulation's.
"""

from typing import Final

EACH: Final = "node, zone or label=KEY, or pair-of one of them"

CONDITIONS: Final = {
    "zero": ("workloads_at_zero", "seconds_at_zero"),
    "endpoints": ("services_without_endpoints",),
    "budget": ("budgets_below",),
    "pending": ("pods_pending",),
    "stuck": ("pods_stuck",),
    "degraded": ("unavailable_pod_seconds",),
    "drain": ("drains_unfinished",),
}
"""The conditions of --fail-on -> the figures of a verdict that are higher in the future then."""
