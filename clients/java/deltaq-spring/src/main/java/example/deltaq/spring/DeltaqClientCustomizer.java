package example.deltaq.spring;

import example.deltaq.ClientOptions;

/** Changes the options of the client, which have the properties and the middleware of the application already. */
@FunctionalInterface
public interface DeltaqClientCustomizer {
    /**
     * Changes the options of the client.
     *
     * @param options the options
     */
    void customize(ClientOptions options);
}
