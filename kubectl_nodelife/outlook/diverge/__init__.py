"""Our copy of the logic held against what the cluster shows: what is missing, late, extra, other.

`record.py` is what was written down, `judge.py` plugs the questions together: `due.py` (which
writes are overdue), `inference.py` (which settings fit what was seen), `others.py` (what somebody
else did). A false alarm is worse than silence: what could not be watched is never judged.
"""

from kubectl_nodelife.outlook.diverge.judge import judge as judge
