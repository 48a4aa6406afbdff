"""What kubectl says and does on the resource `prices`, line by line. It is the program on the machine, unchanged."""

import json
import os
import re
import subprocess
import threading
import time

NAME = "kubectl-1"
OBJECT = {
    "apiVersion": "shop.example/v1",
    "kind": "Price",
    "metadata": {"name": NAME, "namespace": "shop", "labels": {"tier": "a", "judge": "kubectl"}},
    "spec": {"eur": 1, "tags": ["x"]},
}


class Kubectl:
    def __init__(self, server, kubeconfig, folder):
        self.server, self.folder, self.problems = server, folder, []
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}
        self.real = server.name == "real"

    def run(self, *words, text=None, seconds=60):
        command = ["kubectl", "--cache-dir", self.folder / "kubectl-cache", *words]
        return subprocess.run(command, env=self.environment, input=text, capture_output=True, text=True, timeout=seconds, check=False)

    def expect(self, *words, code=0, out=None, err=None, text=None):
        """Runs a command. `out` and `err` are regular expressions that must match the whole."""
        run = self.run(*words, text=text)
        said = f"kubectl {' '.join(map(str, words))}"
        if run.returncode != code:
            self.problems.append(f"{said}: exit code {run.returncode} instead of {code}: {(run.stdout + run.stderr)[-400:]!r}")
        elif out is not None and not re.fullmatch(out, run.stdout, re.DOTALL):
            self.problems.append(f"{said}: stdout {run.stdout[:500]!r} does not match {out!r}; stderr {run.stderr[:300]!r}")
        elif err is not None and not re.fullmatch(err, run.stderr, re.DOTALL):
            self.problems.append(f"{said}: stderr {run.stderr[:500]!r} does not match {err!r}")
        return run.stdout

    def holds(self, condition, what):
        if not condition:
            self.problems.append(what)

    def file(self, found):
        path = self.folder / "object.json"
        path.write_text(json.dumps(found))
        return path

    def get(self):
        return json.loads(self.run("get", "price", NAME, "-n", "shop", "-o", "json").stdout or "{}")


def judge_kubectl(server, kubeconfig, folder):
    # What is left of a former run.
    server.call("DELETE", server.path("prices", f"shop/{NAME}"))
    server.call("DELETE", server.path("prices", "shop/kubectl-2"))
    kubectl = Kubectl(server, kubeconfig, folder)
    discovery(kubectl)
    writes(kubectl)
    reads(kubectl)
    watches(kubectl)
    patches(kubectl)
    documents(kubectl)
    deletes(kubectl)
    return kubectl.problems


def discovery(kubectl):
    kubectl.expect("version", out=r".*Server Version: v1\.\d+\.\d+.*")
    kubectl.expect("api-versions", out=r"(.*\n)?shop\.example/v1\n.*")
    lines = r"NAME +SHORTNAMES +APIVERSION +NAMESPACED +KIND\nprices +shop\.example/v1 +true +Price\nrates +shop\.example/v1 +false +Rate\n"
    kubectl.expect("api-resources", "--api-group=shop.example", out=lines)
    verbs = kubectl.expect("api-resources", "--api-group=shop.example", "-o", "wide")
    for verb in ("get", "list", "watch", "create", "update", "patch", "delete"):
        kubectl.holds(verb in verbs, f"api-resources -o wide has no verb {verb}: {verbs!r}")
    kubectl.expect("api-resources", "--api-group=shop.example", "-o", "name", out=r"prices\.shop\.example\nrates\.shop\.example\n")
    kubectl.expect("get", "nopes", code=1, err=r'error: the server doesn\'t have a resource type "nopes"\n')


def writes(kubectl):
    made = rf"price\.shop\.example/{NAME} created\n"
    kubectl.expect("create", "-f", kubectl.file(OBJECT), out=made)
    exists = rf'Error from server \(AlreadyExists\): error when creating .*: prices\.shop\.example "{NAME}" already exists\n'
    kubectl.expect("create", "-f", kubectl.file(OBJECT), code=1, err=exists)
    kubectl.expect("create", "-f", "-", text=json.dumps({**OBJECT, "metadata": {**OBJECT["metadata"], "name": "kubectl-2"}}), out=".*kubectl-2 created\n")
    found = kubectl.get()
    kubectl.holds(found.get("spec") == OBJECT["spec"], f"create makes {found}")

    kubectl.expect("replace", "-f", kubectl.file({**OBJECT, "spec": {"eur": 2}}), out=rf"price\.shop\.example/{NAME} replaced\n")
    after = kubectl.get()
    kubectl.holds(after["spec"] == {"eur": 2} and after["metadata"]["uid"] == found["metadata"]["uid"], f"replace makes {after}")
    kubectl.holds(int(after["metadata"]["resourceVersion"]) > int(found["metadata"]["resourceVersion"]), "replace does not raise the version")
    stale = {**OBJECT, "metadata": {**OBJECT["metadata"], "resourceVersion": found["metadata"]["resourceVersion"]}, "spec": {"eur": 3}}
    kubectl.expect("replace", "-f", kubectl.file(stale), code=1, err=r"Error from server \(Conflict\): .*\n")
    absent = {**OBJECT, "metadata": {"name": "absent", "namespace": "shop"}}
    kubectl.expect("replace", "-f", kubectl.file(absent), code=1, err=r'Error from server \(NotFound\): .*prices\.shop\.example "absent" not found\n')
    kubectl.expect("create", "-f", kubectl.file({**absent, "kind": "Other"}), code=1, err=r'.*no matches for kind "Other" in version "shop\.example/v1".*')
    kubectl.expect("annotate", "price", NAME, "-n", "shop", "note=x", out=rf"price\.shop\.example/{NAME} annotated\n")
    kubectl.expect("label", "price", NAME, "-n", "shop", "shelf=s", out=rf"price\.shop\.example/{NAME} labeled\n")
    kubectl.holds(kubectl.get()["metadata"]["labels"].get("shelf") == "s", "label has no effect")


def reads(kubectl):
    head, row = (r"NAME +AGE\n", r" +\d+[smh]\d*s?\n") if kubectl.real else (r"NAME +STATE +AGE\n", r" +(ready|leased|delayed|parked|settled) +\d+[smh]\d*s?\n")
    both = ("-l", "judge=kubectl")
    rows = rf"{NAME}{row}kubectl-2{row}"
    kubectl.expect("get", "prices", "-n", "shop", *both, out=head + rows)
    kubectl.expect("get", "prices", "-n", "shop", *both, "-o", "wide", out=head + rows)
    kubectl.expect("get", "prices", "-A", *both, out=rf"NAMESPACE +{head}shop +{NAME}{row}shop +kubectl-2{row}")
    kubectl.expect("get", "prices", "-n", "shop", *both, "--no-headers", out=rows)
    kubectl.expect("get", "prices", "-n", "shop", *both, "--show-labels", out=rf".*LABELS\n{NAME}.* judge=kubectl,shelf=s,tier=a\n.*")
    kubectl.expect("get", "prices", "-n", "shop", *both, "-L", "tier", out=rf".*TIER\n{NAME}.* a\n.*")
    kubectl.expect("get", "price", NAME, "-n", "shop", out=head + NAME + row)
    kubectl.expect("get", f"prices.shop.example/{NAME}", "-n", "shop", out=head + NAME + row)
    kubectl.expect("get", "prices.v1.shop.example", NAME, "kubectl-2", "-n", "shop", out=head + rows)
    names = rf"price\.shop\.example/{NAME}\nprice\.shop\.example/kubectl-2\n"
    kubectl.expect("get", "prices", "-n", "shop", *both, "-o", "name", out=names)
    kubectl.expect("get", "prices", "-n", "shop", *both, "-o", "name", "--chunk-size=1", out=names)
    kubectl.expect("get", "prices", "-n", "shop", *both, "--chunk-size=1", out=head + rows)
    kubectl.expect("get", "prices", "-n", "shop", *both, "--sort-by=.spec.eur", "-o", "name", out=r"price\.shop\.example/kubectl-2\n.*")
    kubectl.expect("get", "prices", "-A", *both, "--field-selector", f"metadata.name={NAME}", "-o", "name", out=rf"price\.shop\.example/{NAME}\n")
    kubectl.expect("get", "prices", "-A", *both, "--field-selector", "metadata.namespace=other", "-o", "name", out="")
    kubectl.expect("get", "prices", "-n", "shop", "-l", "judge in (kubectl),tier!=a", "-o", "name", out="")
    kubectl.expect("get", "prices", "-n", "shop", "-l", "judge=nobody", err=r"No resources found in shop namespace\.\n")
    kubectl.expect("get", "prices", "--field-selector", "spec.eur=1", code=1, err=r".*field label not supported: spec\.eur.*")
    kubectl.expect("get", "price", "absent", "-n", "shop", code=1, err=r'Error from server \(NotFound\): prices\.shop\.example "absent" not found\n')
    kubectl.expect("get", "prices", NAME, "-n", "shop", "-o", "jsonpath={.spec.eur} {.metadata.labels.tier}", out="2 a")
    kubectl.expect("get", "prices", "-n", "shop", *both, "-o", "custom-columns=N:.metadata.name,E:.spec.eur", out=rf"N +E\n{NAME} +2\nkubectl-2 +1\n")
    yaml = kubectl.expect("get", "price", NAME, "-n", "shop", "-o", "yaml", out=rf"apiVersion: shop\.example/v1\nkind: Price\nmetadata:\n.*  name: {NAME}\n.*spec:\n  eur: 2\n")
    kubectl.holds("uid: " in yaml and "resourceVersion: " in yaml and "creationTimestamp: " in yaml, f"get -o yaml: {yaml[:400]!r}")
    whole = json.loads(kubectl.expect("get", "prices", "-n", "shop", *both, "-o", "json") or "{}")
    items = [(item["kind"], item["apiVersion"], item["metadata"]["name"]) for item in whole.get("items", [])]
    kubectl.holds(items == [("Price", "shop.example/v1", NAME), ("Price", "shop.example/v1", "kubectl-2")], f"get -o json: {items}")
    raw = json.loads(kubectl.expect("get", "--raw", "/apis/shop.example/v1/namespaces/shop/prices?labelSelector=judge%3Dkubectl") or "{}")
    kubectl.holds(raw.get("kind") == "PriceList" and len(raw["items"]) == 2, f"get --raw: {str(raw)[:300]}")


def watched(kubectl, *words, seconds=8):
    """What a watch prints while an object is changed, created and deleted."""
    command = ["kubectl", "--cache-dir", kubectl.folder / "kubectl-cache", "get", "-n", "shop", *words]
    process = subprocess.Popen(command, env=kubectl.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    timer = threading.Timer(seconds, process.terminate)
    timer.start()
    time.sleep(3)
    server, of = kubectl.server, kubectl.server.path("prices", f"shop/{NAME}")
    server.call("PATCH", of, {"spec": {"eur": 7}}, "application/merge-patch+json")
    third = {**OBJECT, "metadata": {**OBJECT["metadata"], "name": "kubectl-3"}}
    server.call("POST", server.path("prices", None, "shop"), third)
    server.call("DELETE", server.path("prices", "shop/kubectl-3"))
    out, err = process.communicate()
    timer.cancel()
    kubectl.holds(not err, f"kubectl get {' '.join(words)}: {err[:300]!r}")
    return out


def watches(kubectl):
    out = watched(kubectl, "prices", "-l", "judge=kubectl", "-w")
    names = [line.split()[0] for line in out.splitlines()]
    kubectl.holds(names == ["NAME", NAME, "kubectl-2", NAME, "kubectl-3", "kubectl-3"], f"get -w prints {out!r}")
    out = watched(kubectl, "prices", "-l", "judge=kubectl", "-w", "--output-watch-events")
    events = [line.split()[:2] for line in out.splitlines()]
    expected = [["EVENT", "NAME"], ["ADDED", NAME], ["ADDED", "kubectl-2"], ["ADDED", "kubectl-3"], ["DELETED", "kubectl-3"]]
    # The patch changes nothing the second time.
    kubectl.holds(events == expected, f"get -w --output-watch-events prints {out!r}")
    out = watched(kubectl, "price", NAME, "-w", "-o", "name")
    kubectl.holds(set(out.split()) == {f"price.shop.example/{NAME}"}, f"get NAME -w prints {out!r}")
    out = watched(kubectl, "prices", "-l", "judge=kubectl", "--watch-only", "-o", "jsonpath={.metadata.name} {.spec.eur}{\"\\n\"}")
    kubectl.holds(out == "kubectl-3 1\nkubectl-3 1\n", f"get --watch-only prints {out!r}")


def patches(kubectl):
    done = rf"price\.shop\.example/{NAME} patched\n"
    of = ("price", NAME, "-n", "shop")
    kubectl.expect("patch", *of, "--type=merge", "-p", '{"spec":{"eur":8,"new":{"a":[1]}}}', out=done)
    kubectl.expect("patch", *of, "--type=json", "-p", '[{"op":"remove","path":"/spec/new"},{"op":"add","path":"/spec/more","value":true}]', out=done)
    kubectl.holds(kubectl.get()["spec"] == {"eur": 8, "more": True}, f"patches make {kubectl.get()['spec']}")
    kubectl.expect("patch", *of, "--type=merge", "-p", '{"spec":{"eur":8}}', out=rf"price\.shop\.example/{NAME} patched \(no change\)\n")
    kubectl.expect("patch", *of, "--type=json", "-p", '[{"op":"remove","path":"/spec/absent"}]', code=1, err=r".*(request is invalid|Invalid|rejected our request).*")
    kubectl.expect("patch", *of, "-p", '{"spec":{"eur":9}}', code=1, err=r".*(UnsupportedMediaType|media type|strategic merge patch).*")
    kubectl.holds(kubectl.get()["spec"]["eur"] == 8, "a refused patch has an effect")
    # For custom resources kubectl sends apply as a merge patch.
    applied = {**OBJECT, "spec": {"eur": 10}}
    kubectl.expect("apply", "-f", kubectl.file(applied), out=rf"price\.shop\.example/{NAME} configured\n")
    kubectl.holds(kubectl.get()["spec"]["eur"] == 10, "apply has no effect")
    kubectl.expect("apply", "-f", kubectl.file(applied), out=rf"price\.shop\.example/{NAME} unchanged\n")
    if not kubectl.real:
        refused = r".*(UnsupportedMediaType|media type|not acceptable).*"
        kubectl.expect("apply", "--server-side", "-f", kubectl.file(applied), code=1, err=refused)


def documents(kubectl):
    kubectl.expect("explain", "price", out=r"GROUP: +shop\.example\nKIND: +Price\nVERSION: +v1\n.*")
    kubectl.expect("describe", "price", NAME, "-n", "shop", out=rf"Name: +{NAME}\nNamespace: +shop\nLabels: +.*API Version: +shop\.example/v1\nKind: +Price\n.*Spec:\n +Eur: +10\n.*")
    kubectl.expect("create", "--dry-run=client", "-f", kubectl.file({**OBJECT, "metadata": {"name": "dry"}}), out=r"price\.shop\.example/dry created \(dry run\)\n")
    kubectl.expect("diff", "-f", kubectl.file({**kubectl.get()}))
    kubectl.expect("wait", "price", NAME, "-n", "shop", "--for=jsonpath={.spec.eur}=10", "--timeout=5s", out=r".*condition met\n")


def deletes(kubectl):
    kubectl.expect("delete", "price", NAME, "-n", "shop", out=rf'price\.shop\.example "{NAME}" deleted.*\n')
    kubectl.expect("delete", "price", NAME, "-n", "shop", code=1, err=rf'Error from server \(NotFound\): prices\.shop\.example "{NAME}" not found\n')
    kubectl.expect("delete", "price", NAME, "-n", "shop", "--ignore-not-found", out="")
    kubectl.expect("delete", "prices", "-n", "shop", "-l", "judge=kubectl", out=r'price\.shop\.example "kubectl-2" deleted.*\n')
    kubectl.expect("get", "prices", "-n", "shop", "-l", "judge=kubectl", err=r"No resources found in shop namespace\.\n")
    rate = {"apiVersion": "shop.example/v1", "kind": "Rate", "metadata": {"name": "kubectl-rate"}, "spec": {"per": 1.5}}
    kubectl.expect("create", "-f", kubectl.file(rate), out=r"rate\.shop\.example/kubectl-rate created\n")
    kubectl.expect("get", "rate", "kubectl-rate", "-o", "jsonpath={.spec.per}", out="1.5")
    kubectl.expect("delete", "rate", "kubectl-rate", "--wait=true", "--timeout=10s", out=r'rate\.shop\.example "kubectl-rate" deleted.*\n')
