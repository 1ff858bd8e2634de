"""A study opens nothing to others, and is counted before it is enumerated."""

import json
import os
import stat
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from kubectl_nodelife.commands.sweep import sweep
from kubectl_nodelife.daemon.paths import runtime_folder
from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.sweep.failures import Silence, merged
from kubectl_nodelife.sweep.points import settled_points
from kubectl_nodelife.sweep.pool import _local

PAGES = ("status", "info/main/workers.html", "json/counts.json", "metrics", "health")


def test_no_page_of_dask_is_served_and_its_scratch_is_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages show to every user of the machine what is computed, and the logs of its processes. What
    is written goes below the given folder, not where all may write or where the user stands.
    """
    elsewhere, private = tmp_path / "elsewhere", tmp_path / "private"
    for folder in (elsewhere, private):
        folder.mkdir()
    monkeypatch.chdir(elsewhere)
    with _local(1, 0, str(private)) as pool:
        told = pool.client.scheduler_info()
        for worker in told["workers"].values():
            assert Path(worker["local_directory"]).is_relative_to(private)
        servers = [told, *told["workers"].values()]
        ports = [port for one in servers for port in one.get("services", {}).values()]
        for port in ports:
            for page in PAGES:
                with pytest.raises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10)
                assert refused.value.code == 404, page


def test_scratch_is_below_our_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = []

    def refuse(where: int | str, pods: int, private: str) -> None:
        scratch.append(Path(private))
        raise BadInput("enough")

    monkeypatch.setattr("kubectl_nodelife.sweep.pool.pool_at", refuse)
    words = ["-f", _study(tmp_path, repeat=1), "--yes", "--out", str(tmp_path / "out")]
    with pytest.raises(BadInput, match="enough"):
        CliRunner().invoke(sweep, words, catch_exceptions=False)
    assert scratch == [Path(runtime_folder(os.environ))]
    assert stat.S_IMODE(scratch[0].stat().st_mode) == 0o700


def test_a_grid_is_counted_before_it_is_made() -> None:
    """10^12 points took all memory before a question was asked."""
    space = {f"flag-{number}": list(range(1_000)) for number in range(4)}
    with pytest.raises(BadInput, match=r"1,000,000,000,000 points; a study has 100,000 at most"):
        settled_points(cast(Any, None), cast(Any, space), None)


def test_failures_of_a_run_are_bounded() -> None:
    """A node that flaps each millisecond of a day."""
    endless = (Silence("a", at, at + 1, False) for at in count())
    with pytest.raises(BadInput, match="more than 500,000 times in a run"):
        merged(endless, 1 << 62)


def _study(folder: Path, repeat: int) -> str:
    """The path of a study of forty points."""
    study = {
        "apiVersion": "nodelife.dev/v1alpha1",
        "kind": "Study",
        "metadata": {"name": "many"},
        "spec": {
            "base": {"generate": {"zones": 1, "nodesPerZone": 1}},
            "space": {"flags.node-monitor-grace-period": [f"{n}s" for n in range(40, 80)]},
            "failures": [{"kind": "flap", "share": 0.2, "every": "20m", "silence": "30s"}],
            "repeat": repeat,
            "duration": "1m",
            "measure": ["evictions"],
        },
    }
    path = folder / "study.yaml"
    path.write_text(json.dumps(study))
    return str(path)


def test_runs_are_counted_before_they_are_made(tmp_path: Path) -> None:
    words = ["-f", _study(tmp_path, repeat=1_000_000), "--yes"]
    with pytest.raises(BadInput, match="runs are more than can be played"):
        CliRunner().invoke(sweep, words, catch_exceptions=False)
