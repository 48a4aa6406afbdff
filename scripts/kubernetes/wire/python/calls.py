#!/usr/bin/env python3
"""Calls of a resource of a Kubernetes API with the Python libraries, each with the outcome that a real server has: calls.py LIBRARY."""

import asyncio
import sys

from common import GROUP, KIND, RESOURCE, VERSION, Faults, price

NAME = f"calls-{sys.argv[1]}"
faults = Faults(sys.argv[1])
OTHER = "00000000-0000-0000-0000-000000000000"


def kubernetes():
    from kubernetes import client, config, dynamic

    config.load_kube_config()
    found = dynamic.DynamicClient(client.ApiClient()).resources.get(api_version=f"{GROUP}/{VERSION}", kind=KIND[RESOURCE])
    code = lambda error: getattr(error, "status", None)  # noqa: E731
    where = {"namespace": "shop"} if RESOURCE == "prices" else {}
    made = found.create(body=price(NAME, 1), **where)
    faults.expect(made.metadata.uid and made.metadata.creationTimestamp and made.spec.eur == 1, f"create gives {made}")
    faults.refused(409, "create of an existing object", lambda: found.create(body=price(NAME, 1), **where), code)
    faults.refused(404, "get of an absent object", lambda: found.get(name="absent", **where), code)
    got = found.get(name=NAME, **where)
    faults.expect(got.to_dict() == made.to_dict(), f"get gives {got}")
    change = got.to_dict()
    change["spec"]["eur"] = 2
    changed = found.replace(body=change, **where)
    faults.expect(int(changed.metadata.resourceVersion) > int(made.metadata.resourceVersion), "replace does not raise the version")
    faults.refused(409, "replace with a stale version", lambda: found.replace(body=change, **where), code)
    merged = found.patch(name=NAME, body={"spec": {"eur": 3, "tags": None}}, content_type="application/merge-patch+json", **where)
    faults.expect(merged.spec.to_dict() == {"eur": 3}, f"merge patch gives {merged.spec}")
    operations = [{"op": "replace", "path": "/spec/eur", "value": 4}]
    patched = found.patch(name=NAME, body=operations, content_type="application/json-patch+json", **where)
    faults.expect(patched.spec.to_dict() == {"eur": 4}, f"JSON patch gives {patched.spec}")
    strategic = {"name": NAME, "body": {}, "content_type": "application/strategic-merge-patch+json"}
    faults.refused(415, "strategic merge patch", lambda: found.patch(**strategic, **where), code)
    faults.refused(409, "delete with another uid", lambda: found.delete(name=NAME, body={"preconditions": {"uid": OTHER}}, **where), code)
    found.delete(name=NAME, body={"preconditions": {"uid": made.metadata.uid}}, **where)
    faults.refused(404, "delete of an absent object", lambda: found.delete(name=NAME, **where), code)
    version = client.VersionApi().get_code()
    faults.expect(version.major == "1" and version.git_version, f"version: {version}")


def asynchronous():
    from kubernetes_asyncio import client, config

    async def run():
        await config.load_kube_config()
        code = lambda error: getattr(error, "status", None)  # noqa: E731
        async with client.ApiClient() as connection:
            api = client.CustomObjectsApi(connection)
            of = (GROUP, VERSION, *(["shop"] if RESOURCE == "prices" else []), RESOURCE)
            scope = "namespaced" if RESOURCE == "prices" else "cluster"
            call = lambda verb, *arguments, **options: getattr(api, f"{verb}_{scope}_custom_object")(*of, *arguments, **options)  # noqa: E731

            async def refused(expected, what, call):
                try:
                    faults.expect(False, f"{what}: got {str(await call)[:200]} instead of {expected}")
                except client.ApiException as error:
                    faults.expect(code(error) == expected, f"{what}: got {str(error)[:300]} instead of {expected}")

            made = await call("create", price(NAME, 1))
            await refused(409, "create of an existing object", call("create", price(NAME, 1)))
            await refused(404, "get of an absent object", call("get", "absent"))
            got = await call("get", NAME)
            faults.expect(got == made, f"get gives {got}")
            got["spec"]["eur"] = 2
            changed = await call("replace", NAME, got)
            faults.expect(int(changed["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"]), "replace does not raise the version")
            await refused(409, "replace with a stale version", call("replace", NAME, got))
            merged = await call("patch", NAME, {"spec": {"eur": 3, "tags": None}}, _content_type="application/merge-patch+json")
            faults.expect(merged["spec"] == {"eur": 3}, f"merge patch gives {merged['spec']}")
            operations = [{"op": "replace", "path": "/spec/eur", "value": 4}]
            patched = await call("patch", NAME, operations, _content_type="application/json-patch+json")
            faults.expect(patched["spec"] == {"eur": 4}, f"JSON patch gives {patched['spec']}")
            await refused(409, "delete with another uid", call("delete", NAME, body={"preconditions": {"uid": OTHER}}))
            gone = await call("delete", NAME)
            faults.expect(gone.get("status") == "Success", f"delete gives {gone}")
            await refused(404, "delete of an absent object", call("delete", NAME))

    asyncio.run(run())


def kr8s():
    import kr8s
    from kr8s.objects import new_class

    kind = new_class(KIND[RESOURCE], f"{GROUP}/{VERSION}", namespaced=RESOURCE == "prices", plural=RESOURCE, asyncio=False)
    where = {"namespace": "shop"} if RESOURCE == "prices" else {}
    code = lambda error: getattr(getattr(error, "response", None), "status_code", None)  # noqa: E731
    made = kind(price(NAME, 1))
    made.create()
    faults.expect(made.raw["metadata"].get("uid") and made.raw["spec"]["eur"] == 1, f"create gives {made.raw}")
    faults.refused(409, "create of an existing object", kind(price(NAME, 1)).create, code)
    got = kind.get(NAME, **where)
    faults.expect(got.raw.to_dict() == made.raw.to_dict(), f"get gives {got.raw}")
    faults.expect(made.exists(), "exists() of an object is false")
    got.patch({"spec": {"eur": 3, "tags": None}}, type="merge")
    faults.expect(got.raw["spec"].to_dict() == {"eur": 3}, f"merge patch gives {got.raw['spec']}")
    got.patch([{"op": "replace", "path": "/spec/eur", "value": 4}], type="json")
    faults.expect(got.raw["spec"].to_dict() == {"eur": 4}, f"JSON patch gives {got.raw['spec']}")
    got.label(shelf="s")
    got.refresh()
    faults.expect(got.labels.get("shelf") == "s", f"labels: {got.labels}")
    listed = [found.name for found in kr8s.get(kind, label_selector={"judge": "calls", "shelf": "s"}, **where)]
    faults.expect(listed == [NAME], f"list with a selector: {listed}")
    found = list(kr8s.get(f"{RESOURCE}.{GROUP}", NAME, **where))
    faults.expect([one.name for one in found] == [NAME], f"list by discovery: {found}")
    got.delete()
    faults.expect(not got.exists(), "exists() of a deleted object is true")
    faults.expect(kr8s.api().version()["major"] == "1", f"version: {kr8s.api().version()}")


def lightkube():
    from lightkube import ApiError, Client, generic_resource
    from lightkube.types import PatchType

    make = generic_resource.create_namespaced_resource if RESOURCE == "prices" else generic_resource.create_global_resource
    kind = make(GROUP, VERSION, KIND[RESOURCE], RESOURCE)
    where = {"namespace": "shop"} if RESOURCE == "prices" else {}
    client = Client(field_manager="judge")
    code = lambda error: error.status.code if isinstance(error, ApiError) else None  # noqa: E731
    reason = lambda error: error.status.reason if isinstance(error, ApiError) else None  # noqa: E731
    made = client.create(kind(price(NAME, 1)))
    faults.expect(made.metadata.uid and made["spec"]["eur"] == 1, f"create gives {made}")
    faults.refused("AlreadyExists", "create of an existing object", lambda: client.create(kind(price(NAME, 1))), reason)
    faults.refused(404, "get of an absent object", lambda: client.get(kind, "absent", **where), code)
    got = client.get(kind, NAME, **where)
    faults.expect(got == made, f"get gives {got}")
    got["spec"]["eur"] = 2
    changed = client.replace(got)
    faults.expect(int(changed.metadata.resourceVersion) > int(made.metadata.resourceVersion), "replace does not raise the version")
    faults.refused("Conflict", "replace with a stale version", lambda: client.replace(got), reason)
    merged = client.patch(kind, NAME, {"spec": {"eur": 3, "tags": None}}, patch_type=PatchType.MERGE, **where)
    faults.expect(merged["spec"] == {"eur": 3}, f"merge patch gives {merged['spec']}")
    patched = client.patch(kind, NAME, [{"op": "replace", "path": "/spec/eur", "value": 4}], patch_type=PatchType.JSON, **where)
    faults.expect(patched["spec"] == {"eur": 4}, f"JSON patch gives {patched['spec']}")
    faults.refused(415, "strategic merge patch", lambda: client.patch(kind, NAME, {}, patch_type=PatchType.STRATEGIC, **where), code)
    listed = [found.metadata.name for found in client.list(kind, labels={"judge": "calls"}, fields={"metadata.name": NAME}, chunk_size=1, **where)]
    faults.expect(listed == [NAME], f"list with selectors: {listed}")
    client.delete(kind, NAME, **where)
    faults.refused(404, "delete of an absent object", lambda: client.delete(kind, NAME, **where), code)


{"kubernetes": kubernetes, "asyncio": asynchronous, "kr8s": kr8s, "lightkube": lightkube}[sys.argv[1]]()
faults.end()
