"""`daemon status -o wide` names each way to a daemon."""

from kubectl_nodelife.commands.daemon import daemons_page


def test_all_addresses_are_shown() -> None:
    item = {
        "context": "here",
        "synced": True,
        "socket": "/run/d.sock",
        "metrics": "http://127.0.0.1:9876/metrics",
        "answers": "127.0.0.1:9877",
        "ui": {"url": "http://127.0.0.1:8080/", "sessions": 0, "readers": 0},
    }
    text = "\n".join(str(block) for block in daemons_page([item]).blocks(wide=True))
    for line in (
        "socket: /run/d.sock",
        "metrics: http://127.0.0.1:9876/metrics",
        "answers: 127.0.0.1:9877",
        "page: http://127.0.0.1:8080/",
    ):
        assert f"  {line}" in text
