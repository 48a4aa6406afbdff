package example.deltaq.fabric8;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import example.deltaq.Kubernetes;
import example.deltaq.KeyPart;
import example.deltaq.Queue;
import example.deltaq.QueueSettings;
import example.deltaq.test.DeltaqExtension;
import example.deltaq.test.DeltaqServer;
import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.api.model.ObjectMetaBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.ConfigBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.dsl.base.ResourceDefinitionContext;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;

/** An unmodified informer of fabric8 keeps a store in step with a queue, over the API of Kubernetes. */
@Timeout(60)
class InformerTest {
    @RegisterExtension
    static final DeltaqExtension DELTAQ = new DeltaqExtension(new DeltaqServer.Options().setting("kubernetes.enabled", "true"));

    private static final ResourceDefinitionContext PRICES = new ResourceDefinitionContext.Builder().withGroup("shop.example").withVersion("v1")
            .withKind("Price").withPlural("prices").withNamespaced(true).build();

    private static Map<String, Object> price(String name, int amount) {
        return Map.of("metadata", Map.of("namespace", "shop", "name", name), "amount", amount);
    }

    /** Nothing else is set: fabric8 tries a WebSocket, which is refused, and goes over to a plain watch. */
    private static Config config() {
        return new ConfigBuilder().withMasterUrl(DELTAQ.server().url()).build();
    }

    private static void await(BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) {
            Thread.sleep(10);
        }
    }

    @Test
    void anInformerReadsAQueueAndAClientWritesIt(Queue queue) throws Exception {
        queue.putSettings(QueueSettings.builder().key(List.of(new KeyPart("/metadata/namespace", true), KeyPart.of("/metadata/name")))
                .kubernetes(new Kubernetes("shop.example", "v1", "Price", "prices", null)).build());
        queue.add(List.of(price("apple", 1), price("pear", 2)));
        List<String> events = new CopyOnWriteArrayList<>();
        try (KubernetesClient client = new KubernetesClientBuilder().withConfig(config()).build()) {
            SharedIndexInformer<GenericKubernetesResource> informer = client.genericKubernetesResources(PRICES).inNamespace("shop")
                    .inform(new ResourceEventHandler<GenericKubernetesResource>() {
                        @Override
                        public void onAdd(GenericKubernetesResource object) {
                            events.add("add " + object.getMetadata().getName());
                        }

                        @Override
                        public void onUpdate(GenericKubernetesResource before, GenericKubernetesResource now) {
                            events.add("update " + now.getMetadata().getName() + " " + now.get("amount").toString());
                        }

                        @Override
                        public void onDelete(GenericKubernetesResource object, boolean isFinalStateUnknown) {
                            events.add("delete " + object.getMetadata().getName() + " " + isFinalStateUnknown);
                        }
                    });
            await(informer::hasSynced);
            await(() -> events.size() == 2);
            queue.update(price("apple", 3));
            queue.deleteKey("shop/pear");
            await(() -> events.size() == 4);
            assertTrue(events.containsAll(List.of("add apple", "add pear", "update apple 3", "delete pear false")), events.toString());
            GenericKubernetesResource created = new GenericKubernetesResource();
            created.setApiVersion("shop.example/v1");
            created.setKind("Price");
            created.setMetadata(new ObjectMetaBuilder().withNamespace("shop").withName("plum").build());
            created.setAdditionalProperty("amount", 5);
            client.genericKubernetesResources(PRICES).inNamespace("shop").resource(created).create();
            await(() -> informer.getIndexer().getByKey("shop/plum") != null);
            assertEquals(2, informer.getIndexer().list().size());
            assertEquals(5, queue.latestObject("shop/plum").object().object(Map.class).get("amount"));
            // A worker of deltaq gets what a client of Kubernetes has written.
            assertEquals(1, queue.pop().items().size());
            informer.close();
        }
    }
}
