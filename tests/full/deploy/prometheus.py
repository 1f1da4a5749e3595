"""A real Prometheus that scrapes workers of the tests."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import yaml

from full.deploy.monitoring import PROMETHEUS, Json
from support import free_port, wait_for
from support.tools import need

SECOND = "1s"


class Prometheus:
    """One that runs: its API, for queries, rules and alerts."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self._client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}")

    @classmethod
    async def start(
        cls, directory: Path, ports: list[int], changes: dict[str, tuple[str, str]]
    ) -> "Prometheus":
        """Start it with deploy/'s own files, made impatient.

        It scrapes these ports each second, evaluates as often, and waits for no `for`.
        Changes are, by alert, what to replace in its condition, and by what.
        """
        need("prometheus")
        config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": SECOND, "evaluation_interval": SECOND}
        (scrape,) = config["scrape_configs"]
        scrape["static_configs"] = [{"targets": [f"127.0.0.1:{p}" for p in ports]}]
        rules = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)
                if rule.get("alert") in changes:
                    old, new = changes[rule["alert"]]
                    assert old in rule["expr"]
                    rule["expr"] = rule["expr"].replace(old, new)
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        (directory / "rules.yml").write_text(yaml.safe_dump(rules))
        port = free_port()
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=tsdb",
            "--storage.tsdb.retention.size=64MB",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            cwd=directory,
        )
        prometheus = cls(process, port)
        await wait_for(prometheus._is_ready)
        return prometheus

    async def _is_ready(self) -> bool:
        assert self._process.returncode is None, "it has ended"
        await asyncio.sleep(0.05)
        try:
            return (await self._client.get("/-/ready")).is_success
        except httpx.TransportError:
            return False

    async def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer."""
        answer = await self._client.get(f"/api/v1/{path}", params=parameters)
        content = answer.json()
        assert content["status"] == "success", f"{parameters}: {content}"
        return content["data"]

    async def values(self, query: str) -> list[float]:
        """Return the values of a query now, those that are numbers."""
        data = await self.ask("query", query=query)
        found = [float(one["value"][1]) for one in data["result"]]
        return [value for value in found if value == value]  # noqa: PLR0124, not NaN

    async def alerts(self, name: str, **labels: str) -> list[Json]:
        """Return the alerts of a name that fire, with these labels."""
        data = await self.ask("alerts")
        return [
            alert
            for alert in data["alerts"]
            if alert["state"] == "firing"
            and {"alertname": name, **labels}.items() <= alert["labels"].items()
        ]

    async def stop(self) -> None:
        """End it."""
        await self._client.aclose()
        self._process.terminate()
        await self._process.wait()
