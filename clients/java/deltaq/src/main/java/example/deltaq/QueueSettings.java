package example.deltaq;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * The settings of a queue. In a call, null means the default. In a reply, every setting with a default has its value, so the settings can be read,
 * changed and sent back.
 *
 * @param mode what a pop delivers, one of {@link Mode}
 * @param key the pointers to the parts of the key
 * @param version the pointer to the version of an object
 * @param versionTies stale or apply
 * @param knownObjects whether acknowledged objects are stored
 * @param emitReplaced whether a Replace queues Replaced
 * @param lease the length of a lease
 * @param maxFailures the failures after which a key is parked; 0 for never
 * @param rateLimiter the wait of a key after a failure
 * @param debounce how long a changed key waits until it is quiet
 * @param order which ready key is delivered first
 * @param groups which keys take turns
 * @param maxLeased the keys that workers may hold at once
 * @param rate how many keys are delivered per second
 * @param resyncPeriod the interval at which all known objects are delivered again
 * @param maxKeys the largest number of keys
 * @param maxObjectBytes the largest object
 * @param maxDeltasPerKey the changes that may wait for one key
 * @param maxBytesPerKey their bytes
 * @param maxDeletePercent the percentage of keys that a Replace may delete
 * @param maxDeletes the number of keys that a Replace may delete
 * @param retention how long events are kept
 * @param follow the queue that feeds this one
 * @param push the endpoint that gets the keys
 * @param hook the webhooks that the queue takes
 * @param cloudEvents how CloudEvents become changes
 * @param kubernetes the resource of the Kubernetes API that the queue is
 * @param owner who has declared the queue
 * @param schema the schema that objects must satisfy
 * @param prune pointers to members that are removed
 * @param ignore pointers to members whose change queues nothing
 * @param diff how differences compare arrays
 * @param indexes the indexes of the known objects, with their pointers
 */
public record QueueSettings(
        String mode, List<KeyPart> key, String version, String versionTies, Boolean knownObjects, Boolean emitReplaced, Duration lease, Long
        maxFailures, RateLimiter rateLimiter, Debounce debounce, Order order, Groups groups, Long maxLeased, DeliveryRate rate, Duration
        resyncPeriod, Long maxKeys, Long maxObjectBytes, Long maxDeltasPerKey, Long maxBytesPerKey, Double maxDeletePercent, Long maxDeletes,
        Retention retention, Follow follow, Push push, Hook hook, @Named("cloudevents") CloudEvents cloudEvents, Kubernetes kubernetes, String
        owner, Json schema, List<String> prune, List<String> ignore, DiffSettings diff, Map<String, String> indexes) {
    /**
     * Settings of which none is given.
     *
     * @return a builder
     */
    public static Builder builder() {
        return new Builder(Map.of());
    }

    /**
     * Settings that begin with these.
     *
     * @return a builder
     */
    public Builder toBuilder() {
        return new Builder(Documents.components(this));
    }

    /** Makes settings. What is not given gets its default in {@link Queue#putSettings}, and is not changed by {@link Queue#patchSettings}. */
    public static final class Builder {
        private final Map<String, Object> given;

        private Builder(Map<String, Object> given) {
            this.given = new HashMap<>(given);
        }

        private Builder set(String name, Object value) {
            given.put(name, value);
            return this;
        }

        /**
         * Sets what a pop delivers, one of {@link Mode}.
         *
         * @param mode what a pop delivers, one of {@link Mode}
         * @return this
         */
        public Builder mode(String mode) {
            return set("mode", mode);
        }

        /**
         * Sets the pointers to the parts of the key.
         *
         * @param key the pointers to the parts of the key
         * @return this
         */
        public Builder key(List<KeyPart> key) {
            return set("key", key);
        }

        /**
         * Sets the pointer to the version of an object.
         *
         * @param version the pointer to the version of an object
         * @return this
         */
        public Builder version(String version) {
            return set("version", version);
        }

        /**
         * Sets stale or apply.
         *
         * @param versionTies stale or apply
         * @return this
         */
        public Builder versionTies(String versionTies) {
            return set("versionTies", versionTies);
        }

        /**
         * Sets whether acknowledged objects are stored.
         *
         * @param knownObjects whether acknowledged objects are stored
         * @return this
         */
        public Builder knownObjects(boolean knownObjects) {
            return set("knownObjects", knownObjects);
        }

        /**
         * Sets whether a Replace queues Replaced.
         *
         * @param emitReplaced whether a Replace queues Replaced
         * @return this
         */
        public Builder emitReplaced(boolean emitReplaced) {
            return set("emitReplaced", emitReplaced);
        }

        /**
         * Sets the length of a lease.
         *
         * @param lease the length of a lease
         * @return this
         */
        public Builder lease(Duration lease) {
            return set("lease", lease);
        }

        /**
         * Sets the failures after which a key is parked.
         *
         * @param maxFailures the failures after which a key is parked; 0 for never
         * @return this
         */
        public Builder maxFailures(long maxFailures) {
            return set("maxFailures", maxFailures);
        }

        /**
         * Sets the wait of a key after a failure.
         *
         * @param rateLimiter the wait of a key after a failure
         * @return this
         */
        public Builder rateLimiter(RateLimiter rateLimiter) {
            return set("rateLimiter", rateLimiter);
        }

        /**
         * Sets how long a changed key waits until it is quiet.
         *
         * @param debounce how long a changed key waits until it is quiet
         * @return this
         */
        public Builder debounce(Debounce debounce) {
            return set("debounce", debounce);
        }

        /**
         * Sets which ready key is delivered first.
         *
         * @param order which ready key is delivered first
         * @return this
         */
        public Builder order(Order order) {
            return set("order", order);
        }

        /**
         * Sets which keys take turns.
         *
         * @param groups which keys take turns
         * @return this
         */
        public Builder groups(Groups groups) {
            return set("groups", groups);
        }

        /**
         * Sets the keys that workers may hold at once.
         *
         * @param maxLeased the keys that workers may hold at once
         * @return this
         */
        public Builder maxLeased(long maxLeased) {
            return set("maxLeased", maxLeased);
        }

        /**
         * Sets how many keys are delivered per second.
         *
         * @param rate how many keys are delivered per second
         * @return this
         */
        public Builder rate(DeliveryRate rate) {
            return set("rate", rate);
        }

        /**
         * Sets the interval at which all known objects are delivered again.
         *
         * @param resyncPeriod the interval at which all known objects are delivered again
         * @return this
         */
        public Builder resyncPeriod(Duration resyncPeriod) {
            return set("resyncPeriod", resyncPeriod);
        }

        /**
         * Sets the largest number of keys.
         *
         * @param maxKeys the largest number of keys
         * @return this
         */
        public Builder maxKeys(long maxKeys) {
            return set("maxKeys", maxKeys);
        }

        /**
         * Sets the largest object.
         *
         * @param maxObjectBytes the largest object
         * @return this
         */
        public Builder maxObjectBytes(long maxObjectBytes) {
            return set("maxObjectBytes", maxObjectBytes);
        }

        /**
         * Sets the changes that may wait for one key.
         *
         * @param maxDeltasPerKey the changes that may wait for one key
         * @return this
         */
        public Builder maxDeltasPerKey(long maxDeltasPerKey) {
            return set("maxDeltasPerKey", maxDeltasPerKey);
        }

        /**
         * Sets their bytes.
         *
         * @param maxBytesPerKey their bytes
         * @return this
         */
        public Builder maxBytesPerKey(long maxBytesPerKey) {
            return set("maxBytesPerKey", maxBytesPerKey);
        }

        /**
         * Sets the percentage of keys that a Replace may delete.
         *
         * @param maxDeletePercent the percentage of keys that a Replace may delete
         * @return this
         */
        public Builder maxDeletePercent(double maxDeletePercent) {
            return set("maxDeletePercent", maxDeletePercent);
        }

        /**
         * Sets the number of keys that a Replace may delete.
         *
         * @param maxDeletes the number of keys that a Replace may delete
         * @return this
         */
        public Builder maxDeletes(long maxDeletes) {
            return set("maxDeletes", maxDeletes);
        }

        /**
         * Sets how long events are kept.
         *
         * @param retention how long events are kept
         * @return this
         */
        public Builder retention(Retention retention) {
            return set("retention", retention);
        }

        /**
         * Sets the queue that feeds this one.
         *
         * @param follow the queue that feeds this one
         * @return this
         */
        public Builder follow(Follow follow) {
            return set("follow", follow);
        }

        /**
         * Sets the endpoint that gets the keys.
         *
         * @param push the endpoint that gets the keys
         * @return this
         */
        public Builder push(Push push) {
            return set("push", push);
        }

        /**
         * Sets the webhooks that the queue takes.
         *
         * @param hook the webhooks that the queue takes
         * @return this
         */
        public Builder hook(Hook hook) {
            return set("hook", hook);
        }

        /**
         * Sets how CloudEvents become changes.
         *
         * @param cloudEvents how CloudEvents become changes
         * @return this
         */
        public Builder cloudEvents(CloudEvents cloudEvents) {
            return set("cloudEvents", cloudEvents);
        }

        /**
         * Sets the resource of the Kubernetes API that the queue is.
         *
         * @param kubernetes the resource of the Kubernetes API that the queue is
         * @return this
         */
        public Builder kubernetes(Kubernetes kubernetes) {
            return set("kubernetes", kubernetes);
        }

        /**
         * Sets who has declared the queue.
         *
         * @param owner who has declared the queue
         * @return this
         */
        public Builder owner(String owner) {
            return set("owner", owner);
        }

        /**
         * Sets the schema that objects must satisfy.
         *
         * @param schema the schema that objects must satisfy
         * @return this
         */
        public Builder schema(Json schema) {
            return set("schema", schema);
        }

        /**
         * Sets pointers to members that are removed.
         *
         * @param prune pointers to members that are removed
         * @return this
         */
        public Builder prune(List<String> prune) {
            return set("prune", prune);
        }

        /**
         * Sets pointers to members whose change queues nothing.
         *
         * @param ignore pointers to members whose change queues nothing
         * @return this
         */
        public Builder ignore(List<String> ignore) {
            return set("ignore", ignore);
        }

        /**
         * Sets how differences compare arrays.
         *
         * @param diff how differences compare arrays
         * @return this
         */
        public Builder diff(DiffSettings diff) {
            return set("diff", diff);
        }

        /**
         * Sets the indexes of the known objects, with their pointers.
         *
         * @param indexes the indexes of the known objects, with their pointers
         * @return this
         */
        public Builder indexes(Map<String, String> indexes) {
            return set("indexes", indexes);
        }

        /**
         * The settings.
         *
         * @return the settings
         */
        public QueueSettings build() {
            return Documents.make(QueueSettings.class, given);
        }
    }
}
