"""A real cluster: kubeconfig and credentials, list and watch, the executor that writes nothing."""
