"""The folder of state turns read-only while we run, as a file system does that found an error.

The kernel refuses every write of the process, to files that are open already as well; a file system
cannot be remounted read-only while one is.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

STORY = """
import asyncio, json, resource, signal, sys
from kubectl_nodelife.daemon.intents import Intent, Intents

folder = sys.argv[1]
INTENT = Intent(1, "node-lifecycle", "{}", "Node", "", "n1", "u1", "7", "", 1)

def disk(works):
    limit = resource.RLIM_INFINITY if works else 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

async def refused(intents):
    try:
        await intents.begin(INTENT)
    except OSError:
        return True
    return False

async def story():
    said = {}
    intents = Intents(f"{folder}/writes.db")
    said["first"] = await refused(intents)
    intents.note(1, "applied")
    await intents.flush()
    said["second"] = await refused(intents)
    disk(works=False)
    said["read-only"] = await refused(intents)
    said["error"] = intents.error
    intents.note(2, "applied")
    await intents.flush()
    said["again"] = await refused(intents)
    disk(works=True)
    said["mended"] = await refused(intents)
    said["last"] = intents._next_id - 1
    await intents.close()
    later = Intents(f"{folder}/writes.db")
    said["open"] = [one.id for one in later.unsettled()]
    said["restarted"] = await refused(later)
    await later.close()
    print(json.dumps(said))

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
asyncio.run(story())
"""


def told(folder: Path) -> dict[str, Any]:
    """What came of the story."""
    line = [sys.executable, "-c", STORY, str(folder)]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_nothing_is_sent_while_the_journal_of_writes_cannot_be_written(tmp_path: Path) -> None:
    said = told(tmp_path)
    assert not said["first"] and not said["second"]
    assert said["read-only"] and said["again"], "an intent that is on no disk is not sent"
    assert said["error"], "and why is said"
    assert not said["mended"], "it goes on once the disk takes writes again"
    assert said["open"] == [said["last"]], "all ends came to the disk, that of the time before too"
    assert not said["restarted"]
