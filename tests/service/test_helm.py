"""The Helm chart renders what Kubernetes accepts, and a configuration that the service accepts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import streamer
from streamer.config import loader
from streamer.config.schema.config import Config
from streamer.service.run.fitting import fitting
from streamer.service.run.serve import DRAIN
from tests.tools.helm import lint, render, validate

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "streamer"
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
#: The names of the service in the cluster.
INSIDE = ["streamer.shop", "streamer.shop.svc", "streamer.shop.svc.cluster.local"]
#: Kinds that come with Kubernetes, not with an operator.
OWN = {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"}
ONE: dict[str, Any] = {
    "config": {
        "sources": {"events": {"type": "postgres", "dsn": {"env": "STORE"}, "slot": "streamer"}},
        "sinks": {"matches": {"type": "file", "path": "/var/lib/streamer/matches.jsonl"}},
        "api": {"hosts": ["streamer.example.com"]},
    }
}
SHARED: dict[str, Any] = {
    "replicas": 3,
    "config": {
        "store": {"dsn": {"env": "STORE"}},
        "sources": {"events": {"type": "kafka", "brokers": "kafka:9092", "topics": "events", "group": "streamer"}},
        "sinks": {"matches": {"type": "kafka", "brokers": "kafka:9092", "topic": "matches"}},
        "subscriptions": "subscriptions.jsonl",
    },
    "files": {"subscriptions.jsonl": '  {"id": "a"}\n{"id": "b", "cel": "data.x == \'{{ .Values }}\'"}\n'},
    "secrets": ["streamer-store"],
    "secretFiles": "streamer-files",
    "image": {"repository": "registry.example.com/streamer", "digest": "sha256:" + "0" * 64},
}
EVERYTHING = SHARED | {
    "config": SHARED["config"]
    | {"api": {"tls": {"certificate": "/etc/streamer-secrets/cert.pem", "key": "/etc/streamer-secrets/key.pem"}}},
    "keda": {"enabled": True},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "persistence": {"storageClass": "fast"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    "podAnnotations": {"team": "orders"},
}


def configuration(resources: dict[tuple[str, str], dict[str, Any]], directory: Path) -> Config:
    """Return the configuration of a release, written as its pods see it."""
    (found,) = (each for (kind, _), each in resources.items() if kind == "ConfigMap")
    for name, content in found["data"].items():
        (directory / name).write_text(content)
    return loader.load(directory / "streamer.yaml", {"STORE": "postgresql://store"}, name="streamer.yaml").config


def test_the_chart_is_of_this_version_and_ends_a_pod_after_its_messages() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == streamer.__version__
    assert VALUES["terminationGracePeriodSeconds"] > DRAIN
    user = re.findall(r"^USER (\d+)$", (CHART.parents[1] / "Dockerfile").read_text(), re.M)
    template = (CHART / "templates" / "statefulset.yaml").read_text()
    assert re.findall(r"(?:runAsUser|fsGroup): (\d+)", template) == user * 2


@pytest.mark.integration
@pytest.mark.parametrize("values", [ONE, SHARED, EVERYTHING], ids=["one process", "shared store", "everything"])
def test_what_the_chart_renders_is_accepted(values: dict[str, Any], tmp_path: Path) -> None:
    assert "0 chart(s) failed" in lint(CHART, values)
    resources = render(CHART, values)
    for (kind, _), each in resources.items():
        if kind in OWN:
            validate(each)
    kinds = {kind for kind, _ in resources}
    assert kinds - OWN == ({"ServiceMonitor", "ScaledObject"} if values is EVERYTHING else set())
    config = configuration(resources, tmp_path)
    fitting(loader.Loaded(config))
    if values is not ONE:
        assert (tmp_path / "subscriptions.jsonl").read_text() == SHARED["files"]["subscriptions.jsonl"]
    pods = resources["StatefulSet", "streamer"]["spec"]
    assert pods.get("replicas") == (None if values is EVERYTHING else values.get("replicas", 1))
    (container,) = pods["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"api": config.api.port, "metrics": config.metrics.port}
    assert config.metrics.enabled
    probes = {container[each]["httpGet"]["scheme"] for each in ("livenessProbe", "readinessProbe")}
    assert probes == {"HTTPS" if config.api.tls.certificate is not None else "HTTP"}
    mounted = [Path(each["mountPath"]) for each in container["volumeMounts"]]
    for place in (config.service.data_dir, config.api.tokens.file):
        assert place is not None
        assert any(each in place.parents for each in mounted), place
    (api,) = (each["port"] for each in resources["Service", "streamer"]["spec"]["ports"] if each["name"] == "api")
    assert api == config.api.port
    assert list(config.api.hosts) == (["streamer", *INSIDE, *(["streamer.example.com"] if values is ONE else [])])
    labels = pods["template"]["metadata"]["labels"]
    for kind, name in resources:
        chosen = resources[kind, name]["spec"].get("selector") if kind != "ConfigMap" else None
        if isinstance(chosen, dict):
            assert chosen.get("matchLabels", chosen).items() <= labels.items(), (kind, name)


@pytest.mark.integration
def test_another_configuration_restarts_the_pods() -> None:
    def checksum(values: dict[str, Any]) -> str:
        pod = render(CHART, values)["StatefulSet", "streamer"]["spec"]["template"]
        return str(pod["metadata"]["annotations"]["checksum/config"])

    assert checksum(ONE) == checksum(ONE | {"nodeSelector": {"disk": "ssd"}})
    assert len({checksum(ONE), checksum(SHARED), checksum(SHARED | {"files": {"subscriptions.jsonl": ""}})}) == 3


@pytest.mark.integration
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({}, "needs at least one source"),
        (ONE | {"replicas": 2}, "several processes need a store in PostgreSQL"),
        (ONE | {"keda": {"enabled": True}}, "several processes need a store in PostgreSQL"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        render(CHART, values)
