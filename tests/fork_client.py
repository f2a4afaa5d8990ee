"""Has a command run by the server of forks: `python -IS fork_client.py SOCKET isocost|python WORDS`."""

import json
import os
import socket
import sys

here = socket.socket(socket.AF_UNIX)
here.connect(sys.argv[1])
environment = dict(os.environ)
asked = {"test": environment.pop("PYTEST_CURRENT_TEST", ""), "name": sys.argv[2], "words": sys.argv[3:],
         "folder": os.getcwd(), "environment": environment}
socket.send_fds(here, [json.dumps(asked).encode() + b"\n"], [0, 1, 2])
code = int(here.recv(16))
sys.exit(code if code >= 0 else 128 - code)
