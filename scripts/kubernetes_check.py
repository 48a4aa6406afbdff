"""Checks deploy/kubernetes and deploy/helm for deploy_check.py: renders the kustomization with kubectl and the chart with helm, compares what they
make with the schemas of Kubernetes, with each other and with the image, and refuses what users get wrong."""
import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile
from typing import Callable

import kubernetes_validate
import yaml

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOOLS = ROOT / "target/tools/kubernetes"
CHART = ROOT / "deploy/helm/deltaq"
# Go prints the first one as 1.048576e+06, if it is a float. JavaScript and Go's floats have no whole number of their own after the second one.
NUMBERS = (1048576, 2**53 - 1)
SINGLE = {"tokens": {"existingSecret": "deltaq-tokens"}}
NODES = SINGLE | {
    "nodes": {"enabled": True, "existingSecret": "deltaq-nodes"},
    "database": {"url": "postgres://deltaq@postgres.databases/deltaq?sslmode=require", "existingSecret": "deltaq-database"},
}


@dataclasses.dataclass
class Image:
    """What the Dockerfile says, and what checks commands and settings with the program."""

    binary: str
    environment: dict
    api_port: int
    metrics_port: int
    shutdown: int
    accepts: Callable
    knows: Callable


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True)


def rendered(ended):
    assert ended.returncode == 0, ended.stderr
    return [document for document in yaml.safe_load_all(ended.stdout) if document]


def kustomize(folder):
    return rendered(run(TOOLS / "kubectl", "kustomize", ROOT / "deploy/kubernetes" / folder))


def helm(command, values, *options):
    """`helm template` with a values file: numbers of a file are floats, those of --set are not."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        return run(TOOLS / "helm", *command, CHART, "--values", file.name, *options)


def template(values, *options):
    return rendered(helm(("template", "deltaq", "--namespace", "deltaq"), values, *options))


def merged(*layers):
    into = {}
    for layer in layers:
        for name, value in layer.items():
            into[name] = merged(into.get(name, {}), value) if isinstance(value, dict) else value
    return into


def of_kind(documents, kind):
    return [document for document in documents if document["kind"] == kind]


def validate(documents):
    for document in documents:
        if document["kind"] != "ServiceMonitor":
            kubernetes_validate.validate(document, "1.37", strict=True)


def check_pod(documents, image, has_nodes):
    """The pod fits the image and its services."""
    validate(documents)
    (stateful_set,) = of_kind(documents, "StatefulSet")
    pod = stateful_set["spec"]["template"]["spec"]
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    (container,) = pod["containers"]
    image.accepts(*container["args"])
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"api": image.api_port, "metrics": image.metrics_port}
    services = {bool(service["spec"].get("clusterIP")): service for service in of_kind(documents, "Service")}
    service = services[False]
    assert {port["targetPort"] for port in service["spec"]["ports"]} == set(ports)
    assert all(each["spec"]["selector"].items() <= labels.items() for each in services.values())
    paths = json.loads((ROOT / "docs/openapi.json").read_text())["paths"]
    for probe in ("livenessProbe", "readinessProbe"):
        assert container[probe]["httpGet"]["path"] in paths and container[probe]["httpGet"]["port"] == "api"
    # The user of the image. It writes only to its volume.
    security = pod["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["fsGroup"]) == (True, 65532, 65532)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert pod["terminationGracePeriodSeconds"] > image.shutdown

    name = stateful_set["metadata"]["name"] + "-0"
    environment = {each["name"]: each.get("value", name) for each in container["env"] if each["name"] != "PGPASSWORD"}
    scheme = "https" if "DELTAQ_SERVER__TLS_CERT" in environment else "http"
    schemes = {container[probe]["httpGet"].get("scheme", "HTTP") for probe in ("livenessProbe", "readinessProbe")}
    assert schemes == {scheme.upper()}, schemes
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    if has_nodes:
        advertised = environment["DELTAQ_CLUSTER__ADVERTISE"].replace("$(DELTAQ_CLUSTER__NODE_NAME)", name)
        assert advertised == f"{scheme}://{name}.{services[True]['metadata']['name']}:{image.api_port}"
        environment["DELTAQ_CLUSTER__ADVERTISE"] = advertised
        check_nodes(documents, stateful_set, services[True])
    else:
        assert stateful_set["spec"]["replicas"] == 1 and not of_kind(documents, "PodDisruptionBudget")
        (claim,) = stateful_set["spec"]["volumeClaimTemplates"]
        assert mounts[image.environment["DELTAQ_STORAGE__DATA_DIR"]] == claim["metadata"]["name"]
        volumes.add(claim["metadata"]["name"])
    assert set(mounts.values()) == volumes, (mounts, volumes)
    for variable in ("DELTAQ_ACCESS__TOKENS_FILE", "DELTAQ_CLUSTER__SECRET_FILE", "DELTAQ_SERVER__TLS_CERT", "DELTAQ_SERVER__TLS_KEY", "DELTAQ_CLUSTER__CA_FILE"):
        if variable in environment:
            assert str(pathlib.PurePath(environment[variable]).parent) in mounts
    image.knows(image.environment | environment)
    return stateful_set


def check_nodes(documents, stateful_set, of_nodes):
    labels = stateful_set["spec"]["template"]["metadata"]["labels"]
    pod = stateful_set["spec"]["template"]["spec"]
    assert stateful_set["spec"]["serviceName"] == of_nodes["metadata"]["name"]
    # Nodes must find each other before they are ready.
    assert of_nodes["spec"]["clusterIP"] == "None" and of_nodes["spec"]["publishNotReadyAddresses"] is True
    # The drain of a machine stops one node at a time, and a lost machine is one node.
    (budget,) = of_kind(documents, "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1 < stateful_set["spec"]["replicas"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (preferred,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert preferred["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= labels.items()


def check_monitor(documents):
    """The monitor selects exactly one service, by a port that the service has."""
    (monitor,) = of_kind(documents, "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    scraped = [
        service
        for service in of_kind(documents, "Service")
        if wanted <= service["metadata"]["labels"].items() and endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    ]
    assert len(scraped) == 1, scraped
    assert {"targetLabel": "job", "replacement": "deltaq"} in endpoint["relabelings"]


def check_policy(documents, sources):
    """The policy selects the pods, and lets these peers, or everyone, reach each port that they have."""
    (policy,) = of_kind(documents, "NetworkPolicy")
    (stateful_set,) = of_kind(documents, "StatefulSet")
    template = stateful_set["spec"]["template"]
    labels = template["metadata"]["labels"].items()
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels and policy["spec"]["policyTypes"] == ["Ingress"]
    ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
    rules = policy["spec"]["ingress"]
    assert {port["port"] for rule in rules for port in rule["ports"]} == ports
    assert [rule.get("from") for rule in rules[:2]] == sources
    # Nodes reach each other.
    assert [rule["from"][0]["podSelector"]["matchLabels"].items() <= labels for rule in rules[2:]] == [True] * ("DELTAQ_CLUSTER__NODE_NAME" in str(template))


def leaves(values, path=()):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        elif isinstance(value, int) and not isinstance(value, bool):
            yield (*path, name)


def at(path, value):
    for name in reversed(path):
        value = {name: value}
    return value


def check_numbers():
    """Each number of the values arrives as it was written, also inside the parts that the chart copies."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    everything = merged(NODES, {"serviceMonitor": {"enabled": True, "existingSecret": "a"}})
    paths = [*leaves(defaults), ("settings", "queues", "max_batch"), ("settings", "queue_defaults", "retention", "events")]
    assert len(paths) >= 14, paths
    for number in NUMBERS:
        copied = {
            "settings": {"server": {"trusted_proxies": [number]}},
            "resources": {"limits": {"cpu": number}},
            "tolerations": [{"key": "a", "tolerationSeconds": number}],
            "extraVolumes": [{"name": "a", "secret": {"secretName": "a", "defaultMode": number}}],
        }
        values = merged(everything, copied, *(at(path, number) for path in paths))
        ended = helm(("template", "deltaq"), values, "--skip-schema-validation")
        assert ended.returncode == 0, ended.stderr
        # Each value is in one place.
        found = re.findall(rf"(?<![\d.]){number}(?![\d.])", ended.stdout)
        assert len(found) == len(paths) + len(copied) and not re.search(r"\d[eE]\+\d", ended.stdout), ended.stdout


def check_refusals():
    """Values that give no working server are refused with a reason."""
    for values, reason in (
        ({}, "set tokens.existingSecret"),
        (SINGLE | {"insecure": True}, "insecure is for a server without tokens"),
        ({"tokens": {"existingSecret": "a", "file": "b"}}, "set one of them"),
        (SINGLE | {"nodes": {"enabled": True}}, "needs database.url"),
        (merged(NODES, {"nodes": {"existingSecret": ""}}), "needs nodes.existingSecret"),
        (SINGLE | {"database": {"url": "postgres://a@b/c"}}, "is for nodes.enabled"),
        (SINGLE | {"settings": {"server": {"listen": ":1"}}}, "settings.server.listen: probes"),
        (SINGLE | {"settings": {"server": {"tls_cert": "/a"}}}, "settings.server.tls_cert: set tls.existingSecret"),
        (SINGLE | {"settings": {"server": {"tls_client_ca": "/a"}}}, "settings.server.tls_client_ca"),
        (SINGLE | {"tls": {"caKey": "ca.crt"}}, "is for tls.existingSecret"),
        (SINGLE | {"networkPolicy": {"clients": ["a"]}}, "networkPolicy"),
        (SINGLE | {"settings": {"access": {"tokens_file": "/a"}}}, "set tokens.existingSecret or tokens.file"),
        (SINGLE | {"settings": {"storage": {"store": "postgres://a@b/c"}}}, "set nodes.enabled and database.url"),
        (merged(NODES, {"database": {"url": "postgres://a:secret@b/c"}}), "put it into database.existingSecret"),
        (SINGLE | {"serviceMonitor": {"enabled": True}}, "needs serviceMonitor.existingSecret"),
        (SINGLE | {"replicas": 3}, "replicas"),
        (SINGLE | {"service": {"port": 70000}}, "65,535"),
        (SINGLE | {"terminationGracePeriodSeconds": "40s"}, "terminationGracePeriodSeconds"),
        (SINGLE | {"database": {"url": "mysql://a@b/c"}}, "database"),
    ):
        ended = helm(("template", "deltaq"), values)
        assert ended.returncode != 0 and reason in ended.stderr, (values, ended.stderr)


def check(image):
    for folder, has_nodes in (("overlays/single", False), ("overlays/nodes", True)):
        documents = kustomize(folder)
        check_pod(documents, image, has_nodes)
        with tempfile.TemporaryDirectory(dir=ROOT / "deploy/kubernetes/overlays", prefix=".check-") as temporary:
            # The commented line of the overlay, in a kustomization of a user.
            user = {"resources": [f"../{pathlib.PurePath(folder).name}"], "components": ["../../components/service-monitor"]}
            (pathlib.Path(temporary) / "kustomization.yaml").write_text(yaml.safe_dump(user))
            check_monitor(kustomize(temporary))

    for values, has_nodes in (
        (SINGLE, False),
        (NODES, True),
        ({"insecure": True}, False),
        (merged(SINGLE, {"tls": {"existingSecret": "deltaq-tls"}}), False),
        (merged(NODES, {"tls": {"existingSecret": "deltaq-tls", "caKey": "ca.crt"}}), True),
        ({"tokens": {"file": "[[tokens]]\nname = \"a\"\n"}}, False),
        (merged(SINGLE, {"settings": {"queues": {"max_queues": 20000}, "server": {"allowed_origins": ["https://a.example"]}}}), False),
    ):
        ended = helm(("lint", "--strict"), values)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        values = values | {"serviceMonitor": {"enabled": True, "existingSecret": "deltaq-prometheus"}}
        documents = template(values)
        check_monitor(documents)
        stateful_set = check_pod(documents, image, has_nodes)
    environment = {each["name"]: each.get("value") for each in stateful_set["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert environment["DELTAQ_QUEUES__MAX_QUEUES"] == "20000"
    assert "DELTAQ_SERVER__DRAIN_DELAY" not in environment
    for settings, delay in (({}, "5s"), ({"server": {"drain_delay": "8s"}}, "8s")):
        (stateful_set,) = (each for each in template(merged(NODES, {"settings": settings})) if each["kind"] == "StatefulSet")
        delays = [each["value"] for each in stateful_set["spec"]["template"]["spec"]["containers"][0]["env"] if each["name"].endswith("DRAIN_DELAY")]
        assert delays == [delay], delays
    assert environment["DELTAQ_SERVER__ALLOWED_ORIGINS"] == '["https://a.example"]'
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}]
    for values in (SINGLE, NODES):
        for policy, sources in (({}, [None, None]), ({"clients": peers}, [peers, None]), ({"metrics": peers}, [None, peers])):
            documents = template(merged(values, {"networkPolicy": {"enabled": True} | policy, "service": {"http2Port": 7072}}))
            validate(documents)
            check_policy(documents, sources)
    assert not of_kind(template(SINGLE), "NetworkPolicy")
    (secret,) = of_kind(template({"tokens": {"file": "the tokens\n"}}), "Secret")
    assert secret["metadata"]["name"] == "deltaq-tokens" and secret["stringData"] == {"tokens.toml": "the tokens\n"}
    # What users read after the installation.
    notes = helm(("install", "prices", "--dry-run=client", "--namespace", "shop"), {"insecure": True})
    assert "http://prices-deltaq.shop:7070" in notes.stdout and "no tokens" in notes.stdout, notes.stdout + notes.stderr
    check_refusals()
    check_numbers()
