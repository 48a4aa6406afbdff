#!/usr/bin/env python3
"""Checks the Dockerfile and the files of deploy/: against the schemas of Kubernetes and Compose, against each other, and against a binary, which
must know every setting and every option in them.

    scripts/deploy_check.py BINARY
"""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import kubernetes_validate
import yaml
from compose_spec import ComposeSpecification

binary = sys.argv[1]
root = pathlib.Path(__file__).parent.parent
deploy = root / "deploy"


def seconds(text):
    return int(re.fullmatch(r"(\d+)s?", str(text))[1])


def accepts(*arguments):
    """The binary has these options."""
    ended = subprocess.run([binary, *arguments, "--help"], capture_output=True, text=True)
    assert ended.returncode == 0, (arguments, ended.stderr)


def knows(environment):
    """The binary takes these variables; a file in a container is one of this repository here."""
    # Without the two lines it would be no setting.
    assert all("__" in name or name == "DELTAQ_CONFIG" for name in environment), environment
    with tempfile.TemporaryDirectory() as folder:
        tokens = pathlib.Path(folder) / "tokens.toml"
        subprocess.run([binary, "token", "a", "--verbs", "read", "--queues", "*", "--file", tokens], check=True, capture_output=True)
        files = {"DELTAQ_CONFIG": root / "config/deltaq.toml", "DELTAQ_ACCESS__TOKENS_FILE": tokens}
        environment = {name: str(files.get(name, value)) for name, value in environment.items()}
        ended = subprocess.run([binary, "config", "check"], env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True)
        # Whether the server needs tokens is decided by its command.
        assert ended.returncode == 0 or "--insecure" in ended.stderr, (environment, ended.stderr)


# The image.
dockerfile = re.sub(r"\\\n", "", (root / "Dockerfile").read_text())
image_env = dict(re.findall(r"(DELTAQ_\w+)=(\S+)", re.search(r"^ENV (.*)$", dockerfile, re.M)[1]))
api_port, metrics_port = (int(image_env[f"DELTAQ_SERVER__{name}"].rpartition(":")[2]) for name in ("LISTEN", "METRICS_LISTEN"))
assert re.search(r"^EXPOSE (.*)$", dockerfile, re.M)[1].split() == [str(api_port), str(metrics_port)]
assert image_env["DELTAQ_STORAGE__DATA_DIR"] == re.search(r"^VOLUME (.*)$", dockerfile, re.M)[1]
knows(image_env)
accepts(*json.loads(re.search(r"^CMD (.*)$", dockerfile, re.M)[1]))
accepts(*json.loads(re.search(r"HEALTHCHECK.* CMD (.*)$", dockerfile, re.M)[1])[1:])

# The server ends at most 8 s after this timeout.
shutdown = seconds(re.search(r'^#? *shutdown_timeout = "(.*)"', (root / "config/deltaq.toml").read_text(), re.M)[1]) + 8

# Compose.
compose = yaml.safe_load((deploy / "compose.yaml").read_text())
ComposeSpecification.model_validate(compose, extra="forbid")
service = compose["services"]["deltaq"]
accepts(*service["command"])
assert [port.rpartition(":")[2] for port in service["ports"]] == [str(api_port)]
assert all(port.startswith("127.0.0.1:") for each in compose["services"].values() for port in each["ports"])
assert [volume.partition(":")[2] for volume in service["volumes"]] == [image_env["DELTAQ_STORAGE__DATA_DIR"]]
assert seconds(service["stop_grace_period"]) > shutdown
for each in compose["services"].values():
    for volume in each.get("volumes", []):
        source = volume.partition(":")[0]
        assert source in compose["volumes"] or (source.startswith(".") and (deploy / source).is_file()), volume
prometheus = yaml.safe_load((deploy / "compose/prometheus.yml").read_text())
assert prometheus["scrape_configs"][0]["static_configs"][0]["targets"] == [f"deltaq:{metrics_port}"]
grafana = yaml.safe_load((deploy / "compose/grafana-datasource.yml").read_text())
assert grafana["datasources"][0]["url"].startswith("http://prometheus:")

# Kubernetes.
manifest = (deploy / "kubernetes/deltaq.yaml").read_text()
documents = list(yaml.safe_load_all(manifest))
for document in documents:
    kubernetes_validate.validate(document, "1.37", strict=True)
service, stateful_set = documents
pod = stateful_set["spec"]["template"]["spec"]
(container,) = pod["containers"]
accepts(*container["args"])
knows(image_env | {variable["name"]: variable["value"] for variable in container["env"]})
ports = {port["name"]: port["containerPort"] for port in container["ports"]}
assert ports == {"api": api_port, "metrics": metrics_port}
assert {port["targetPort"]: port["port"] for port in service["spec"]["ports"]} == ports
assert service["spec"]["selector"].items() <= stateful_set["spec"]["template"]["metadata"]["labels"].items()
paths = json.loads((root / "docs/openapi.json").read_text())["paths"]
for probe in ("livenessProbe", "readinessProbe"):
    assert container[probe]["httpGet"]["path"] in paths and container[probe]["httpGet"]["port"] == "api"
mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
assert mounts[image_env["DELTAQ_STORAGE__DATA_DIR"]] == stateful_set["spec"]["volumeClaimTemplates"][0]["metadata"]["name"]
tokens = pathlib.PurePath(next(variable["value"] for variable in container["env"] if variable["name"] == "DELTAQ_ACCESS__TOKENS_FILE"))
assert mounts[str(tokens.parent)] in {volume["name"] for volume in pod["volumes"]}
# `nonroot` of the base images.
assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["fsGroup"]) == (65532, 65532)
assert pod["terminationGracePeriodSeconds"] > shutdown
# The monitor in the comment.
monitor = yaml.safe_load(re.sub(r"^# ?", "", manifest[manifest.index("# apiVersion: monitoring") :], flags=re.M))
assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}

# systemd.
unit = (deploy / "systemd/deltaq.service").read_text()
accepts(*shlex.split(re.search(r"^ExecStart=\S+ (.*)$", unit, re.M)[1]))
knows(dict(line.split("=", 1) for line in re.findall(r"^Environment=(.*)$", unit, re.M)))
assert seconds(re.search(r"^TimeoutStopSec=(.*)$", unit, re.M)[1]) > shutdown
print("the files of deploy/ fit the schemas, each other and the program")
