"""Asynchronous rollouts: episodes are sampled in the background while the policy is trained."""
