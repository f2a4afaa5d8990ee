"""A real Slurm of four nodes on this machine, without an installation and without privileges beyond the user's.

BENCH_SLURM_ROOT names a folder with Debian's packages unpacked (Slurm 22.05 of bookworm was tried):

    apt-get download slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge libmunge2 libhwloc15 libjson-c5
    for p in *.deb; do dpkg -x $p ROOT; done
"""

import os
import platform
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

ROOT = os.environ.get("BENCH_SLURM_ROOT")
NODES = 4
CONF = """
ClusterName=toy
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
PluginDir={root}/usr/lib/x86_64-linux-gnu/slurm-wlm
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool/%n
SlurmctldPidFile={home}/ctld.pid
SlurmdPidFile={home}/slurmd-%n.pid
SlurmctldLogFile={home}/log/ctld.log
SlurmdLogFile={home}/log/slurmd-%n.log
SlurmctldPort={port}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
SlurmdTimeout=12
SlurmctldTimeout=10
InactiveLimit=0
KillWait=2
MinJobAge=5
JobRequeue=1
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
PreemptMode=OFF
NodeName=n[1-{nodes}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 RealMemory=500 State=UNKNOWN
PartitionName=main Nodes=n[1-{nodes}] Default=YES MaxTime=INFINITE State=UP
"""


def free(many):
    """The first of so many free ports in a row."""
    for first in range(17800, 60000, 100):
        try:
            for port in range(first, first + many):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise OSError("no free ports")


class Cluster:
    """Its daemons, and what tests do to them."""

    def __init__(self, root, home):
        self.root, self.home = Path(root).resolve(), home
        self.daemons = {}

    def start(self):
        for name in ("state", "spool", "log"):
            (self.home / name).mkdir(parents=True)
        port = free(NODES + 1)
        (self.home / "slurm.conf").write_text(CONF.format(
            host=platform.node().split(".")[0], user=os.environ.get("USER") or "root", root=self.root, home=self.home,
            port=port, first=port + 1, last=port + NODES, nodes=NODES))
        lib = self.root / "usr/lib/x86_64-linux-gnu"
        os.environ["SLURM_CONF"] = str(self.home / "slurm.conf")
        os.environ["LD_LIBRARY_PATH"] = f"{lib}:{lib}/slurm-wlm"
        os.environ["PATH"] = f"{self.root}/usr/bin:{os.environ['PATH']}"
        self._daemon("ctld", "slurmctld-wlm", "-D")
        for k in range(1, NODES + 1):
            (self.home / "spool" / f"n{k}").mkdir()
            self._daemon(f"n{k}", "slurmd-wlm", "-D", "-N", f"n{k}", "-d", str(self.root / "usr/sbin/slurmstepd-wlm"))
        until = time.time() + 60
        while self.said("sinfo", "-h", "-o", "%A") != f"0/{NODES}" and "idle" not in self.said("sinfo", "-h", "-N",
                                                                                             "-o", "%T"):
            if time.time() > until:
                raise OSError((self.home / "log" / "ctld.log").read_text()[-2000:])
            time.sleep(0.5)

    def _daemon(self, name, program, *words):
        self.daemons[name] = subprocess.Popen(
            [str(self.root / "usr/sbin" / program), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True)

    def said(self, *words):
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    def running(self):
        """(job, node) of the jobs that run."""
        return [tuple(x.split()) for x in self.said("squeue", "-h", "-t", "RUNNING", "-o", "%i %N").splitlines()]

    def processes(self, word):
        """The processes whose environment or command holds a word."""
        found = []
        for p in Path("/proc").iterdir():
            if p.name.isdigit():
                try:
                    if word in (p / "environ").read_bytes() + (p / "cmdline").read_bytes():
                        found.append(int(p.name))
                except OSError:
                    continue
        return found

    def kill(self, pids):
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue

    def lose(self, node, job):
        """A node dies: its daemon, the daemon of its job's step, and the job."""
        self.daemons[node].kill()
        self.kill([*self.processes(f"slurmstepd: [{job}".encode()), *self.processes(f"SLURM_JOB_ID={job}\0".encode())])

    def end(self):
        self.said("scancel", "--me", "--signal=KILL", "--full")
        time.sleep(1)
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()


@contextmanager
def cluster(home):
    """A running cluster; its commands are first on PATH."""
    before = {k: os.environ.get(k) for k in ("SLURM_CONF", "LD_LIBRARY_PATH", "PATH")}
    made = Cluster(ROOT, home)
    try:
        made.start()
        yield made
    finally:
        made.end()
        for k, v in before.items():
            os.environ.pop(k, None) if v is None else os.environ.__setitem__(k, v)
