"""python -m tests.lab.containers.manifests CRD.yaml ...: our manifests by real CRDs.

What the tests know of custom resources is written by hand, in crds.yaml. Whoever has
the definitions of KEDA, the Prometheus Operator or CloudNativePG lays them beside it.
"""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

# Neither says its types.
import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import yaml

Json: TypeAlias = dict[str, Any]

KUBERNETES = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
EXAMPLE = KUBERNETES / "example"
CRDS = Path(__file__).with_name("crds.yaml")
# The oldest that has all the fields: a preStop of `sleep` came with it.
VERSIONS = ("1.30", kubernetes_validate.latest_version())


def render(folder: Path) -> list[Json]:
    """Return the objects that kubectl would apply."""
    done = subprocess.run(
        ["kubectl", "kustomize", folder], check=True, capture_output=True, text=True
    )
    return list(yaml.safe_load_all(done.stdout))


def pod_templates(objects: Iterable[Json]) -> dict[str, Json]:
    """Return the template of each kind of pod, by the name of what makes it."""
    found = {}
    for item in objects:
        spec = item.get("spec", {})
        template = spec.get("jobTemplate", {"spec": spec})["spec"].get("template")
        if template:
            found[item["metadata"]["name"]] = template
    return found


def definitions(files: Iterable[Path]) -> dict[tuple[str, str], Json]:
    """Return the schemas of CustomResourceDefinitions, by apiVersion and kind."""
    return {
        (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"]): {
            **_closed(version["schema"]["openAPIV3Schema"]),
            "additionalProperties": True,  # apiVersion, kind and metadata
        }
        for file in files
        for crd in yaml.safe_load_all(file.read_text())
        for version in crd["spec"]["versions"]
    }


def _closed(schema: Any) -> Any:
    """Refuse what is not named, as `kubectl apply` does with strict validation."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        closed = {"type": "object", "additionalProperties": False, **closed}
    return closed


def validate(item: Json, crds: dict[tuple[str, str], Json]) -> None:
    """Check an object strictly.

    Raises:
        jsonschema.ValidationError: It has a field that is unknown or of another type.
        kubernetes_validate.utils.SchemaNotFoundError: Its kind is unknown.
    """
    crd = crds.get((item["apiVersion"], item["kind"]))
    if crd is not None:
        jsonschema.validate(item, crd)
        return
    for version in VERSIONS:
        kubernetes_validate.validate(item, version, strict=True)


def main(files: list[str]) -> None:
    """Check those of the example's objects whose definitions are given."""
    crds = definitions(map(Path, files))
    for item in render(EXAMPLE):
        if (item["apiVersion"], item["kind"]) in crds:
            validate(item, crds)
            print(f"{item['kind']} {item['metadata']['name']}: valid")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
