package example.deltaq.spring;

import com.fasterxml.jackson.databind.ObjectMapper;
import example.deltaq.Client;
import example.deltaq.ClientOptions;
import example.deltaq.Handler;
import example.deltaq.Invoke;
import example.deltaq.Worker;
import example.deltaq.micrometer.Metrics;
import example.deltaq.otel.Tracing;
import io.micrometer.core.instrument.MeterRegistry;
import io.opentelemetry.api.OpenTelemetry;
import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.UnaryOperator;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/** Makes a client, and the workers of {@link DeltaqListener} methods. */
@AutoConfiguration(afterName = {
    "org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration",
    "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration",
    "org.springframework.boot.actuate.autoconfigure.opentelemetry.OpenTelemetryAutoConfiguration"})
@EnableConfigurationProperties(DeltaqProperties.class)
public class DeltaqAutoConfiguration {
    /** Middleware of calls and handlers, and what is measured of a worker of a queue, of one library. */
    record Telemetry(UnaryOperator<Invoke> calls, UnaryOperator<Handler> handlers, BiConsumer<Worker, String> bind) {
        static final Telemetry NONE = new Telemetry(next -> next, next -> next, (worker, queue) -> {});
    }

    /** For Spring. */
    DeltaqAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean
    ClientOptions deltaqClientOptions(DeltaqProperties properties, List<Telemetry> telemetry, ObjectProvider<ObjectMapper> mapper,
            ObjectProvider<DeltaqClientCustomizer> customizers) {
        ClientOptions options = new ClientOptions();
        if (properties.token() != null && !properties.token().isEmpty()) {
            options.token(properties.token());
        }
        if (properties.tokenFile() != null) {
            options.tokenFile(properties.tokenFile());
        }
        mapper.ifUnique(found -> options.encoder(found::writeValueAsString).decoder(found::readValue));
        telemetry.forEach(each -> options.middleware(each.calls()));
        customizers.orderedStream().forEach(customizer -> customizer.customize(options));
        return options;
    }

    @Bean(destroyMethod = "close")
    @ConditionalOnMissingBean
    Client deltaqClient(DeltaqProperties properties, ClientOptions options) {
        return new Client(properties.url(), options);
    }

    @Bean
    @ConditionalOnProperty(name = "deltaq.listeners", matchIfMissing = true)
    DeltaqListeners deltaqListeners(ConfigurableListableBeanFactory beans, Client client, DeltaqProperties properties, List<Telemetry> telemetry,
            ObjectProvider<DeltaqWorkerCustomizer> customizers) {
        return new DeltaqListeners(beans, client, properties.grace(), telemetry, customizers.orderedStream().toList());
    }

    @Bean
    Telemetry deltaqNoTelemetry() {
        return Telemetry.NONE;
    }

    /** Is used only if the application has Micrometer. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "io.micrometer.core.instrument.MeterRegistry")
    static class Measures {
        @Bean
        Telemetry deltaqMetrics(ObjectProvider<MeterRegistry> registry) {
            MeterRegistry found = registry.getIfUnique();
            return found == null ? Telemetry.NONE : new Telemetry(Metrics.measureCalls(found), Metrics.measureHandler(found),
                    (worker, queue) -> Metrics.bind(worker, queue, found));
        }
    }

    /** Is used only if the application has OpenTelemetry. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "io.opentelemetry.api.OpenTelemetry")
    static class Traces {
        @Bean
        Telemetry deltaqTraces(ObjectProvider<OpenTelemetry> telemetry) {
            OpenTelemetry found = telemetry.getIfUnique();
            return found == null ? Telemetry.NONE : new Telemetry(Tracing.traceCalls(found), Tracing.traceHandler(found), Telemetry.NONE.bind());
        }
    }

    /** Is used only with the actuator of Spring Boot 3: a worker that has ended with an error makes the application unhealthy. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.actuate.health.HealthIndicator")
    @ConditionalOnProperty(name = {"deltaq.listeners", "management.health.deltaq.enabled"}, matchIfMissing = true)
    static class Health3 {
        @Bean
        org.springframework.boot.actuate.health.HealthIndicator deltaqHealthIndicator(DeltaqListeners listeners) {
            return () -> (listeners.failures().isEmpty() ? org.springframework.boot.actuate.health.Health.up()
                    : org.springframework.boot.actuate.health.Health.down()).withDetails(listeners.failures()).build();
        }
    }

    /** The same with Spring Boot 4, which has these classes in another package. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "org.springframework.boot.health.contributor.HealthIndicator")
    @ConditionalOnMissingClass("org.springframework.boot.actuate.health.HealthIndicator")
    @ConditionalOnProperty(name = {"deltaq.listeners", "management.health.deltaq.enabled"}, matchIfMissing = true)
    static class Health4 {
        @Bean
        org.springframework.boot.health.contributor.HealthIndicator deltaqHealthIndicator(DeltaqListeners listeners) {
            return () -> (listeners.failures().isEmpty() ? org.springframework.boot.health.contributor.Health.up()
                    : org.springframework.boot.health.contributor.Health.down()).withDetails(listeners.failures()).build();
        }
    }
}
