"""Helm, built from its Go module, and the schemas of Kubernetes, as a package of Python; both fetched once into target/kafka."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from tests.tools.fetched import FETCHED, NotThere, install

MODULE: Final = "helm.sh/helm/v3/cmd/helm@v3.22.0"
SCHEMAS: Final = "kubernetes-validate==1.37.0"
#: The version for which the chart is rendered, and whose schemas the resources of Kubernetes itself must obey.
KUBERNETES: Final = "1.33"


def helm() -> Path:
    """Return the program. Raises NotThere."""
    program = FETCHED / "bin" / "helm"
    if not program.is_file():
        if shutil.which("go") is None:
            raise NotThere("there is no Go to build Helm with")
        command = ["go", "install", MODULE]
        environment = {**os.environ, "GOBIN": str(program.parent)}
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise NotThere(f"{MODULE} cannot be built: {ran.stderr[-500:]}")
    return program


def lint(chart: Path, values: dict[str, Any]) -> str:
    """Return what Helm's strict lint prints about a chart; raise AssertionError if it finds a fault."""
    command = [helm(), "lint", "--strict", chart, "--kube-version", KUBERNETES, "--values", "-"]
    ran = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def render(chart: Path, values: dict[str, Any], release: str = "streamer") -> dict[tuple[str, str], dict[str, Any]]:
    """Return the resources of a release, by kind and name.

    Raises:
        ValueError: the chart refuses the values.
    """
    command = [helm(), "template", release, chart, "--namespace", "shop", "--kube-version", KUBERNETES, "--values", "-"]
    ran = subprocess.run(command, input=yaml.safe_dump(values), capture_output=True, text=True, check=False)
    if ran.returncode:
        raise ValueError(ran.stderr)
    made = [each for each in yaml.safe_load_all(ran.stdout) if each]
    found = {(each["kind"], each["metadata"]["name"]): each for each in made}
    assert len(found) == len(made)
    return found


def validate(resource: dict[str, Any]) -> None:
    """Raise an error if a resource of Kubernetes itself does not obey its schema."""
    folder = install(SCHEMAS, FETCHED / "kubernetes-validate")
    sys.path.append(str(folder))
    try:
        import kubernetes_validate

        kubernetes_validate.validate(resource, KUBERNETES, strict=True)
    finally:
        sys.path.remove(str(folder))
