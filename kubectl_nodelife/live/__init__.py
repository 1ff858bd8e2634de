"""A real cluster: kubeconfig and credentials, list and watch. It can only read."""
