"""Write the dashboard, the rules and the table of metrics: `python -m streamer.metrics`, in the project's folder."""

from __future__ import annotations

from pathlib import Path

from streamer.metrics import dashboard, rules, table


def main() -> None:
    """Write each file."""
    deploy, page = Path("deploy"), Path("docs/metrics.md")
    deploy.mkdir(exist_ok=True)
    (deploy / "grafana.json").write_text(dashboard.write(), encoding="utf-8")
    (deploy / "prometheus-rules.yaml").write_text(rules.write(), encoding="utf-8")
    page.write_text(table.into(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
