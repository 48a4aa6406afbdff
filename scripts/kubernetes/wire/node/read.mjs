// A reader of a resource of a Kubernetes API with makeInformer of @kubernetes/client-node, and the calls of its CustomObjectsApi:
//
//     node read.mjs           each line "dump" on stdin prints the store as a line of JSON; the end of stdin ends the program
//     node read.mjs calls     prints the faults
//
// KUBECONFIG names the server, WIRE_RESOURCE the resource.
import { createInterface } from "node:readline";
import { CustomObjectsApi, KubeConfig, makeInformer, PatchStrategy, setHeaderOptions, VersionApi } from "@kubernetes/client-node";

const plural = process.env.WIRE_RESOURCE ?? "prices";
const of = { group: "shop.example", version: "v1", plural };
const config = new KubeConfig();
config.loadFromDefault();
const api = config.makeApiClient(CustomObjectsApi);

const keyOf = ({ metadata }) => (metadata.namespace ? `${metadata.namespace}/${metadata.name}` : metadata.name);

function read() {
  const informer = makeInformer(config, `/apis/shop.example/v1/${plural}`, () => api.listClusterCustomObject(of));
  const notified = new Map();
  const faults = [];
  const counts = { add: 0, update: 0, delete: 0, error: 0 };
  let synced = false;
  const hears = (what, known) =>
    informer.on(what, (object) => {
      counts[what] += 1;
      const key = keyOf(object);
      if (notified.has(key) !== known && faults.length < 20) {
        faults.push(`${what} of ${key} at ${object.metadata.resourceVersion}, which the reader has: ${notified.has(key)}`);
      }
      if (what === "delete") notified.delete(key);
      else notified.set(key, object.metadata.resourceVersion);
    });
  hears("add", false);
  hears("update", true);
  hears("delete", true);
  informer.on("error", (error) => {
    counts.error += 1;
    console.error(new Date().toISOString(), String(error));
    // The documents say so.
    setTimeout(() => void informer.start(), 500);
  });
  informer.start().then(() => {
    synced = true;
  });
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      if (line !== "dump") return;
      const store = Object.fromEntries(informer.list().map((object) => [keyOf(object), object]));
      const behind = Object.keys(store).length === notified.size ? 0 : 1;
      console.log(JSON.stringify({ synced, store, faults, counts: { ...counts, behind } }));
    })
    .on("close", () => process.exit(0));
}

async function calls() {
  let faults = 0;
  const expect = (holds, what) => {
    if (holds) return;
    faults += 1;
    console.log(`client-node calls: ${what}`);
  };
  const refused = async (code, what, call) => {
    try {
      expect(false, `${what}: got ${JSON.stringify(await call())} instead of ${code}`);
    } catch (error) {
      expect(error.code === code, `${what}: got ${error.code} ${error.message} instead of ${code}`);
    }
  };
  const name = "calls-node";
  const scope = plural === "prices" ? "Namespaced" : "Cluster";
  const where = plural === "prices" ? { ...of, namespace: "shop" } : of;
  const call = (verb, request, options) => api[`${verb}${scope}CustomObject`]({ ...where, ...request }, options);
  const body = {
    apiVersion: "shop.example/v1",
    kind: plural === "prices" ? "Price" : "Rate",
    metadata: { name, labels: { judge: "calls" }, ...(plural === "prices" ? { namespace: "shop" } : {}) },
    spec: { eur: 1, tags: ["x"] },
  };
  const made = await call("create", { body });
  expect(made.metadata.uid && made.metadata.creationTimestamp && made.spec.eur === 1, `create gives ${JSON.stringify(made)}`);
  await refused(409, "create of an existing object", () => call("create", { body }));
  await refused(404, "get of an absent object", () => call("get", { name: "absent" }));
  const got = await call("get", { name });
  expect(JSON.stringify(got) === JSON.stringify(made), `get gives ${JSON.stringify(got)}`);
  got.spec.eur = 2;
  const changed = await call("replace", { name, body: got });
  expect(Number(changed.metadata.resourceVersion) > Number(made.metadata.resourceVersion), "replace does not raise the version");
  await refused(409, "replace with a stale version", () => call("replace", { name, body: got }));
  const patch = (change, kind) => call("patch", { name, body: change }, setHeaderOptions("Content-Type", kind));
  const merged = await patch({ spec: { eur: 3, tags: null } }, PatchStrategy.MergePatch);
  expect(JSON.stringify(merged.spec) === '{"eur":3}', `merge patch gives ${JSON.stringify(merged.spec)}`);
  const patched = await patch([{ op: "replace", path: "/spec/eur", value: 4 }], PatchStrategy.JsonPatch);
  expect(JSON.stringify(patched.spec) === '{"eur":4}', `JSON patch gives ${JSON.stringify(patched.spec)}`);
  await refused(415, "strategic merge patch", () => patch({}, PatchStrategy.StrategicMergePatch));
  const listed = await call("list", { labelSelector: "judge=calls", fieldSelector: `metadata.name=${name}`, limit: 1 });
  expect(listed.items.length === 1, `list with selectors gives ${listed.items.length} objects`);
  const uid = "00000000-0000-0000-0000-000000000000";
  await refused(409, "delete with another uid", () => call("delete", { name, body: { preconditions: { uid } } }));
  const gone = await call("delete", { name });
  expect(gone.status === "Success", `delete gives ${JSON.stringify(gone)}`);
  await refused(404, "delete of an absent object", () => call("delete", { name }));
  const version = await config.makeApiClient(VersionApi).getCode();
  expect(version.major === "1" && version.gitVersion, `version: ${JSON.stringify(version)}`);
  console.log(`${faults} faults`);
  process.exit(faults ? 1 : 0);
}

if (process.argv[2] === "calls") await calls();
else read();
