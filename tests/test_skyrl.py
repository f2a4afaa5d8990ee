"""SkyRL's open Tinker server, run for real on a processor (`skyrl_server` says how to install it)."""

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

HOME = Path(__file__).parent
PYTHON = os.environ.get("ISOCOST_SKYRL_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path(PYTHON).is_file(), reason="ISOCOST_SKYRL_PYTHON names no python with SkyRL"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("skyrl")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with (folder / "log").open("w") as log:
        one = subprocess.Popen([PYTHON, str(HOME / "skyrl_server.py"), str(folder / "run"), str(port)], stdout=log,
                               stderr=log, start_new_session=True)
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + 180
    while time.monotonic() < until:
        try:
            urlopen(f"{url}/api/v1/healthz", timeout=2).close()
            break
        except OSError:
            assert one.poll() is None, (folder / "log").read_text()[-2000:]
            time.sleep(1)
    yield url, folder / "run" / "checkpoints"
    os.killpg(one.pid, 15)
    one.wait(30)


def client(*arguments):
    env = {**os.environ, "PYTHONPATH": f"{HOME.parent / 'src'}:{HOME}", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([PYTHON, *arguments], env=env, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout


def test_its_gradients_are_torchs_and_its_conventions_are_named(server):
    url, checkpoints = server
    found = json.loads(client(str(HOME / "skyrl_client.py"), url, str(checkpoints)).splitlines()[-1])
    assert all(x["log-prob gap"] < 1e-5 for x in found["norms"]) and found["worst"] < 1e-4
    said = {f["name"]: (f["verdict"], f["said"]) for f in found["findings"]}
    assert said["reduction"][0] == "warn" and "mean over the tokens of a row and over rows" in said["reduction"][1]
    assert said["grad_clip_norm"][0] == "warn"
    assert "of T = 1 at every requested temperature" in said["temperature"][1]
    others = {k: v for k, v in said.items() if k not in ("reduction", "grad_clip_norm")}
    assert all(v[0] == "ok" for v in others.values()), others


def test_a_run_trains_there(server, tmp_path):
    client("-c", "from isocost.cli import main; main()", "train", "grpo", "--model", f"tinker:{server[0]}#tiny",
           "--lora", "8", "--lr", "3e-4", "-n", "4", "-B", "4", "--budget", "32-rollouts", "--limit", "160",
           "--evaluations", "1", "--out", str(tmp_path / "r"))
    end = json.loads((tmp_path / "r" / "end.json").read_text())
    assert end["reason"] == "spent" and end["steps"] == 2 and "stays with the service" in end["notes"][-1]
