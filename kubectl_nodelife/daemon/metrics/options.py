"""How metrics are to be served: the flags of `daemon run` and `daemon start` as a value."""

from __future__ import annotations

import ipaddress

import msgspec

from kubectl_nodelife.errors import BadInput

_FLAG = "--metrics-bind-address"


class MetricsOptions(msgspec.Struct, frozen=True):
    """`bind_address`: HOST:PORT, "" for no metrics at all."""

    bind_address: str = ""
    per_node: bool = False
    plain_zones: bool = False
    token_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""

    def address(self) -> tuple[str, int]:
        """Host and port. Raises BadInput."""
        host, colon, port = self.bind_address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        try:
            ipaddress.ip_address(host)
        except ValueError:
            colon = ""
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadInput(
                f"{self.bind_address!r} is no address",
                on=_FLAG,
                remedy="give an IP address and a port, as in 127.0.0.1:9876 or [::1]:9876",
            )
        return host, int(port)

    def check(self) -> None:
        """Raises BadInput where the flags do not go together."""
        given = (self.per_node, self.plain_zones, self.token_file, self.tls_cert_file)
        if not self.bind_address:
            if any(given) or self.tls_key_file:
                raise BadInput("it is needed for the other flags of metrics", on=_FLAG)
            return
        self.address()
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            raise BadInput(
                "a certificate and its key go together",
                on="--metrics-tls-cert-file, --metrics-tls-key-file",
            )

    @property
    def is_local(self) -> bool:
        """True if only this machine can ask."""
        return ipaddress.ip_address(self.address()[0]).is_loopback

    @property
    def url(self) -> str:
        """Where to scrape."""
        return f"http{'s' if self.tls_cert_file else ''}://{self.bind_address}/metrics"

    def warnings(self) -> list[str]:
        """The warning for an address that others can reach."""
        if self.is_local:
            return []
        said = f"metrics can be read from other machines at {self.bind_address}"
        if not self.tls_cert_file:
            said += ", unencrypted: names of zones among them"
        return [said if self.token_file else f"{said}, by anybody who reaches it"]
