/** Traces with OpenTelemetry. Its API must be in the class path; the client does without it. */
package example.deltaq.otel;
