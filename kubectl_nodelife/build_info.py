"""Which commit a release was built from; `bin/release` writes it into what it builds."""

COMMIT = ""
