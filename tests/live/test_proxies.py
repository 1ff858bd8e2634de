"""The proxy that is chosen: rows after golang.org/x/net/http/httpproxy's own tests."""

import pytest

from kubectl_nodelife.errors import BadInput
from kubectl_nodelife.live.transport import proxy_for

P = "http://proxy:3128"


@pytest.mark.parametrize(
    "server, no_proxy, used",
    [
        ("https://example.com", "", True),
        ("https://example.com", "*", False),
        ("https://example.com", "example.com", False),
        ("https://a.example.com", "example.com", False),
        ("https://a.example.com", ".example.com", False),
        ("https://a.example.com", "*.example.com", False),
        ("https://example.com", ".example.com", True),
        ("https://example.com", "*.example.com", True),
        ("https://badexample.com", "example.com", True),
        ("https://EXAMPLE.com", "foo, Example.COM ,bar", False),
        ("https://example.com:6443", "example.com:6443", False),
        ("https://example.com:6443", "example.com:443", True),
        ("https://example.com", "example.com:443", False),
        ("https://192.168.1.1", "192.168.1.1", False),
        ("https://192.168.1.1", "192.168.1.0/24", False),
        ("https://192.168.1.1", "192.168.2.0/24", True),
        ("https://192.168.1.1:6443", "192.168.1.1:6443", False),
        ("https://192.168.1.1:6443", "192.168.1.1:80", True),
        ("https://[2001:db8::52:0:1]", "2001:db8::52:0:1", False),
        ("https://[2001:db8::52:0:1]", "2001:db8::/32", False),
        ("https://[2001:db8::52:0:1]:6443", "[2001:db8::52:0:1]:6443", False),
        ("https://[2002:db8::52:0:1]", "2001:db8::/32", True),
        ("https://example.com", ":443,,", True),
        ("https://localhost:6443", "", False),
        ("https://127.0.0.9:6443", "", False),
        ("https://[::1]:6443", "", False),
    ],
)
def test_no_proxy(server: str, no_proxy: str, used: bool) -> None:
    environ = {"HTTPS_PROXY": P, "NO_PROXY": no_proxy}
    assert proxy_for(server, "", environ) == (P if used else None)


def test_the_scheme_of_the_server_decides() -> None:
    environ = {"HTTPS_PROXY": P}
    assert proxy_for("http://example.com", "", environ) is None
    assert proxy_for("http://example.com", "", {"http_proxy": P}) == P
    assert proxy_for("https://example.com", "", {"https_proxy": "proxy:3128"}) == P
    assert proxy_for("https://example.com", "", {"HTTPS_PROXY": "", "https_proxy": P}) == P


def test_what_cannot_be_used_is_said() -> None:
    with pytest.raises(BadInput, match="proxy-url: a proxy by socks5"):
        proxy_for("https://example.com", "socks5://proxy:1080", {})
    with pytest.raises(BadInput, match="HTTPS_PROXY"):
        proxy_for("https://example.com", "", {"HTTPS_PROXY": "socks5://proxy:1080"})
