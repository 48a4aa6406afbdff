package example.deltaq.scenarios;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import example.deltaq.Delta;
import example.deltaq.Done;
import example.deltaq.Durations;
import example.deltaq.Hold;
import example.deltaq.Job;
import example.deltaq.Nack;
import example.deltaq.Queue;
import example.deltaq.Reject;
import example.deltaq.Release;
import example.deltaq.WorkerOptions;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;

/** The subcommand {@code worker}. */
final class Worker implements Program.Subcommand {
    private volatile example.deltaq.Worker worker;

    boolean isUsed() {
        return worker != null;
    }

    void close() {
        worker.close();
    }

    @Override
    public void run(Queue queue) {
        WorkerOptions options = new WorkerOptions()
                .name(System.getenv("WORKER_NAME"))
                .concurrency(Integer.parseInt(System.getenv("CONCURRENCY")))
                .batch(Integer.parseInt(System.getenv("BATCH")))
                .grace(Duration.ofSeconds(10));
        if (Program.given("BREAKER") != null) {
            options.breaker(Integer.parseInt(Program.given("BREAKER")));
        }
        if (System.getenv("GROUP") != null) {
            options.group(System.getenv("GROUP"));
        }
        if (Program.duration("LEASE") != null) {
            options.leaseDuration(Program.duration("LEASE"));
        }
        worker = new example.deltaq.Worker(queue, this::handle, options);
        worker.run();
    }

    private void handle(Job job) throws IOException {
        String body = Program.text(describe(job));
        JsonNode plan = Program.MAPPER.readTree(post("start", body));
        if (plan.path("before_write").asBoolean()) {
            throw new IllegalStateException(plan.path("message").asText());
        }
        if (job.isLeaseLost() || job.isStopping()) {
            throw new IllegalStateException("the handler has ended without a write");
        }
        post("write", body);
        end(plan);
    }

    private static void end(JsonNode plan) {
        String text = plan.path("delay").asText("") + plan.path("hold").asText("");
        Duration delay = text.isEmpty() ? null : Durations.parse(text);
        String error = plan.has("error") ? plan.get("error").asText() : null;
        switch (plan.path("as").asText()) {
            case "ack" -> {}
            case "nack" -> {
                Nack nack = new Nack(error);
                nack = delay == null ? nack : nack.delay(delay);
                throw plan.path("floor").asBoolean() ? nack.floor() : nack;
            }
            case "release" -> throw delay == null ? new Release() : new Release(plan.path("hold_scope").asText(Hold.QUEUE), delay);
            case "reject" -> throw new Reject(error);
            case "done" -> throw new Done(delay);
            default -> throw new IllegalStateException(plan.path("message").asText());
        }
    }

    /** Sends a request once, on a connection of its own. An interrupt does not end it: the reply may take 30 s. */
    private static String post(String path, String body) throws IOException {
        URI target = URI.create(System.getenv("TARGET_URL"));
        try (Socket socket = new Socket()) {
            socket.connect(new InetSocketAddress(target.getHost(), target.getPort()), 30_000);
            socket.setSoTimeout(30_000);
            byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
            String head = "POST /" + path + " HTTP/1.1\r\nhost: " + target.getAuthority() + "\r\nconnection: close\r\n"
                    + "content-type: application/json\r\ncontent-length: " + bytes.length + "\r\n\r\n";
            socket.getOutputStream().write(head.getBytes(StandardCharsets.US_ASCII));
            socket.getOutputStream().write(bytes);
            String reply = new String(socket.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            if (!reply.startsWith("HTTP/1.1 200")) {
                throw new IOException("the target replied " + reply);
            }
            return reply.substring(reply.indexOf("\r\n\r\n"));
        }
    }

    private static ObjectNode describe(Job job) {
        ObjectNode body = Program.MAPPER.createObjectNode();
        body.put("worker", System.getenv("WORKER_NAME"));
        body.put("key", job.key());
        body.put("token", Long.toString(job.token()));
        body.put("attempt", job.attempt());
        body.put("lease_id", job.lease().id());
        ArrayNode versions = body.putArray("versions");
        for (Delta delta : job.deltas()) {
            versions.add(Long.toString(delta.resourceVersion()));
        }
        body.put("type", job.newest() == null ? null : job.newest().type());
        body.set("object", Program.raw(job.object()));
        return body;
    }
}
