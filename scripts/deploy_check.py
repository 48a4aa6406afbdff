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
        secret = pathlib.Path(folder) / "node-secret"
        secret.write_text("0123456789abcdef" * 4)
        key, certificate = pathlib.Path(folder) / "tls.key", pathlib.Path(folder) / "tls.crt"
        request = ["openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=deltaq"]
        subprocess.run([*request, "-keyout", key, "-out", certificate], check=True, capture_output=True)
        tls = {"DELTAQ_SERVER__TLS_CERT": certificate, "DELTAQ_SERVER__TLS_KEY": key, "DELTAQ_CLUSTER__CA_FILE": certificate}
        files = tls | {"DELTAQ_CONFIG": root / "config/deltaq.toml", "DELTAQ_ACCESS__TOKENS_FILE": tokens, "DELTAQ_CLUSTER__SECRET_FILE": secret}
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
assert service["environment"] == {"DELTAQ_SERVER__ALLOWED_HOSTS": "deltaq"} and "deltaq" in compose["services"]
knows(image_env | service["environment"])
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

# Compose with several nodes.
nodes_compose = yaml.safe_load((deploy / "compose.nodes.yaml").read_text())
ComposeSpecification.model_validate({name: part for name, part in nodes_compose.items() if not name.startswith("x-")}, extra="forbid")
nodes = {name: each for name, each in nodes_compose["services"].items() if each.get("build")}
ports = [port for each in nodes_compose["services"].values() for port in each.get("ports", [])]
assert all(port.startswith("127.0.0.1:") for port in ports) and len(set(ports)) == len(ports)
for name, node in nodes.items():
    command = node["command"]
    accepts(*command)
    flags = dict(zip(command[2::2], command[3::2]))
    assert flags == {"--node-name": name, "--advertise": f"http://{name}:{api_port}"}, command
    settings = {variable: value for variable, value in node["environment"].items() if variable != "PGPASSWORD"}
    knows(image_env | settings | {"DELTAQ_CLUSTER__NODE_NAME": name, "DELTAQ_CLUSTER__ADVERTISE": flags["--advertise"]})
    assert settings["DELTAQ_CLUSTER__SECRET_FILE"] == f"/run/secrets/{node['secrets'][0]}"
    assert node["environment"]["PGPASSWORD"] == nodes_compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD"]
    assert seconds(node["stop_grace_period"]) > shutdown
for each in nodes_compose["services"].values():
    for volume in each.get("volumes", []):
        source = volume.partition(":")[0]
        assert source in nodes_compose["volumes"] or (source.startswith(".") and (deploy / source).is_file()), volume
scraped = yaml.safe_load((deploy / "compose/prometheus.nodes.yml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
assert scraped == [f"{name}:{metrics_port}" for name in nodes]

grafana = yaml.safe_load((deploy / "compose/grafana-datasource.yml").read_text())
assert grafana["datasources"][0]["url"].startswith("http://prometheus:")

# Kubernetes: the kustomization and the chart.
sys.path.insert(0, str(root / "scripts"))
import kubernetes_check

kubernetes_check.check(kubernetes_check.Image(binary, image_env, api_port, metrics_port, shutdown, accepts, knows))

# systemd.
unit = (deploy / "systemd/deltaq.service").read_text()
accepts(*shlex.split(re.search(r"^ExecStart=\S+ (.*)$", unit, re.M)[1]))
knows(dict(line.split("=", 1) for line in re.findall(r"^Environment=(.*)$", unit, re.M)))
assert seconds(re.search(r"^TimeoutStopSec=(.*)$", unit, re.M)[1]) > shutdown

# systemd: reflect. Its help names the variables.
unit = (deploy / "systemd/deltaq-reflect.service").read_text()
accepts(*shlex.split(re.search(r"^ExecStart=\S+ (.*)$", unit, re.M)[1]))
reflect_help = subprocess.run([binary, "reflect", "--help"], check=True, capture_output=True, text=True).stdout
for variable in re.findall(r"^#?Environment=(\w+)=", unit, re.M):
    assert re.search(rf"\b{variable}\b", reflect_help), variable
for source, installed in re.findall(r"^#   install .* (\S+) (\S+)$", unit, re.M):
    assert (root / source).is_file(), source
    assert installed in unit.partition("[Service]")[2] or installed == f"/etc/systemd/system/{pathlib.PurePath(source).name}", installed
stop = re.search(r"^const STOP_MAX: Duration = Duration::from_secs\((\d+)\);$", (root / "src/cli/reflect.rs").read_text(), re.M)[1]
assert seconds(re.search(r"^TimeoutStopSec=(.*)$", unit, re.M)[1]) > int(stop)
# systemd: backups, of the store of the server, into the folder from which old ones are removed.
unit = (deploy / "systemd/deltaq-backup.service").read_text()
command = shlex.split(shlex.split(re.search(r"^ExecStart=(.*)$", unit, re.M)[1])[2])
assert command[:2] == ["exec", "/usr/bin/deltaq"], command
accepts(*command[2:])
data, copies = command[4], pathlib.PurePath(command[6]).parent
assert re.search(r"^ReadWritePaths=(.*)$", unit, re.M)[1] == f"{data} {copies}"
removal = shlex.split(re.search(r"^ExecStartPost=(.*)$", unit, re.M)[1])
assert removal[1] == str(copies) and pathlib.PurePath(command[6]).match(removal[removal.index("-name") + 1]), removal
assert f"DATA_DIR={data}\n" in (deploy / "systemd/deltaq.service").read_text()
for source, installed in re.findall(r"^#   install -m 644 (\S+) (\S+)$", unit, re.M):
    assert (root / source).is_file() and installed == f"/etc/systemd/system/{pathlib.PurePath(source).name}", source
print("the files of deploy/ fit the schemas, each other and the program")
