"""Parts that have not been proven on the hardware they are made for. Any release may change or remove them.

`async_rollouts` samples while the policy is trained. `judge` rewards rankings by a language model. `verl` trains on
several machines. `verifiers` exchanges rollouts with other trainers. Tests cover all of them on small models. None has
trained a large model on the hardware that it is made for (docs/training.md, "Experimental parts").
"""
