"""Tests against a real control plane: etcd, kube-apiserver, controllers, scheduler, kubectl.

They run where KUBEBUILDER_ASSETS names a folder that holds these programs (`.ci/kube-assets` builds
one), and are skipped elsewhere.
"""
