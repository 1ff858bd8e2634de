"""A real cluster: kubeconfig, credentials, list and watch, and the live loop. It can only read."""
