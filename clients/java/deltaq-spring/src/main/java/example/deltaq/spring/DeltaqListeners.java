package example.deltaq.spring;

import example.deltaq.Client;
import example.deltaq.Durations;
import example.deltaq.Handler;
import example.deltaq.Job;
import example.deltaq.Worker;
import example.deltaq.WorkerOptions;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.function.UnaryOperator;
import org.apache.commons.logging.Log;
import org.apache.commons.logging.LogFactory;
import org.springframework.aop.support.AopUtils;
import org.springframework.beans.factory.config.ConfigurableListableBeanFactory;
import org.springframework.context.SmartLifecycle;
import org.springframework.core.MethodIntrospector;
import org.springframework.core.annotation.AnnotatedElementUtils;
import org.springframework.util.ReflectionUtils;

/** Runs a worker for each {@link DeltaqListener} method of the beans, from the start of the application to its end. */
public class DeltaqListeners implements SmartLifecycle {
    private static final Log LOG = LogFactory.getLog(DeltaqListeners.class);

    private final ConfigurableListableBeanFactory beans;
    private final Client client;
    private final Duration grace;
    private final List<UnaryOperator<Handler>> middleware;
    private final List<DeltaqWorkerCustomizer> customizers;
    private final List<Worker> workers = new ArrayList<>();
    private volatile boolean isRunning;

    DeltaqListeners(ConfigurableListableBeanFactory beans, Client client, Duration grace, List<UnaryOperator<Handler>> middleware,
            List<DeltaqWorkerCustomizer> customizers) {
        this.beans = beans;
        this.client = client;
        this.grace = grace;
        this.middleware = middleware;
        this.customizers = customizers;
    }

    /** Starts the workers. A method that can't be a listener is an error here, and not at its first key. */
    @Override
    public void start() {
        for (String name : beans.getBeanDefinitionNames()) {
            Class<?> type = beans.getType(name, false);
            if (type == null) {
                continue;
            }
            Map<Method, DeltaqListener> methods = MethodIntrospector.selectMethods(type,
                    (MethodIntrospector.MetadataLookup<DeltaqListener>) method -> AnnotatedElementUtils.findMergedAnnotation(method, DeltaqListener.class));
            methods.forEach((method, listener) -> workers.add(worker(beans.getBean(name), method, listener)));
        }
        for (Worker worker : workers) {
            worker.start().whenComplete((nothing, failure) -> {
                if (failure != null) {
                    LOG.error("the worker " + worker.name() + " has ended", failure);
                }
            });
        }
        isRunning = true;
    }

    private String text(String written) {
        return beans.resolveEmbeddedValue(written);
    }

    private Worker worker(Object bean, Method method, DeltaqListener listener) {
        String queue = text(listener.queue());
        WorkerOptions options = new WorkerOptions().concurrency(Integer.parseInt(text(listener.concurrency()))).grace(grace);
        if (!text(listener.group()).isEmpty()) {
            options.group(text(listener.group()));
        }
        if (!text(listener.leaseDuration()).isEmpty()) {
            options.leaseDuration(Durations.parse(text(listener.leaseDuration())));
        }
        if (!text(listener.breaker()).isEmpty()) {
            options.breaker(Integer.parseInt(text(listener.breaker())));
        }
        middleware.forEach(options::middleware);
        customizers.forEach(customizer -> customizer.customize(queue, options));
        return new Worker(client.queue(queue), handler(bean, method, listener.deleted()), options);
    }

    private static Handler handler(Object bean, Method method, boolean takesDeletions) {
        Method called = AopUtils.selectInvocableMethod(method, bean.getClass());
        long jobs = List.of(called.getParameterTypes()).stream().filter(Job.class::equals).count();
        if (jobs > 1 || called.getParameterCount() - jobs > 1) {
            throw new IllegalStateException("the method " + method + " must have a Job, an object of one type, both or none as its parameters");
        }
        ReflectionUtils.makeAccessible(called);
        Handler waiting = Handler.async(job -> (CompletionStage<?>) invoke(bean, called, job));
        boolean isAsync = CompletionStage.class.isAssignableFrom(called.getReturnType());
        Handler handler = isAsync ? waiting : job -> invoke(bean, called, job);
        return takesDeletions ? handler : job -> {
            if (!job.isDeleted()) {
                handler.handle(job);
            }
        };
    }

    private static Object invoke(Object bean, Method method, Job job) throws Exception {
        Class<?>[] types = method.getParameterTypes();
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
        workers.forEach(Worker::stop);
        workers.forEach(Worker::close);
        workers.clear();
        isRunning = false;
    }

    /** Whether the workers run. */
    @Override
    public boolean isRunning() {
        return isRunning;
    }
}
