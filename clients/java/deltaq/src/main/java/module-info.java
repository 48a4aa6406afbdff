/** The client of deltaq. */
// OpenTelemetry and Micrometer have no module-info, but names that stay.
@SuppressWarnings({"requires-automatic", "requires-transitive-automatic"})
module example.deltaq {
    requires transitive java.net.http;
    requires com.fasterxml.jackson.databind;
    // The packages otel and micrometer need these, which the application brings.
    requires static transitive io.opentelemetry.api;
    requires static io.opentelemetry.context;
    requires static transitive micrometer.core;

    exports example.deltaq;
    exports example.deltaq.micrometer;
    exports example.deltaq.otel;
}
