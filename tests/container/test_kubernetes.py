"""The chart and the plain manifests: Helm and Kubernetes' own schemas accept them, and their parts agree."""

from __future__ import annotations

import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.scripts import script
from vernier.operators.language.collection.app import load_program
from vernier.service.config.settings import load
from vernier.service.toolchain.jvm import spark_home

ALL = [
    *("--set", "monitoring.serviceMonitor=true,monitoring.rules=true,monitoring.dashboards=true"),
    *("--set", "secrets.kafka=brokers,image.pullSecrets[0].name=registry,nodeSelector.disk=ssd"),
    *("--set", "tolerations[0].key=vernier,serviceAccount.annotations.role=arn"),
]
SMALL = [
    "--set",
    "executors.count=0,coordinator.replicas=1,sidecar.autoscaling.enabled=false,networkPolicy.enabled=false",
]
BARE = ["--set", "secrets.store=,secrets.tokens=,http.anonymous=read,programPath=/opt/program.sql"]
VARIANTS = {"default": [], "all": ALL, "small": SMALL, "bare": BARE}
Object = dict[str, Any]


@pytest.fixture(scope="module")
def tool(root: Path) -> ModuleType:
    """tools/kubernetes.py, with Helm and the schemas."""
    found = script(root, "kubernetes")
    if problem := found.fetch():
        if os.environ.get("CI"):
            pytest.fail(problem)
        pytest.skip(problem)
    return found


@pytest.fixture(params=VARIANTS)
def objects(request: pytest.FixtureRequest, tool: ModuleType) -> list[Object]:
    """What the chart makes of some values."""
    made: list[Object] = tool.documents(tool.template(*VARIANTS[request.param]))
    return made


def refused(tool: ModuleType, release: str, made: Object) -> list[str]:
    """What a release of Kubernetes would refuse of an object."""
    defined = json.loads((tool.PLACE / f"{release}.json").read_text("utf-8"))["$defs"]
    group, _, version = made["apiVersion"].rpartition("/")
    for name, about in defined.items():
        kinds = about.get("x-kubernetes-group-version-kind", [])
        if {"group": group, "version": version, "kind": made["kind"]} in kinds:
            schema = {"$defs": defined, "$ref": f"#/$defs/{name}"}
            return [str(one.message) for one in jsonschema_rs.validator_for(schema).iter_errors(made)]
    return [f"there is no {made['apiVersion']} {made['kind']}"]


def test_helm_lints_the_chart(tool: ModuleType) -> None:
    for options in VARIANTS.values():
        command = [tool.helm(), "lint", "--strict", str(tool.CHART), *options]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("release", ["v1.29.0", "v1.37.0"])
def test_kubernetes_accepts_every_object(tool: ModuleType, objects: list[Object], release: str) -> None:
    assert release in tool.RELEASES
    known = [one for one in objects if not one["apiVersion"].startswith("monitoring.coreos.com/")]
    known += [yaml.safe_load(one["data"]["executor.yaml"]) for one in objects if "executor.yaml" in one.get("data", {})]
    assert [refused(tool, release, one) for one in known] == [[]] * len(known)


def test_a_misspelt_field_is_found(tool: ModuleType, objects: list[Object]) -> None:
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    assert any("readynessProbe" in one for one in refused(tool, tool.RELEASES[-1], deployment))


def test_wrong_values_are_refused(tool: ModuleType) -> None:
    for option, said in (
        ("state.path=/var/state", "state/path"),
        ("sidecar.replica=3", "replica"),
        ("executors.memory=lots", "executors/memory"),
        ("secrets.tokens=", "name a secret with tokens"),
    ):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            tool.template("--set", option)
        assert said in caught.value.stderr.replace(".", "/") or said in caught.value.stderr


def test_the_plain_manifests_are_those_of_the_chart(tool: ModuleType, update_golden: bool) -> None:
    if update_golden:
        tool.main(["render"])
    assert tool.MANIFESTS.read_text("utf-8") == tool.manifests(), "python tools/kubernetes.py render"


def test_every_value_is_described(tool: ModuleType, update_golden: bool) -> None:
    if update_golden:
        tool.main(["values"])
    assert tool.PAGE.read_text("utf-8") == tool.page(), "python tools/kubernetes.py values"
    schema = json.loads((tool.CHART / "values.schema.json").read_text("utf-8"))
    given = yaml.safe_load((tool.CHART / "values.yaml").read_text("utf-8"))
    assert set(given) == set(schema["properties"]) - {"global"}


def test_settings_and_program_are_ones_that_the_service_takes(objects: list[Object], tmp_path: Path) -> None:
    """With the environment that the pods set, and none that Kubernetes would add by itself."""
    (found,) = (one["data"] for one in objects if "service.yaml" in one.get("data", {}))
    (tmp_path / "service.yaml").write_text(found["service.yaml"])
    (coordinator,) = (one for one in objects if one["kind"] == "StatefulSet")
    spec = coordinator["spec"]["template"]["spec"]
    assert spec["enableServiceLinks"] is False
    given = {one["name"]: one.get("value", "10.0.0.1") for one in spec["containers"][0]["env"]}
    given = {name: text.replace("$(POD_NAME)", "vernier-coordinator-0") for name, text in given.items()}
    settings = load(tmp_path / "service.yaml", {}, given).settings
    assert settings.state.path == "s3://vernier/state"
    assert settings.exchange.encrypted
    assert settings.spark.on_cluster == ("executor.yaml" in found)
    if settings.spark.on_cluster:
        conf = settings.spark.conf
        assert conf["spark.kubernetes.driver.pod.name"] == "vernier-coordinator-0"
        assert int(conf["spark.executor.instances"]) * int(conf["spark.executor.cores"]) > settings.workers
    if "program.py" in found:
        (tmp_path / "program.py").write_text(found["program.py"])
        assert load_program(tmp_path / "program.py").views


def test_spark_knows_the_settings_of_executors(tool: ModuleType) -> None:
    (found,) = (one["data"] for one in tool.documents(tool.template()) if "service.yaml" in one.get("data", {}))
    (jar,) = (spark_home() / "jars").glob("spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as archive:
        known = archive.read("org/apache/spark/deploy/k8s/Config$.class")
        assert archive.getinfo("org/apache/spark/scheduler/cluster/k8s/KubernetesExecutorBackend.class")
    named = {*re.findall(r"spark\.kubernetes\.[\w.]+", found["service.yaml"]), "spark.kubernetes.driver.pod.name"}
    assert len(named) > 7
    assert [one for one in sorted(named) if one.encode() not in known] == []


def test_what_selects_finds_what_it_means(objects: list[Object]) -> None:
    """Selectors match pods, ports have names, mounts have volumes, and accounts exist."""
    accounts = {one["metadata"]["name"] for one in objects if one["kind"] == "ServiceAccount"}
    pods = []
    for one in objects:
        if one["kind"] in ("StatefulSet", "Deployment"):
            pods.append(one["spec"]["template"])
        if "executor.yaml" in one.get("data", {}):
            pods.append(yaml.safe_load(one["data"]["executor.yaml"]))
    for pod in pods:
        spec = pod["spec"]
        assert spec["serviceAccountName"] in accounts
        volumes = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True

    def chosen(labels: dict[str, str]) -> list[Object]:
        return [pod for pod in pods if labels.items() <= pod["metadata"]["labels"].items()]

    for one in objects:
        if one["kind"] == "Service":
            (pod,) = chosen(one["spec"]["selector"])
            names = {port["name"] for container in pod["spec"]["containers"] for port in container.get("ports", [])}
            assert {port["targetPort"] for port in one["spec"]["ports"]} <= names
        if one["kind"] in ("PodDisruptionBudget", "StatefulSet", "Deployment"):
            assert len(chosen(one["spec"]["selector"]["matchLabels"])) == 1, one["metadata"]["name"]
        if one["kind"] == "ServiceMonitor":
            wanted = one["spec"]["selector"]["matchLabels"].items()
            (service,) = (
                it for it in objects if it["kind"] == "Service" and wanted <= it["metadata"]["labels"].items()
            )
            assert {end["port"] for end in one["spec"]["endpoints"]} <= {p["name"] for p in service["spec"]["ports"]}
        if one["kind"] == "HorizontalPodAutoscaler":
            (target,) = (it for it in objects if it["kind"] == "Deployment")
            assert one["spec"]["scaleTargetRef"]["name"] == target["metadata"]["name"]
            assert "replicas" not in target["spec"]


def test_dashboards_and_alerts_are_those_of_the_other_deployments(tool: ModuleType, root: Path) -> None:
    objects = tool.documents(tool.template(*ALL))
    (shown,) = (one["data"]["vernier.json"] for one in objects if one["metadata"]["name"] == "vernier-dashboards")
    assert json.loads(shown) == json.loads((root / "docker/grafana/dashboards/vernier.json").read_text("utf-8"))
    (rules,) = (one["spec"] for one in objects if one["kind"] == "PrometheusRule")
    assert rules == yaml.safe_load((root / "docker/prometheus/alerts.yml").read_text("utf-8"))


def test_an_executor_starts_java_with_what_spark_says(root: Path, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    options = {f"SPARK_JAVA_OPT_{number}": f"-Done={number} of many" for number in range(11)}
    given = {
        **options, "JAVA_HOME": str(tmp_path), "SPARK_HOME": "/spark", "VERNIER_JARS_DIR": "/jars",
        "SPARK_EXECUTOR_MEMORY": "512m", "SPARK_DRIVER_URL": "spark://driver", "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "1", "SPARK_APPLICATION_ID": "app", "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "pod", "PATH": os.environ["PATH"],
    }  # fmt: skip
    said = subprocess.run([root / "docker/executor.sh", "executor"], env=given, capture_output=True, check=True)
    lines = said.stdout.decode().splitlines()
    assert lines[:11] == [f"-Done={number} of many" for number in range(11)]
    assert lines[11:15] == ["-Xms512m", "-Xmx512m", "-cp", "/spark/jars/*:/jars/spark/*"]
    assert lines[15] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    pairs = dict(zip(lines[16::2], lines[17::2], strict=True))
    assert pairs == {
        "--driver-url": "spark://driver", "--executor-id": "3", "--cores": "1", "--app-id": "app",
        "--hostname": "10.0.0.7", "--resourceProfileId": "0", "--podName": "pod",
    }  # fmt: skip
