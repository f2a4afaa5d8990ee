"""Whose process is at the other end of a TCP connection on this machine: by the kernel's table of connections.

Sources: sock_diag(7); proc_net_tcp.rst of Linux.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

_REQUEST = struct.Struct("=LHHLL BBBxL 2s2s16s16sLLL")      # nlmsghdr, inet_diag_req_v2
_SOCK_DIAG, _BY_FAMILY, _DUMP_NONE, _ANY_STATE, _NO_COOKIE = 4, 20, 1, 0xFFFFFFFF, 0xFFFFFFFF
_UID = 16 + 4 + 48 + 12      # offset in the answer: headers, the connection's id, three numbers


def ours(connection: socket.socket) -> bool:
    """Whether the other end belongs to this user, or to root, who needs no connection to do harm. True also where the
    system has no such table, and for an end that is closed already; not where there is one and it cannot be read now.
    """
    try:
        there, here = connection.getpeername(), connection.getsockname()
    except OSError:
        return True
    try:
        found = _asked(there, here)
        found = _listed(there, here) if found is None else found
    except (FileNotFoundError, PermissionError):
        return True
    except OSError:         # no descriptor is left
        return False
    return found in (None, 0, os.getuid(), os.geteuid())


def _asked(there: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The user of the connection from `there` to `here`, from the kernel's answer; None without one."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    ends = (*(struct.pack("!H", port) for _, port in (there, here)),
            *(socket.inet_aton(host) for host, _ in (there, here)))
    request = _REQUEST.pack(_REQUEST.size, _BY_FAMILY, _DUMP_NONE, 0, 0, socket.AF_INET, socket.IPPROTO_TCP, 0,
                            _ANY_STATE, *ends, 0, _NO_COOKIE, _NO_COOKIE)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _SOCK_DIAG) as kernel:
            kernel.sendto(request, (0, 0))      # it has answered when this returns
            answer = kernel.recv(4096)
    except OSError:
        return None
    if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        return None
    return int(struct.unpack_from("=L", answer, _UID)[0])


def _listed(there: tuple[str, int], here: tuple[str, int]) -> int | None:
    """The same from the list of all connections, which takes longer. Raises OSError."""
    ends = [f"{struct.unpack('=L', socket.inet_aton(host))[0]:08X}:{port:04X}" for host, port in (there, here)]
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return next((int(w[7]) for w in map(str.split, lines) if w[1:3] == ends), None)
