package example.deltaq.scenarios;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import example.deltaq.CancelledException;
import example.deltaq.Codes;
import example.deltaq.DeltaqException;
import example.deltaq.HistoryEvent;
import example.deltaq.Item;
import example.deltaq.Json;
import example.deltaq.ProblemException;
import example.deltaq.ProduceOptions;
import example.deltaq.Produced;
import example.deltaq.Queue;
import example.deltaq.QueueObject;
import example.deltaq.ReplaceOptions;
import java.util.ArrayList;
import java.util.List;

/** The subcommands {@code produce} and {@code read}. */
final class Calls {
    void produce(Queue queue) throws InterruptedException {
        Program.commands(command -> {
            try {
                Program.report(produce(queue, command));
            } catch (CancelledException e) {
                // The thread is interrupted, which ends the commands.
                return;
            } catch (DeltaqException e) {
                ObjectNode event = Program.event("error").put("retryable", e.isRetryable());
                if (e instanceof ProblemException problem) {
                    event.put("code", problem.code()).put("status", problem.status());
                } else {
                    event.putNull("code").putNull("status");
                }
                Program.report(event);
            }
        });
    }

    /** The objects of a command, with their text. */
    static List<Json> objects(JsonNode command) {
        List<Json> objects = new ArrayList<>();
        command.path("objects").forEach(object -> objects.add(Json.of(Program.text(object))));
        return objects;
    }

    private static ObjectNode produce(Queue queue, JsonNode command) {
        ProduceOptions options = new ProduceOptions();
        ReplaceOptions replace = new ReplaceOptions();
        if (command.has("sequence")) {
            long sequence = Long.parseLong(command.get("sequence").asText());
            options.source(System.getenv("SOURCE")).sequence(sequence);
            replace.source(System.getenv("SOURCE")).sequence(sequence);
        }
        Produced reply = null;
        switch (command.get("command").asText()) {
            case "add" -> reply = queue.add(objects(command), options);
            case "update" -> reply = queue.update(objects(command), options);
            case "delete" -> reply = queue.deleteKey(command.get("key").asText(), options);
            case "purge" -> queue.purge();
            case "remove" -> queue.deleteQueue();
            default -> reply = queue.replace(objects(command), replace).produced();
        }
        return Program.event("reply").put("queued", reply == null ? 0 : reply.queued()).put("duplicate", reply != null && reply.duplicate());
    }

    void read(Queue queue) throws InterruptedException {
        Program.commands(command -> {
            ObjectNode event = Program.event("read").putNull("key");
            event.putNull("object");
            try {
                read(queue, command.get("command").asText(), command.get("key").asText(), event);
            } catch (CancelledException e) {
                return;
            } catch (ProblemException problem) {
                if (!problem.is(Codes.KEY_NOT_FOUND)) {
                    throw problem;
                }
            }
            Program.report(event);
        });
    }

    private static void read(Queue queue, String command, String key, ObjectNode event) {
        switch (command) {
            case "item" -> {
                Item item = queue.item(key);
                event.put("key", item.key());
                event.set("object", Program.raw(item.deltas().get(item.deltas().size() - 1).object()));
            }
            case "latest", "known" -> {
                QueueObject found = (command.equals("known") ? queue.knownObject(key) : queue.latestObject(key)).object();
                event.put("key", found.key());
                event.set("object", Program.raw(found.object()));
            }
            case "explain" -> event.put("key", queue.explain(key).key());
            default -> {
                for (HistoryEvent each : queue.history(key)) {
                    if (each.event().equals("appended")) {
                        event.set("object", Program.raw(each.object()));
                        return;
                    }
                }
            }
        }
    }
}
