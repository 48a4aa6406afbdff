package example.deltaq.spring;

import com.fasterxml.jackson.databind.ObjectMapper;
import example.deltaq.Client;
import example.deltaq.ClientOptions;
import example.deltaq.Handler;
import example.deltaq.Invoke;
import example.deltaq.micrometer.Metrics;
import example.deltaq.otel.Tracing;
import io.micrometer.core.instrument.MeterRegistry;
import io.opentelemetry.api.OpenTelemetry;
import java.util.List;
import java.util.function.UnaryOperator;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
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
    /** Middleware of calls and handlers, of one library. */
    record Telemetry(UnaryOperator<Invoke> calls, UnaryOperator<Handler> handlers) {}

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
        List<UnaryOperator<Handler>> middleware = telemetry.stream().map(Telemetry::handlers).toList();
        return new DeltaqListeners(beans, client, properties.grace(), middleware, customizers.orderedStream().toList());
    }

    @Bean
    Telemetry deltaqNoTelemetry() {
        return new Telemetry(next -> next, next -> next);
    }

    /** Is used only if the application has Micrometer. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "io.micrometer.core.instrument.MeterRegistry")
    static class Measures {
        @Bean
        Telemetry deltaqMetrics(ObjectProvider<MeterRegistry> registry) {
            MeterRegistry found = registry.getIfUnique();
            return found == null ? new Telemetry(next -> next, next -> next)
                    : new Telemetry(Metrics.measureCalls(found), Metrics.measureHandler(found));
        }
    }

    /** Is used only if the application has OpenTelemetry. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(name = "io.opentelemetry.api.OpenTelemetry")
    static class Traces {
        @Bean
        Telemetry deltaqTraces(ObjectProvider<OpenTelemetry> telemetry) {
            OpenTelemetry found = telemetry.getIfUnique();
            return found == null ? new Telemetry(next -> next, next -> next)
                    : new Telemetry(Tracing.traceCalls(found), Tracing.traceHandler(found));
        }
    }
}
