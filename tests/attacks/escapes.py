"""Attempts of a program to leave the sandbox, and what lies outside that they aim at.

    python tests/attacks/escapes.py [LAYER ..]     # JSON: the attempts that got out, without those layers

An attempt got out if it printed the secret or "ESCAPED", or if anything outside changed: a file, a mode, a time, a
message that arrived, another process. Run as root or not: what needs root is not among them.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import secrets
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from isocost.envs.sandbox import client as sandbox
from isocost.envs.sandbox.client import CallLimits, Sandbox

LIMITS = CallLimits(memory=160 << 20, cpu=1, wall=5, file=1 << 20, disk=4 << 20, files=32, output=4096)
HEAD = """
import ctypes, fcntl, mmap, os, resource, signal, socket, subprocess, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
def got(x):
    if x is not None and (not isinstance(x, int) or x >= 0):
        print("ESCAPED")
"""

FILES = {
    "read a file": "print(open(outside + '/secret').read())",
    "read by a descriptor": "print(os.read(os.open(outside + '/secret', os.O_RDONLY), 99))",
    "read by the C library": "f = libc.open((outside + '/secret').encode(), 0); b = ctypes.create_string_buffer(99)\n"
        "libc.read(f, b, 99); print(b.value)",
    "read by mmap": "f = os.open(outside + '/secret', os.O_RDONLY); print(mmap.mmap(f, 0, prot=mmap.PROT_READ)[:])",
    "list a folder": "print('ESCAPED' if os.listdir(outside) else '')",
    "read the passwords": "print('ESCAPED' if 'root:' in open('/etc/passwd').read() else '')",
    "the parent's environment": "print('ESCAPED' if open(f'/proc/{parent}/environ').read() else '')",
    "another's environment": "print(open(f'/proc/{victim}/environ').read())",
    "another's memory": "f = open(f'/proc/{parent}/mem', 'rb'); f.seek(address); print(f.read(64))",
    "list the processes": "print('ESCAPED' if '1' in os.listdir('/proc') else '')",
    "through a symbolic link": "os.symlink(outside + '/secret', 'l'); print(open('l').read())",
    "through a hard link": "os.link(outside + '/secret', 'l'); print(open('l').read())",
    "move a file in": "os.rename(outside + '/secret', 'l'); print(open('l').read())",
    "through the root of /proc": "print(open('/proc/self/root' + outside + '/secret').read())",
    "through ..": "print(open(os.path.relpath(outside + '/secret')).read())",
    "by a folder's descriptor": "d = os.open(outside, os.O_PATH); print(os.read(os.open('secret', 0, dir_fd=d), 99))",
    "import a module": "sys.path.insert(0, outside); import planted",
    "attach a database": "import sqlite3; c = sqlite3.connect(':memory:')\n"
        "c.execute(f\"attach '{outside}/data.db' as o\")\n"
        "print(list(c.execute('select * from o.t')))",
    "read another episode's folder": "print(open('../other/secret').read())",
    "write in another episode's folder": "open('../other/new', 'w')",
    "watch a folder": "n = libc.inotify_init(); got(libc.inotify_add_watch(n, outside.encode(), 0xfff))",
    "create a file": "open(outside + '/new', 'w')",
    "append to a file": "open(outside + '/file', 'a').write('x')",
    "truncate a file": "os.truncate(outside + '/file', 0)",
    "truncate on opening": "os.open(outside + '/file', os.O_RDONLY | os.O_TRUNC)",
    "empty a file with access mode 3": "os.open(outside + '/file', 3 | os.O_TRUNC)",
    "empty a file by its folder": "d = os.open(outside, os.O_PATH); os.open('file', 3 | os.O_TRUNC, dir_fd=d)",
    "empty a file and append": "os.open(outside + '/file', 3 | os.O_TRUNC | os.O_APPEND | os.O_NONBLOCK)",
    "empty a file by creat": "libc.creat((outside + '/file').encode(), 0o600)",
    "empty a file by the newer call": "how = (ctypes.c_uint64 * 3)(3 | os.O_TRUNC, 0, 0)\n"
        "libc.syscall(437, -100, (outside + '/file').encode(), how, 24)",
    "delete a file": "os.unlink(outside + '/file')",
    "rename a file": "os.rename(outside + '/file', outside + '/moved')",
    "create a folder": "os.mkdir(outside + '/new')",
    "remove a folder": "os.rmdir(outside + '/empty')",
    "link out": "open('mine', 'w').write('x'); os.link('mine', outside + '/new')",
    "move a file out": "open('mine', 'w').write('x'); os.rename('mine', outside + '/new')",
    "symbolic link outside": "os.symlink('/', outside + '/new')",
    "named pipe outside": "os.mkfifo(outside + '/new')",
    "change a mode": "os.chmod(outside + '/file', 0o600)",
    "change a mode by a descriptor": "d = os.open(outside + '/file', os.O_PATH); libc.fchmodat(d, b'', 0o600, 0x1000)\n"
        "libc.syscall(452, d, b'', 0o600, 0x1000)\nos.chmod(f'/proc/self/fd/{d}', 0o600)",
    "change an owner": "os.chown(outside + '/file', os.getuid(), os.getgid())",
    "change a time": "os.utime(outside + '/file', (1, 1))",
    "change an attribute": "os.setxattr(outside + '/file', 'user.x', b'1')",
    "a file with the rights of its owner": "os.close(os.open('mine', os.O_CREAT | os.O_WRONLY, 0o4777))\n"
        "print('ESCAPED' if os.stat('mine').st_mode & 0o7000 else '')",
    "a file with the rights of its group": "libc.creat(b'mine', 0o2777)\n"
        "print('ESCAPED' if os.path.exists('mine') and os.stat('mine').st_mode & 0o7000 else '')",
    "a folder that nobody else may empty": "os.mkdir('mine', 0o1777); print('ESCAPED')",
    "a folder that cannot be listed": "os.mkdir('mine', 0o300); open('mine/x', 'w'); print('ESCAPED')",
    "the same by umask": "libc.umask(0o400); os.mkdir('mine')\n"
        "print('' if os.stat('mine').st_mode & 0o400 else 'ESCAPED')",
    "a device": "open('mine', 'w'); n = {'x86_64': 316, 'aarch64': 276}[os.uname().machine]\n"
        "libc.syscall(n, -100, b'mine', -100, b'moved', 4); print('ESCAPED' if os.lstat('mine').st_rdev == 0 and\n"
        "    os.lstat('mine').st_mode & 0o170000 == 0o20000 else '')",
    "lock a file of Python": "fcntl.flock(open(os.__file__), fcntl.LOCK_SH | fcntl.LOCK_NB); print('ESCAPED')",
    "write in /tmp": "open(temporary, 'w').write('x'); print('ESCAPED')",
    "write in shared memory": "open('/dev/shm/' + os.path.basename(temporary), 'w').write('x'); print('ESCAPED')",
}
NETWORK = {
    "TCP": "socket.create_connection(('127.0.0.1', tcp), timeout=1).sendall(b'x')",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', udp))",
    "a Unix socket": "s = socket.socket(socket.AF_UNIX); s.connect(outside + '/socket'); s.sendall(b'x')",
    "an abstract Unix socket": "s = socket.socket(socket.AF_UNIX); s.connect('\\0' + abstract); s.sendall(b'x')",
    "HTTP": "import urllib.request; urllib.request.urlopen(f'http://127.0.0.1:{tcp}', timeout=0.2)",
    "serve": "s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); print('ESCAPED')",
    "a socket by number": "got(libc.syscall({'x86_64': 41, 'aarch64': 198}[os.uname().machine], 2, 1, 0))",
    "netlink": "s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); s.bind((0, 0)); print('ESCAPED')",
    "datagrams of a pair": "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "a.sendto(b'x', outside + '/datagrams')",
    "io_uring": "b = ctypes.create_string_buffer(120); got(libc.syscall(425, 1, b))",
}
PROCESSES = {
    "fork": "p = os.fork()\nif p == 0: os._exit(0)\nos.waitpid(p, 0); print('ESCAPED')",
    "spawn": "p = os.posix_spawn('/bin/echo', ['echo', 'ESCAPED'], {}); os.waitpid(p, 0)",
    "subprocess": "print(subprocess.run(['/bin/echo', 'ESCAPED'], capture_output=True).stdout)",
    "shell": "sys.stdout.flush(); os.system('echo ESCAPED')",
    "exec": "os.execv('/bin/echo', ['echo', 'ESCAPED'])",
    "exec from memory": "f = os.memfd_create('x'); os.write(f, open('/bin/echo', 'rb').read())\n"
        "os.execve(f, ['echo', 'ESCAPED'], {})",
    "thread": "t = threading.Thread(target=print, args=('ESCAPED',)); t.start(); t.join()",
    "kill": "os.kill(victim, signal.SIGKILL)",
    "signal the parent": "os.kill(parent, 0); print('ESCAPED')",
    "signal the group of the process that forks": "os.killpg(os.getpgid(os.getppid()), 0); print('ESCAPED')",
    "signal by a descriptor": "signal.pidfd_send_signal(os.pidfd_open(victim), signal.SIGKILL)",
    "signal by the owner of a pipe": "r, w = os.pipe(); fcntl.fcntl(r, 8, victim); fcntl.fcntl(r, 10, 9)\n"
        "fcntl.fcntl(r, 4, fcntl.fcntl(r, 3) | os.O_ASYNC); os.write(w, b'x')",
    "trace": "got(libc.ptrace(0x4206, victim, None, None))",
    "read memory": "b = ctypes.create_string_buffer(64)\n"
        "class V(ctypes.Structure): _fields_ = [('p', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
        "l, r = V(ctypes.addressof(b), 64), V(address, 64)\n"
        "libc.process_vm_readv(parent, ctypes.byref(l), 1, ctypes.byref(r), 1, 0); print(b.value)",
    "steal a descriptor": "p = os.pidfd_open(parent); f = libc.syscall(438, p, secret_descriptor, 0)\n"
        "print(os.pread(f, 99, 0))",
    "change a priority": "os.setpriority(os.PRIO_PROCESS, victim, 11)",
    "change an affinity": "os.sched_setaffinity(victim, {min(os.sched_getaffinity(victim))})",
    "change a limit": "resource.prlimit(victim, resource.RLIMIT_NOFILE, (10, 10))",
    "a user namespace": "got(libc.unshare(0x10000000))",
    "a key": "got(libc.syscall({'x86_64': 248, 'aarch64': 217}[os.uname().machine], b'user', b'x', b'y', 1, -3))",
}
ROOT = {       # what needs capabilities: outside the count
    "name the machine": "socket.sethostname(socket.gethostname()); print('ESCAPED')",
    "change the root": "os.mkdir('r'); os.chroot('r'); print('ESCAPED')",
}
RESOURCES = {
    "memory": "x = bytearray(250 << 20); print('ESCAPED')",
    "memory by mmap": "m = mmap.mmap(-1, 250 << 20); print('ESCAPED')",
    "memory of an unnamed file": "f = os.memfd_create('x')\n"
        "for i in range(200): os.pwrite(f, b'x' * 4096, i * (1 << 20))\n"
        "print('ESCAPED')",
    "shared memory": "libc.shmat.restype = ctypes.c_void_p; p = libc.shmat(segment, None, 0)\n"
        "print(ctypes.string_at(p, 64) if p != 2**64 - 1 else '')",
    "new shared memory": "got(libc.shmget(0, 1 << 20, 0o1600))",
    "a message queue": "n = {'x86_64': 240, 'aarch64': 180}[os.uname().machine]\n"
        "got(libc.syscall(n, abstract.encode(), 0o102, 0o600, None))",
    "a raised limit": "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "f = [os.open('/dev/null', 0) for _ in range(90)]\n"
        "print('ESCAPED')",
    "descriptors": "f = [os.open('/dev/null', 0) for _ in range(90)]; print('ESCAPED')",
    "a large file": "f = open('large', 'wb')\n"
        "for i in range(2): f.write(b'0' * (1 << 20))\nf.close(); print('ESCAPED')",
    "many files": "for i in range(40): open(str(i), 'w')\ntime.sleep(0.3); print('ESCAPED')",
    "much on disk": "for i in range(6): open(str(i), 'wb').write(b'0' * (1 << 20))\ntime.sleep(0.3); print('ESCAPED')",
    "much in a deep folder": "for i in range(18): os.mkdir('x' * 240); os.chdir('x' * 240)\n"
        "for i in range(6): open(str(i), 'wb').write(b'0' * (1 << 20))\ntime.sleep(0.3); print('ESCAPED')",
    "many in a deep folder": "for i in range(18): os.mkdir('x' * 240); os.chdir('x' * 240)\n"
        "for i in range(40): open(str(i), 'w')\ntime.sleep(0.3); print('ESCAPED')",
    "much in removed files": "k = []\nfor i in range(6):\n  f = open('f', 'wb'); os.unlink('f'); k.append(f)\n"
        "  f.write(b'0' * (1 << 20)); f.flush()\ntime.sleep(0.3); print('ESCAPED')",
    "much in replaced files": "k = []\nfor i in range(6):\n  f = open('f', 'wb'); k.append(f)\n"
        "  f.write(b'0' * (1 << 20)); f.flush()\n  open('g', 'w').close(); os.replace('g', 'f')\n"
        "time.sleep(0.3); print('ESCAPED')",
    "much in removed files that are mapped": "k = []\nfor i in range(6):\n  f = os.open('f', os.O_RDWR | os.O_CREAT)\n"
        "  os.write(f, b'0' * (1 << 20)); os.unlink('f'); k.append(mmap.mmap(f, 4096)); os.close(f)\n"
        "time.sleep(0.3); print('ESCAPED')",
    "much in a file without a name": "f = os.open('.', os.O_TMPFILE | os.O_RDWR); print('ESCAPED')",
    "CPU time": "while time.process_time() < 1.5: pass\nprint('ESCAPED')",
}
ATTEMPTS = FILES | NETWORK | PROCESSES | RESOURCES


class Outside:
    """What must stay as it is while programs run. `changed` says what did not, once."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        os.environ["ISOCOST_SECRET"] = self.secret
        self.home = Path(tempfile.mkdtemp(prefix="outside-", dir=sandbox._base())).resolve()
        self.temporary = Path(tempfile.gettempdir()) / f"isocost-escape-{secrets.token_hex(4)}"
        self.memory = ctypes.create_string_buffer(self.secret.encode(), 64)
        self.servers: list[socket.socket] = []
        self.segment = -1
        self._files()
        self.descriptor = os.open(self.home / "secret", os.O_RDONLY)
        self.tcp = self._server(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        self.udp = self._server(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM).getsockname()[1]
        self.abstract = f"isocost-{self.secret[:8]}"
        self._server(socket.AF_UNIX, "\0" + self.abstract)
        self._server(socket.AF_UNIX, str(self.home / "socket"))
        self._server(socket.AF_UNIX, str(self.home / "datagrams"), socket.SOCK_DGRAM)
        self._shared_memory()
        self.victim = self._other()
        self.before = self.state()

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for server in self.servers:
            server.close()
        os.close(self.descriptor)
        ctypes.CDLL(None).shmctl(self.segment, 0, None)
        ctypes.CDLL(None).mq_unlink(f"/{self.abstract}".encode())
        shutil.rmtree(self.home)
        for made in (self.temporary, Path("/dev/shm") / self.temporary.name):
            made.unlink(missing_ok=True)

    def names(self) -> str:
        """The lines that tell a program where things are."""
        known = {
            "outside": str(self.home), "temporary": str(self.temporary), "tcp": self.tcp, "udp": self.udp,
            "abstract": self.abstract, "parent": os.getpid(), "victim": self.victim.pid, "segment": self.segment,
            "address": ctypes.addressof(self.memory), "secret_descriptor": self.descriptor,
        }
        return "".join(f"{k} = {v!r}\n" for k, v in known.items())

    def state(self) -> dict[str, object]:
        """Of files, and of the other process."""
        out: dict[str, object] = {}
        for path in [self.home, *sorted(self.home.rglob("*"))]:
            s = path.lstat()
            what = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            out[str(path)] = (s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns, s.st_nlink, what,
                              os.listxattr(path, follow_symlinks=False))
            if path.name == "file":
                out["ctime"] = s.st_ctime_ns
        pid = self.victim.pid
        out["process"] = self.victim.poll()
        if out["process"] is None:
            out["process"] = (os.getpriority(os.PRIO_PROCESS, pid), sorted(os.sched_getaffinity(pid)),
                              resource.prlimit(pid, resource.RLIMIT_NOFILE))
        return out

    def changed(self) -> list[str]:
        """What changed since the last call, put back as it was."""
        time.sleep(0.001)
        now = self.state()
        found = [k for k in {**now, **self.before} if now.get(k) != self.before.get(k)]
        for server in self.servers:
            with contextlib.suppress(BlockingIOError):
                if server.type == socket.SOCK_DGRAM:
                    server.recv(100)
                else:
                    server.accept()[0].close()
                found.append(str(server.getsockname()))
        if found:
            if now["process"] != self.before["process"]:
                self.victim.kill()
                self.victim.wait()
                self.victim = self._other()
            for path in self.home.iterdir():
                if path.name not in ("socket", "datagrams"):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            self._files()
            self.before = self.state()
        return found

    def _files(self) -> None:
        (self.home / "secret").write_text(self.secret)
        (self.home / "file").write_text("as it was")
        (self.home / "planted.py").write_text(f"print({self.secret!r})")
        (self.home / "empty").mkdir()
        with contextlib.closing(sqlite3.connect(self.home / "data.db")) as data, data:
            data.execute("create table t(x)")
            data.execute("insert into t values(?)", (self.secret,))

    def _server(self, family: int, address: object, kind: int = socket.SOCK_STREAM) -> socket.socket:
        server = socket.socket(family, kind)
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        server.setblocking(False)
        self.servers.append(server)
        return server

    def _shared_memory(self) -> None:
        libc = ctypes.CDLL(None)
        self.segment = libc.shmget(0, 4096, 0o1600)
        libc.shmat.restype = ctypes.c_void_p
        at = libc.shmat(self.segment, None, 0)
        ctypes.memmove(at, self.memory, 64)

    def _other(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sleep", "600"], start_new_session=True)


def out(without: tuple[str, ...] = (), attempts: dict[str, str] = ATTEMPTS, *, abi: int = 0) -> dict[str, str]:
    """The attempts that got out of a sandbox without some layers, with what shows it."""
    outside = Outside()
    found = {}
    try:
        with Sandbox(LIMITS, without=without, abi=abi, at_once=1) as opened:
            for name, code in attempts.items():
                with opened.folder() as folder:
                    other = folder.parent / "other"
                    other.mkdir()
                    (other / "secret").write_text(outside.secret)
                    result = opened.run_now(f"{HEAD}{outside.names()}\n{code}", folder)
                    changed = outside.changed()
                    changed += ["the folder of another episode"] if (other / "new").exists() else []
                    shutil.rmtree(other)
                if "ESCAPED" in result.text or outside.secret in result.text or changed:
                    found[name] = f"{result.how} {changed} {result.text[:100]}"
    finally:
        outside.close()
    return found


if __name__ == "__main__":
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    print(json.dumps(out(tuple(sys.argv[1:]))))
