"""How fast it is, against what a user would pick instead: `make bench`, or `python -m bench`.

Contenders live in processes of their own and take turns, block by block, so that what else the machine does hits all of
them alike; what is reported is the ratio within each turn. Every case leaves one record,
`experiments/results/bench/CASE.json`, and `python -m bench page` turns the records into docs/speed.md.
"""
