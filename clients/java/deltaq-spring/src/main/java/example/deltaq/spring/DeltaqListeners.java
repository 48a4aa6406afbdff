package example.deltaq.spring;

import example.deltaq.Client;
import example.deltaq.Delta;
import example.deltaq.Durations;
import example.deltaq.Handler;
import example.deltaq.Job;
import example.deltaq.PoppedItem;
import example.deltaq.Worker;
import example.deltaq.WorkerOptions;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.Flow;
import java.util.concurrent.Future;
import java.util.stream.Stream;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.aop.framework.autoproxy.AutoProxyUtils;
import org.springframework.aop.scope.ScopedProxyUtils;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.context.SmartLifecycle;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.util.ReflectionUtils;

/** Runs a worker for each {@link DeltaqListener} method of the beans, from the start of the application to its end. */
public class DeltaqListeners implements SmartLifecycle {
    private static final Log LOG = LogFactory.getLog(DeltaqListeners.class);
    /** Types into which no object is decoded. */
    private static final Set<Class<?>> NO_OBJECTS = Set.of(PoppedItem.class, Delta.class, String.class);
    /** By name, because the application need not have all of them. */
    private static final Set<String> LATER = Set.of(Future.class.getName(), Flow.Publisher.class.getName(), "org.reactivestreams.Publisher");

    private final ConfigurableListableBeanFactory beans;
    private final Client client;
    private final Duration grace;
    private final List<DeltaqAutoConfiguration.Telemetry> telemetry;
    private final List<DeltaqWorkerCustomizer> customizers;
    private final List<Listening> workers = new ArrayList<>();
    /** The errors of workers that have ended, by their listeners. */
    private final Map<String, String> failures = new ConcurrentSkipListMap<>();
    private volatile boolean isRunning;

    /** A worker, and the method that it calls. */
    private record Listening(String name, Worker worker) {}

    DeltaqListeners(ConfigurableListableBeanFactory beans, Client client, Duration grace,
            List<DeltaqAutoConfiguration.Telemetry> telemetry, List<DeltaqWorkerCustomizer> customizers) {
        this.beans = beans;
        this.client = client;
        this.grace = grace;
        this.telemetry = telemetry;
        this.customizers = customizers;
    }

    /** Starts the workers. A method that can't be a listener is an error here, and not at its first key. */
    @Override
    public void start() {
        for (String name : beans.getBeanDefinitionNames()) {
            Class<?> type = type(name);
            Map<Method, DeltaqListener> methods = type == null ? Map.of() : MethodIntrospector.selectMethods(type,
                    (MethodIntrospector.MetadataLookup<DeltaqListener>) method -> AnnotatedElementUtils.findMergedAnnotation(method, DeltaqListener.class));
            if (!methods.isEmpty()) {
                // Once, because the scope prototype has another bean each time.
                Object bean = beans.getBean(name);
                methods.forEach((method, listener) -> workers.add(worker(bean, method, listener)));
            }
        }
        failures.clear();
        for (Listening each : workers) {
            LOG.info("a worker begins: " + each.name());
            // The application runs as long as its workers: it may have no other thread that keeps it running.
            Thread thread = new Thread(() -> run(each), "deltaq-" + each.worker().name());
            thread.setDaemon(false);
            thread.start();
        }
        isRunning = true;
    }

    /** The class of a bean, not that of its proxy; null if it is unknown, or if the bean is the target of a proxy that is a bean, too. */
    private Class<?> type(String name) {
        if (ScopedProxyUtils.isScopedTarget(name) || beans.getType(name, false) == null) {
            return null;
        }
        String target = ScopedProxyUtils.getTargetBeanName(name);
        return AutoProxyUtils.determineTargetClass(beans, beans.containsBeanDefinition(target) ? target : name);
    }

    private void run(Listening listening) {
        try {
            listening.worker().run();
        } catch (RuntimeException | Error e) {
            failures.put(listening.name(), String.valueOf(e.getMessage()));
            LOG.error("a worker has ended with an error: " + listening.name(), e);
        }
    }

    /** The errors of the workers that have ended with one, by the names of their listeners. */
    Map<String, String> failures() {
        return Map.copyOf(failures);
    }

    private String text(String written) {
        return beans.resolveEmbeddedValue(written);
    }

    private Listening worker(Object bean, Method method, DeltaqListener listener) {
        try {
            check(method, listener.deleted());
            String queue = text(listener.queue());
            Worker worker = new Worker(client.queue(queue), handler(bean, method, listener.deleted()), options(queue, listener));
            telemetry.forEach(each -> each.bind().accept(worker, queue));
            return new Listening(method.getDeclaringClass().getSimpleName() + "." + method.getName() + " (queue " + queue + ")", worker);
        } catch (IllegalArgumentException e) {
            throw new IllegalStateException("the listener " + method + ": " + e.getMessage(), e);
        }
    }

    private WorkerOptions options(String queue, DeltaqListener listener) {
        WorkerOptions options = new WorkerOptions().concurrency(number("concurrency", listener.concurrency())).grace(grace);
        if (!text(listener.group()).isEmpty()) {
            options.group(text(listener.group()));
        }
        if (!text(listener.leaseDuration()).isEmpty()) {
            options.leaseDuration(Durations.parse(text(listener.leaseDuration())));
        }
        if (!text(listener.breaker()).isEmpty()) {
            options.breaker(number("breaker", listener.breaker()));
        }
        telemetry.forEach(each -> options.middleware(each.handlers()));
        customizers.forEach(customizer -> customizer.customize(queue, options));
        return options;
    }

    private int number(String name, String written) {
        try {
            return Integer.parseInt(text(written));
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(name + " = \"" + text(written) + "\" is no number", e);
        }
    }

    /** Refuses a method that can't be a listener. */
    private static void check(Method method, boolean takesDeletions) {
        List<Class<?>> objects = Stream.<Class<?>>of(method.getParameterTypes()).filter(type -> type != Job.class).toList();
        int jobs = method.getParameterCount() - objects.size();
        if (jobs > 1 || objects.size() > 1) {
            throw new IllegalArgumentException("its parameters must be a Job, an object of one type, both or none");
        }
        if (objects.stream().anyMatch(NO_OBJECTS::contains)) {
            throw new IllegalArgumentException("no object is decoded into a " + objects.get(0).getSimpleName()
                    + ": take a record or another class, a Json for the text, or a Job, which has the key and the changes");
        }
        if (jobs == 0 && !objects.isEmpty() && takesDeletions) {
            throw new IllegalArgumentException("it can't tell a deleted key, whose last object it would get, from another one: add the parameter Job, "
                    + "whose isDeleted() says so, or deleted = false");
        }
        if (isLater(method.getReturnType())) {
            throw new IllegalArgumentException("its key would be acknowledged before its work is done: it must return a CompletableFuture");
        }
    }

    /** Whether a type stands for a result that comes later, and for which a worker can't wait. */
    private static boolean isLater(Class<?> type) {
        if (type == null || CompletionStage.class.isAssignableFrom(type)) {
            return false;
        }
        return LATER.contains(type.getName()) || isLater(type.getSuperclass()) || Stream.of(type.getInterfaces()).anyMatch(DeltaqListeners::isLater);
    }

    private static Handler handler(Object bean, Method method, boolean takesDeletions) {
        // Of a proxy with interfaces, the method of its interface.
        Method called = AopUtils.selectInvocableMethod(method, bean.getClass());
        ReflectionUtils.makeAccessible(called);
        boolean isAsync = CompletionStage.class.isAssignableFrom(method.getReturnType());
        return job -> {
            if (job.isDeleted() && !takesDeletions) {
                return;
            }
            Object result = invoke(bean, called, method.getParameterTypes(), job);
            if (isAsync || result instanceof CompletionStage) {
                Handler.async(same -> (CompletionStage<?>) result).handle(job);
            }
        };
    }

    private static Object invoke(Object bean, Method method, Class<?>[] types, Job job) throws Exception {
        Object[] arguments = new Object[types.length];
        for (int index = 0; index < types.length; index++) {
            arguments[index] = types[index] == Job.class ? job : types[index].isInstance(job.object()) ? job.object() : job.object(types[index]);
        }
        try {
            return method.invoke(bean, arguments);
        } catch (InvocationTargetException e) {
            if (e.getCause() instanceof Exception cause) {
                throw cause;
            }
            if (e.getCause() instanceof Error cause) {
                throw cause;
            }
            throw e;
        }
    }

    /** Ends the workers together, and waits for their running handlers. */
    @Override
    public void stop() {
        workers.forEach(each -> each.worker().stop());
        workers.forEach(each -> each.worker().close());
        workers.clear();
        isRunning = false;
    }

    /** Whether the workers run. */
    @Override
    public boolean isRunning() {
        return isRunning;
    }
}
