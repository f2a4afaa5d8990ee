"""A page's Python blocks are one session, as in an interpreter that stays open beside the shell.

A line of input is a block, as JSON; what it prints ends with a line that holds a zero byte.
"""

import json
import sys

sys.path[0] = ""        # the folder it runs in, as in an interpreter
names = {"__name__": "__main__"}
for block in sys.stdin:
    exec(compile(json.loads(block), "block", "exec"), names)
    print(flush=True)
    print("\0", flush=True)
