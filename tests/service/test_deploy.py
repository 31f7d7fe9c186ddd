"""What is in deploy/ for the service fits together, as far as that can be told without running containers."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamer.cdc import LAYOUT
from streamer.config import loader
from streamer.config.schema.config import Config
from streamer.config.schema.connectors.kafka import KafkaSink, KafkaSource
from streamer.config.schema.connectors.postgres import PostgresSource
from streamer.engine.engine import Engine
from streamer.service.run.fitting import fitting
from streamer.service.run.serve import DRAIN
from streamer.terminal import LOST, USAGE

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
HERE = DEPLOY / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((HERE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
UNIT, DOCKERFILE = DEPLOY / "streamer.service", DEPLOY / "Dockerfile"


def mounts(service: str) -> dict[str, Path]:
    """Return the files that a container sees, by the place where it does."""
    found = {}
    for volume in SERVICES[service].get("volumes", ()):
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            found[target] = (HERE / source).resolve()
        else:
            assert source in COMPOSE["volumes"], volume
    return found


def config() -> Config:
    path = mounts("streamer")["/etc/streamer/streamer.yaml"]
    return loader.load(path, SERVICES["streamer"]["environment"], name=path.name).config


def test_the_compose_file_names_what_there_is() -> None:
    known = {"image", "build", "command", "environment", "volumes", "ports", "healthcheck", "depends_on", "restart"}
    for name, service in SERVICES.items():
        assert service.keys() <= known | {"stop_grace_period"}, name
        assert ("image" in service) != ("build" in service)
        # A version that is named, and no port for other machines: passwords stand in the file.
        assert "build" in service or re.fullmatch(r"[a-z/-]+:v?\d+(\.\d+)+", service["image"]), service.get("image")
        assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in service.get("ports", ()))
        for target, source in mounts(name).items():
            assert source.is_file(), (target, source)
        for other, wanted in service.get("depends_on", {}).items():
            assert wanted["condition"] in ("service_healthy", "service_completed_successfully")
            assert (wanted["condition"] == "service_healthy") == ("healthcheck" in SERVICES[other])
    build = SERVICES["streamer"]["build"]
    assert ((HERE / build["context"]).resolve() / build["dockerfile"]).resolve() == DOCKERFILE
    assert int(SERVICES["streamer"]["stop_grace_period"].removesuffix("s")) > DRAIN


def test_the_service_reaches_what_the_compose_file_has(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    made = config()
    fitting(loader.Loaded(made))
    monkeypatch.setenv("PG", SERVICES["streamer"]["environment"]["PG"])
    topics = re.findall(r"for topic in ([\w ]+);", SERVICES["topics"]["command"][-1])[0].split()
    sql = mounts("postgres")["/docker-entrypoint-initdb.d/init.sql"].read_text()
    for source in made.sources.values():
        if isinstance(source, PostgresSource):
            own = SERVICES["postgres"]["environment"]
            expected = "postgresql://{POSTGRES_USER}:{POSTGRES_PASSWORD}@postgres/{POSTGRES_DB}".format(**own)
            assert source.dsn.reveal() == expected
            assert "wal_level=logical" in SERVICES["postgres"]["command"]
            assert f"CREATE PUBLICATION {source.publication} FOR TABLE orders;" in sql
    of_kafka = [each for each in (*made.sources.values(), *made.sinks.values()) if isinstance(each, KafkaSource | KafkaSink)]
    assert of_kafka
    for each in of_kafka:
        assert f"PLAINTEXT://{each.brokers[0]}" == SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        for topic in each.topics if isinstance(each, KafkaSource) else [each.topic]:
            assert topic in topics
    assert f"127.0.0.1:{made.api.port}:{made.api.port}" in SERVICES["streamer"]["ports"]
    engine = Engine(layout=LAYOUT)
    engine.add_jsonl(mounts("streamer")["/etc/streamer/subscriptions.jsonl"])
    assert engine.match_ids({"type": "insert", "collection": "public.orders", "data": {"id": 7, "amount": 1500}}) == ["large"]
    state = Path("/var/lib/streamer")
    assert any(volume.endswith(f":{state}") for volume in SERVICES["streamer"]["volumes"])
    assert made.service.data_dir is not None
    assert made.api.tokens.file is not None
    assert state in made.service.data_dir.parents
    assert state in made.api.tokens.file.parents


def test_what_is_watched_is_what_is_served(tmp_path: Path) -> None:
    made = config()
    seen = mounts("prometheus")
    asked = yaml.safe_load(seen["/etc/prometheus/prometheus.yml"].read_text())
    (job,) = asked["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"streamer:{made.metrics.port}"]
    assert made.metrics.enabled
    for target, source in seen.items():
        shutil.copy(source, tmp_path / Path(target).name)
    if (promtool := shutil.which("promtool")) is not None:
        ran = subprocess.run([promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert "1 rule files found" in ran.stdout
    seen = mounts("grafana")
    (source,) = yaml.safe_load(seen["/etc/grafana/provisioning/datasources/datasource.yaml"].read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    assert source["isDefault"]
    (provider,) = yaml.safe_load(seen["/etc/grafana/provisioning/dashboards/dashboards.yaml"].read_text())["providers"]
    dashboards = [file for target, file in seen.items() if target.startswith(f"{provider['options']['path']}/")]
    assert [json.loads(file.read_text())["uid"] for file in dashboards] == ["streamer"]


def test_the_image_is_built_from_what_there_is() -> None:
    text = DOCKERFILE.read_text()
    let_in = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M) for name in line.split()]
    assert set(copied) == let_in
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {"setup.py", "pyproject.toml", "Cargo.toml", "Cargo.lock", project["readme"], *project["license-files"]}
    assert needed <= let_in

    def version(of: str) -> tuple[int, ...]:
        return tuple(map(int, of.split(".")))

    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    assert version(re.findall(r"FROM rust:([\d.]+)", text)[0]) >= version(rust)
    pythons = re.findall(r"FROM python:([\d.]+)", text)
    assert len(set(pythons)) == 1
    assert version(pythons[0]) >= version(project["requires-python"].removeprefix(">="))


def test_the_image_has_the_packages_of_the_lock_by_their_hashes() -> None:
    text = DOCKERFILE.read_text()
    assert re.findall(r"--require-hashes -r /?locks/(\w+)\.txt", text) == ["build", "service"]
    assert all(re.search(r"--no-deps|--require-hashes", line) for line in text.splitlines() if "pip install" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    service = (DEPLOY / "locks" / "service.txt").read_text()
    extras = re.findall(r"--extra (\w+)", service)
    assert "service" in extras
    (needed,) = re.findall(r"^DEPENDENCIES\b.*? = (\[.*?^\])", (ROOT / "setup.py").read_text(), re.M | re.S)
    asked = [
        *ast.literal_eval(needed),
        *(each for extra in extras for each in project["project"]["optional-dependencies"][extra]),
    ]
    check_locked(service, asked)
    check_locked((DEPLOY / "locks" / "build.txt").read_text(), project["build-system"]["requires"])


def check_locked(lock: str, asked: Iterable[str]) -> None:
    """Check that a lock has each requirement, in a version that it allows, and hashes of each package."""
    versions = {}
    for package in re.sub(r"^#.*\n", "", lock, flags=re.M).replace("\\\n", "").strip().splitlines():
        requirement, *hashes = package.split("--hash=")
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", each) for each in hashes)
        name, version = requirement.partition(";")[0].strip().split("==")
        versions[canonicalize_name(name)] = version
    for each in map(Requirement, asked):
        assert each.specifier.contains(versions[canonicalize_name(each.name)]), each


def test_the_unit_is_one(tmp_path: Path) -> None:
    text = UNIT.read_text()
    told = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith(("#", "[")))
    assert int(told["TimeoutStopSec"]) > DRAIN
    # What may pass is tried again, and nothing else.
    assert told["Restart"] == "on-failure"
    assert set(map(int, told["RestartPreventExitStatus"].split())) == {USAGE, LOST}
    assert told["ExecReload"].endswith("-HUP $MAINPID")
    assert told["ExecStart"].endswith(f"--data-dir /var/lib/{told['StateDirectory']}")
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd is installed here")
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/streamer/bin/streamer", shutil.which("true") or ""))
    ran = subprocess.run([analyze, "verify", unit], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
