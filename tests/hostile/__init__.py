"""What a cluster's tenants, its API server and the network may do to us, and that we survive it."""
