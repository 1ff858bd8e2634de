"""Notifications of the daemon: `notices` says what is worth one, `delivery` brings it to people."""
