"""Audit a reward without a model: does it pay right answers in other forms, and wrong ones?

`audit.diagnose_reward` marks built cases, whose right mark is known, for every problem of a file. `kinds` says what
kind of answer a problem has, `formats` which formats a reward reads, `right` and `wrong` build the cases family by
family, and `cost` says what the errors cost. Nothing here imports torch.
"""
