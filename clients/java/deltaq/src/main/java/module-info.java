/** The client of deltaq. */
// OpenTelemetry and Micrometer have no module-info, but names that stay.
@SuppressWarnings("requires-automatic")
module example.deltaq {
    requires transitive java.net.http;
    requires com.fasterxml.jackson.databind;
    // The packages otel and micrometer need these. An application that uses them brings them, and requires them itself.
    requires static io.opentelemetry.api;
    requires static io.opentelemetry.context;
    requires static micrometer.core;

    exports example.deltaq;
    exports example.deltaq.micrometer;
    exports example.deltaq.otel;
}
