"""The proof that it learns: lessons, then rewards, on the gymnasium of `train.demo`, each figure beside its target.

What is here is settings, measures and a report. The training is `train.supervised` and `train.reinforced`, as for any
model.
"""
