"""Value-based control: tasks with a state and a reward, agents that learn Q from a replay, many runs in one stack.

A method is an `Agent` (seams.py), one file in `methods`; a task is one file in `tasks`. `loop.py` is the only loop. The
runs of a stack have their own seed, updates per sample and learning rate, and share the method, batch and width. What a
run computes does not depend on the stack that it is in.
"""
