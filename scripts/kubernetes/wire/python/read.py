#!/usr/bin/env python3
"""Readers of a resource of a Kubernetes API with the Python libraries: read.py watch|dynamic|informer|asyncio|kr8s|lightkube. KUBECONFIG names the
server, WIRE_RESOURCE the resource. See common.py."""

import asyncio
import sys
from types import SimpleNamespace

from common import GROUP, KIND, RESOURCE, VERSION, Store

store = Store()


def custom_objects():
    from kubernetes import client, config

    config.load_kube_config()
    return client.CustomObjectsApi()


def watch():
    """PyPI kubernetes: list in pages, and Watch."""
    from kubernetes import watch

    api = custom_objects()

    def once():
        items, version, more = [], None, None
        while more != "":
            page = api.list_cluster_custom_object(GROUP, VERSION, RESOURCE, limit=100, **({"_continue": more} if more else {}))
            items += page["items"]
            version, more = version or page["metadata"]["resourceVersion"], page["metadata"].get("continue", "")
        store.replace(items)
        arguments = {"resource_version": version, "allow_watch_bookmarks": True}
        for event in watch.Watch().stream(api.list_cluster_custom_object, GROUP, VERSION, RESOURCE, **arguments):
            store.event(event["type"], event["raw_object"])

    store.for_ever(once)


def dynamic():
    """PyPI kubernetes: the dynamic client, with the initial events of a watch."""
    from kubernetes import config, dynamic
    from kubernetes.client import ApiClient

    config.load_kube_config()

    def once():
        found = dynamic.DynamicClient(ApiClient()).resources.get(api_version=f"{GROUP}/{VERSION}", kind=KIND[RESOURCE])
        listed = found.get()
        store.replace([item.to_dict() for item in listed.items])
        for event in found.watch(resource_version=listed.metadata.resourceVersion):
            store.event(event["type"], event["raw_object"])

    store.for_ever(once)


def informer():
    """PyPI kubernetes: SharedInformer. It reads the attributes of a model, which a custom object does not have."""
    from kubernetes import informer

    api = custom_objects()

    def listed(**options) -> object:
        reply = api.list_cluster_custom_object(GROUP, VERSION, RESOURCE, **options)
        if options.get("watch"):
            return reply
        return SimpleNamespace(items=reply["items"], metadata=SimpleNamespace(resource_version=reply["metadata"]["resourceVersion"]))

    shared = informer.SharedInformer(listed)

    class Cached(Store):
        def dump(self):
            self.objects = {key: shared.cache.get_by_key(key) for key in shared.cache.list_keys()}
            self.synced = shared._resource_version is not None
            return super().dump()

    shared.start()
    Cached().serve()


def asynchronous():
    """PyPI kubernetes-asyncio."""
    from kubernetes_asyncio import client, config, watch

    async def round():
        await config.load_kube_config()
        async with client.ApiClient() as connection:
            api = client.CustomObjectsApi(connection)
            listed = await api.list_cluster_custom_object(GROUP, VERSION, RESOURCE)
            store.replace(listed["items"])
            version = listed["metadata"]["resourceVersion"]
            async with watch.Watch().stream(api.list_cluster_custom_object, GROUP, VERSION, RESOURCE, resource_version=version) as events:
                async for event in events:
                    store.event(event["type"], event["raw_object"])

    store.for_ever(lambda: asyncio.run(round()))


def kr8s():
    """PyPI kr8s."""
    import kr8s
    from kr8s.asyncio.objects import new_class

    async def round():
        api = await kr8s.asyncio.api()
        kind = new_class(KIND[RESOURCE], f"{GROUP}/{VERSION}", namespaced=RESOURCE == "prices", plural=RESOURCE)
        # Its lists have no version, so the watch begins with all objects.
        store.replace([])
        async for event, found in api.watch(kind, namespace=kr8s.ALL):
            store.event(event, found.raw.to_dict())

    store.for_ever(lambda: asyncio.run(round()))


def lightkube():
    """PyPI lightkube."""
    from lightkube import Client, generic_resource

    make = generic_resource.create_namespaced_resource if RESOURCE == "prices" else generic_resource.create_global_resource
    kind = make(GROUP, VERSION, KIND[RESOURCE], RESOURCE)
    arguments = {"namespace": "*"} if RESOURCE == "prices" else {}

    def once():
        client = Client()
        listed = client.list(kind, chunk_size=100, **arguments)
        store.replace([found.to_dict() for found in listed])
        for event, found in client.watch(kind, resource_version=listed.resourceVersion, **arguments):
            store.event(event, found.to_dict())

    store.for_ever(once)


READERS = {"watch": watch, "dynamic": dynamic, "informer": informer, "asyncio": asynchronous, "kr8s": kr8s, "lightkube": lightkube}

if __name__ == "__main__":
    READERS[sys.argv[1]]()
