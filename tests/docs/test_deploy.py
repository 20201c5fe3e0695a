"""Deployment files: syntax, names of settings, and the steps of the image."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from kbcore.config import Config
from kbcore.config.lint import key_problems, known_names
from kbcore.replication.role import check_settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
IMAGE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "kbcore.service").read_text(encoding="utf-8")


def instructions(kind: str) -> list[str]:
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", IMAGE, flags=re.M)).splitlines()
    return [
        re.sub(r"\s+", " ", line.partition(" ")[2].strip())
        for line in lines
        if line.startswith(kind + " ")
    ]


def test_the_image_has_two_stages_a_user_and_a_health_check() -> None:
    build, final = instructions("FROM")
    assert build.endswith(" AS build")
    # What is compiled in the first stage has to fit what runs it: the same Debian, the same Python.
    assert (build.split()[0], final) == (
        "python:3.13-slim-trixie",
        "gcr.io/distroless/python3-debian13:nonroot",
    )
    assert "/usr/bin/python3.13 " in instructions("RUN")[2]
    assert instructions("USER") == ["9300:9300"]
    assert "/health/ready" in instructions("HEALTHCHECK")[0]
    settings = dict(pair.split("=", 1) for pair in instructions("ENV")[0].split(" "))
    assert {
        name for name in settings if not name.startswith(("PATH", "PYTHON", "HOME"))
    } <= known_names()
    config = Config.from_env(settings)
    assert list(key_problems(config)), "the image does not start without a key"
    assert list(key_problems(config.updated({"API_KEY": "x"}))) == []
    assert list(key_problems(config.updated({"REQUIRE_KEYS": "false"}))) == []


def test_hadolint_reports_nothing() -> None:
    command = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which(
        "hadolint"
    )
    if command is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(
        [command, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_only_what_is_needed_goes_into_the_image() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert lines[1] == "*"
    kept = [line[1:] for line in lines if line.startswith("!")]
    # Wheels are there after a release only.
    assert [name for name in kept if not (ROOT / name).exists()] == ["dist/*.whl"]
    assert {"csrc", "kbcore", "planner", "plugins", "server", "pyproject.toml", "setup.py"} <= set(
        kept
    )


def test_compose() -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    services = found["services"]
    assert set(services) == {"leader", "follower", "prometheus", "grafana"}
    assert services["follower"]["environment"]["LEADER_URL"] == "http://leader:9300"
    for name in ("leader", "follower"):
        assert set(services[name]["environment"]) <= known_names()
        assert services[name]["read_only"] is True
        assert services[name]["cap_drop"] == ["ALL"]
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert set(service["secrets"]) <= set(found["secrets"])
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert (
                (DEPLOY / source).is_file()
                if source.startswith(".")
                else source in found["volumes"]
            )
    for path in ("prometheus/prometheus.yml", "grafana/datasource.yml", "grafana/dashboards.yml"):
        assert yaml.safe_load((DEPLOY / path).read_text(encoding="utf-8"))


def test_compose_of_a_cluster() -> None:
    yaml = pytest.importorskip("yaml")
    found = yaml.safe_load((DEPLOY / "compose.cluster.yml").read_text(encoding="utf-8"))
    services = found["services"]
    assert set(services) == {"postgres", "node1", "node2", "node3"}
    for name in ("node1", "node2", "node3"):
        settings = services[name]["environment"]
        assert set(settings) - {"PGPASSWORD"} <= known_names()
        assert settings["ADVERTISE_URL"] == f"http://{name}:9300"
        assert services[name]["read_only"] is True
        assert all(port.startswith("127.0.0.1:") for port in services[name]["ports"])
        config = Config.from_env({k: v for k, v in settings.items() if not k.endswith("_FILE")})
        assert config.storage_backend == "postgres"
        check_settings(config)


def test_kubernetes() -> None:
    yaml = pytest.importorskip("yaml")
    text = (DEPLOY / "kubernetes" / "kbcore-cluster.yaml").read_text(encoding="utf-8")
    objects = {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}
    nodes = objects["StatefulSet", "kbcore"]["spec"]
    template = nodes["template"]["spec"]
    container = template["containers"][0]
    assert ("Service", nodes["serviceName"]) in objects
    labels = nodes["template"]["metadata"]["labels"]
    for kind in ("Service", "PodDisruptionBudget", "NetworkPolicy"):
        assert (kind, "kbcore") in objects
    assert objects["Service", "kbcore"]["spec"]["selector"] == labels
    assert objects["PodDisruptionBudget", "kbcore"]["spec"]["maxUnavailable"] == 1
    settings = {each["name"]: each.get("value", "") for each in container["env"]}
    names = {name.removeprefix("KBCORE_") for name in settings} - {"POD_NAME", "PGPASSWORD"}
    assert names <= known_names()
    assert settings["KBCORE_ADVERTISE_URL"] == f"http://$(POD_NAME).{nodes['serviceName']}:9300"
    # The node gives its shards away before it is killed.
    assert (
        int(settings["KBCORE_SHUTDOWN_TIMEOUT_MS"])
        < template["terminationGracePeriodSeconds"] * 1000
    )
    routes = {container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("liveness", "readiness")}
    assert routes == {"/health", "/health/ready"}
    mounted = {each["name"] for each in container["volumeMounts"]}
    assert mounted == {each["name"] for each in template["volumes"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_settings_of_the_unit_can_be_used() -> None:
    command = [sys.executable, "-m", "kbserver.cli", "config", "check", "--strict", "--env-file"]
    done = subprocess.run(
        [*command, str(DEPLOY / "kbcore.env.example")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_unit_makes_the_first_key_before_the_server_starts() -> None:
    steps = re.findall(r"^ExecStart(?:Pre)?=/opt/kbcore/bin/kbcore (.+)$", UNIT, flags=re.M)
    assert [step.split("/")[0].strip() for step in steps] == ["config check", "keys first", "serve"]
    (folder,) = re.findall(r"keys first /var/lib/([\w-]+)/", UNIT)
    assert folder in re.findall(r"^StateDirectory=(.+)$", UNIT, flags=re.M)[0].split()
    example = (DEPLOY / "kbcore.env.example").read_text(encoding="utf-8")
    assert "KBCORE_AUTH_ENABLED=true" in example.splitlines()
    assert f"STORAGE_DIR=/var/lib/{folder}\n" not in example


def test_the_unit_is_one(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    unit = tmp_path / "kbcore.service"
    unit.write_text(UNIT.replace("/opt/kbcore/bin/kbcore", "/bin/true"), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "kbcore.service" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr


EXTRAS = dict(line.split("=", 1) for line in instructions("ARG"))["EXTRAS"]


def megabytes_of(folder: Path) -> tuple[float, float]:
    """What a folder comes to as files, and packed as an image is sent."""
    size = sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    tar = subprocess.run(
        ["tar", "-C", folder, "-cf", "-", "."], capture_output=True, check=True
    ).stdout
    return size / 1e6, len(gzip.compress(tar, 6)) / 1e6


@pytest.mark.slow
@pytest.mark.parametrize(("extras", "unpacked", "packed"), [(EXTRAS, 50, 18), ("", 35, 13)])
def test_the_steps_of_the_image(
    tmp_path: Path, extras: str, unpacked: float, packed: float
) -> None:
    """What its first stage runs, here, in a folder of its own; what comes of it answers, and is
    small.
    """
    install, move = (line for line in instructions("RUN") if "/opt/kbcore" in line)
    here = Path(sys._base_executable).resolve()  # type: ignore[attr-defined]
    move = move.replace("/usr/bin/python3.13", str(here)).replace("/usr/bin", str(here.parent))
    install = install.replace("python -m", f"{sys.executable} -m")
    script = f"EXTRAS='{extras}'; {install}; {move}".replace("/opt/kbcore", str(tmp_path / "kb"))
    source = tmp_path / "src"
    kept = [
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line[:1] == "!"
    ]
    source.mkdir()
    (source / "deploy").mkdir()
    for name in kept:
        if name == "dist/*.whl":
            continue
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name,
                source / name,
                ignore=shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info"),
            )
        else:
            shutil.copy(ROOT / name, source / name)
    done = subprocess.run(
        ["bash", "-ec", script],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kbcore = tmp_path / "kb" / "bin" / "kbcore"
    shown = subprocess.run(
        [kbcore, "config", "check"],
        capture_output=True,
        text=True,
        check=False,
        env={"HOST": "::", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert shown.returncode == 0, shown.stderr
    assert (tmp_path / "kb" / "bin" / "python").readlink() == here
    for left in ("tests", "pip", "setuptools", "*.h", "*.c"):
        assert not [*(tmp_path / "kb").rglob(left)], left
    sizes = megabytes_of(tmp_path / "kb")
    print(f"installed: {sizes[0]:.1f} MB, packed {sizes[1]:.1f} MB")
    assert sizes[0] < unpacked
    assert sizes[1] < packed
    assert_it_serves(kbcore, tmp_path, postgres="postgres" in extras)


def assert_it_serves(kbcore: Path, folder: Path, *, postgres: bool) -> None:
    python = kbcore.with_name("python")
    library = subprocess.run(
        [python, "-B", "-c", "import psycopg; print(psycopg.pq.__impl__)"],
        capture_output=True,
        check=False,
    )
    assert library.stdout == (b"binary\n" if postgres else b""), library.stderr
    settings = {"PORT": "0", "STORAGE_DIR": str(folder / "data"), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [kbcore, "serve"], env=settings, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            address = re.findall(r"http://\S+", server.stdout.readline())[0]
            with urllib.request.urlopen(f"{address}/health/ready", timeout=10) as found:
                assert found.status == 200
            told = urllib.request.Request(
                f"{address}/execute",
                b'{"command": "p(a). q(?x) :- p(?x). ?- q(?x)."}',
                {"Content-Type": "application/json", "X-Tenant-ID": "t"},
            )
            with urllib.request.urlopen(told, timeout=10) as found:
                assert b"q(a)" in found.read()
        finally:
            server.terminate()
        assert server.wait(30) == 0
