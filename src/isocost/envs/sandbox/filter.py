"""The filter of system calls of the sandbox: the list that Python needs, as a program of classic BPF.

It is made here and handed to `isocost.envs.sandbox.process`, which has the standard library alone. Sources: seccomp(2),
Documentation/userspace-api/seccomp_filter.rst of Linux.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable


class MissingTable(RuntimeError):
    """There is no table for this processor."""


# --- system calls, by (x86_64, aarch64); None: that processor has no such call

CALLS: dict[str, tuple[int | None, int | None]] = {
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "preadv2": (327, 286), "pwritev": (296, 70), "pwritev2": (328, 287),
    "close": (3, 57), "close_range": (436, 436), "lseek": (8, 62),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
    "statfs": (137, 43), "fstatfs": (138, 44), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439),
    "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216), "madvise": (28, 233),
    "mincore": (27, 232), "msync": (26, 227), "brk": (12, 214),
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132), "pause": (34, None),
    "alarm": (37, None), "setitimer": (38, 103), "getitimer": (36, 102),
    "pipe": (22, None), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73), "select": (23, None),
    "pselect6": (270, 72), "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "eventfd2": (290, 19),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153),
    "getpid": (39, 172), "getppid": (110, 173), "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156),
    "getgroups": (115, 158), "getresuid": (118, 148), "getresgid": (120, 150), "getrlimit": (97, 163),
    "getrusage": (98, 165), "getpriority": (140, 141), "sysinfo": (99, 179), "uname": (63, 160),
    "getcpu": (309, 168),
    "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "fallocate": (285, 47),
    "fadvise64": (221, 223), "copy_file_range": (326, 285), "sendfile": (40, 71), "getdents": (78, None),
    "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "rename": (82, None), "renameat": (264, 38),
    "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "readlink": (89, None), "readlinkat": (267, 78),
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "set_tid_address": (218, 96),
    "rseq": (334, 293), "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "membarrier": (324, 283),
    "arch_prctl": (158, None), "exit": (60, 93), "exit_group": (231, 94), "getrandom": (318, 278),
    "restart_syscall": (219, 128),
}
# Calls that are allowed for some values of one argument: (numbers, which argument, values). The commands of fcntl leave
# out F_SETOWN and F_SETSIG, which send signals to other processes.
SOME: dict[str, tuple[tuple[int | None, int | None], int, tuple[int, ...]]] = {
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032)),
    "ioctl": ((16, 29), 1, (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),   # TCGETS .. FIOCLEX
    "prctl": ((157, 167), 0, (15, 16)),                                         # the name of the thread
    "prlimit64": ((302, 261), 2, (0,)),                                         # reading limits, not setting them
}
# Calls with bits of one argument that may not be set, and bits that must be: (numbers, which argument, never, always).
# No mode makes a file with the rights of its owner, or a folder that its owner cannot list (it has to be measured);
# renameat2 makes no whiteout, which is a device.
BITS: dict[str, tuple[tuple[int | None, int | None], int, int, int]] = {
    "creat": ((85, None), 1, 0o7000, 0), "mkdir": ((83, None), 1, 0o7000, 0o700),
    "mkdirat": ((258, 34), 2, 0o7000, 0o700), "umask": ((95, 166), 0, 0o700, 0),
    "renameat2": ((316, 276), 4, 0xFFFFFFFC, 0),
}
# Calls that open a file: (numbers, the argument with the flags; that of the mode follows). Refused: O_TMPFILE, a file
# that no name leads to; access mode 3, and O_RDONLY | O_TRUNC, both of which Landlock lets empty a file before ABI 3;
# modes as above.
OPENS: dict[str, tuple[tuple[int | None, int | None], int]] = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
_CREATE, _TRUNCATE, _ACCESS, _UNNAMED = 0o100, 0o1000, 3, 0o20000000
NEWER = ("clone3", "openat2")        # answered with ENOSYS, so that the C library takes the older call
NEWER_CALLS = {"clone3": (435, 435), "openat2": (437, 437)}
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}      # column of the tables, AUDIT_ARCH_*

_LOAD, _AND, _EQUAL, _LEAST, _ANY, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06    # of classic BPF
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_NUMBER, _ARCH, _ARGS = 0, 4, 16     # offsets in struct seccomp_data; arguments are 8 bytes, little-endian
Instruction = tuple[int, int, int, int]


def program(machine: str) -> list[Instruction]:
    """The filter as classic BPF: (code, jump if true, if false, constant). Raises Missing for other processors."""
    if machine not in MACHINES:
        raise MissingTable(f"there is no table of system calls for {machine}")
    column, arch = MACHINES[machine]
    out: list[Instruction] = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _KILL)]
    out.append((_LOAD, 0, 0, _NUMBER))
    if machine == "x86_64":
        out += [(_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]         # the x32 calls have other numbers
    for both in CALLS.values():
        if (number := both[column]) is not None:
            out += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    for both, argument, values in SOME.values():
        if (number := both[column]) is not None:
            # Both halves where a pointer is compared with 0; commands are 32-bit integers.
            high = [(_LOAD, 0, 0, _ARGS + 8 * argument + 4), (_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _ERRNO | _EPERM)]
            test: list[Instruction] = [*(high if values == (0,) else []), (_LOAD, 0, 0, _ARGS + 8 * argument)]
            for value in values:
                test += [(_EQUAL, 0, 1, value), (_RETURN, 0, 0, _ALLOW)]
            test.append((_RETURN, 0, 0, _ERRNO | _EPERM))
            out += [(_EQUAL, 0, len(test), number), *test]
    ends: list[Instruction] = [(_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)]
    for both, argument, never, always in BITS.values():
        if (number := both[column]) is not None:
            out += [(_EQUAL, 0, 6, number), (_LOAD, 0, 0, _ARGS + 8 * argument), (_ANY, 2, 0, never),
                    (_AND, 0, 0, always), (_EQUAL, 1, 0, always), *ends]
    for both, argument in OPENS.values():
        if (number := both[column]) is not None:
            flags, mode = (_ARGS + 8 * a for a in (argument, argument + 1))
            out += [(_EQUAL, 0, 12, number), (_LOAD, 0, 0, flags), (_ANY, 8, 0, _UNNAMED),
                    (_AND, 0, 0, _TRUNCATE | _ACCESS), (_EQUAL, 6, 0, _TRUNCATE), (_EQUAL, 5, 0, _ACCESS),
                    (_EQUAL, 4, 0, _TRUNCATE | _ACCESS), (_LOAD, 0, 0, flags), (_ANY, 0, 3, _CREATE),
                    (_LOAD, 0, 0, mode), (_ANY, 0, 1, 0o7000), *ends]
    for name in NEWER:
        number = NEWER_CALLS[name][column]
        out += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERRNO | _ENOSYS)]
    return [*out, (_RETURN, 0, 0, _ERRNO | _EPERM)]


def packed(instructions: Iterable[Instruction]) -> bytes:
    """As the kernel takes it."""
    return b"".join(struct.pack("HBBI", *i) for i in instructions)
