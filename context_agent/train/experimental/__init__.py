"""What has not been proven where it is meant to run. It may change, or go, in any release.

`async_rollouts` samples while the policy is trained, `judge` rewards rankings by a language model, `verl` trains on
several machines, and `verifiers` exchanges rollouts with other trainers. Tests cover all of it on small models; none of
it has trained a large model on the hardware that it is made for (docs/training.md, "Experimental parts").
"""
