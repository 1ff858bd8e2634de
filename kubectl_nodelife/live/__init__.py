"""A real cluster: kubeconfig, credentials, list and watch, and the live loop.

Where: `connection` (the flags) and `kubeconfig` make a `target`, `auth` its credentials (with
`plugin`), `transport` the connections, and `client` sends what `requests` builds. What
happens: `source` lists and watches (`listwatch`) each kind and makes `news`, which `loop`
plays. What is done: `executor` orders the actions, `action_sender` drives each, and `writer` alone
can send anything but GET; `lease` permits it. `clock` is the API server's time, and the daemon's.
"""
