"""Parts that were never tested on the hardware they are made for. Any release may change or remove them.

`async_rollouts` samples while the policy is trained. `judge` rewards rankings by a language model. `verl` trains on
several machines. `verifiers` exchanges rollouts with other trainers. Tests cover all of them on small models. None of
them has been used to train a large model (docs/training.md, "Experimental parts").
"""
