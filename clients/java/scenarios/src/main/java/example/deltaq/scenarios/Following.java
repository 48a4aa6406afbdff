package example.deltaq.scenarios;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import example.deltaq.CancelledException;
import example.deltaq.DeltaCall;
import example.deltaq.Indexer;
import example.deltaq.Informer;
import example.deltaq.InformerHandler;
import example.deltaq.InformerOptions;
import example.deltaq.Json;
import example.deltaq.LostException;
import example.deltaq.ProblemException;
import example.deltaq.Produced;
import example.deltaq.Queue;
import example.deltaq.QueueObject;
import example.deltaq.Reflector;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;

/** The subcommands {@code informer} and {@code reflector}. */
final class Following {
    private int handlers;

    void inform(Queue queue) throws Exception {
        InformerOptions options = new InformerOptions();
        if (Program.given("VIEW") != null) {
            options.view(Program.given("VIEW"));
        }
        if (Program.duration("RESYNC") != null) {
            options.resync(Program.duration("RESYNC"));
        }
        if (Program.duration("BOOKMARK") != null) {
            options.bookmark(Program.duration("BOOKMARK"));
        }
        if (Program.given("INDEX") != null) {
            String[] index = Program.given("INDEX").split("=", 2);
            options.index(index[0], Indexer.pointer(index[1]));
        }
        try (Informer informer = new Informer(queue, options)) {
            addHandler(informer);
            Thread main = Thread.currentThread();
            CompletableFuture<Void> ended = informer.start();
            ended.whenComplete((nothing, failure) -> main.interrupt());
            try {
                Program.commands(command -> answer(informer, command));
            } finally {
                if (ended.isCompletedExceptionally()) {
                    Thread.interrupted();
                    ended.join();
                }
            }
        } catch (CompletionException e) {
            throw e.getCause() instanceof Exception cause ? cause : e;
        }
    }

    private void addHandler(Informer informer) {
        int number = ++handlers;
        Informer.Registration registration = informer.addHandler(new InformerHandler() {
            @Override
            public void onAdd(QueueObject object, boolean isInInitialList) {
                ObjectNode event = Program.event("add").put("handler", number).put("key", object.key()).put("is_in_initial_list", isInInitialList);
                event.set("object", Program.raw(object.object()));
                Program.report(event);
            }

            @Override
            public void onUpdate(QueueObject before, QueueObject now) {
                ObjectNode event = Program.event("update").put("handler", number).put("key", now.key());
                event.set("old", Program.raw(before.object()));
                event.set("new", Program.raw(now.object()));
                Program.report(event);
            }

            @Override
            public void onDelete(QueueObject object, boolean isFinalStateUnknown) {
                ObjectNode event = Program.event("delete").put("handler", number).put("key", object.key()).put("final_state_unknown", isFinalStateUnknown);
                event.set("object", Program.raw(object.object()));
                Program.report(event);
            }
        });
        registration.synced().thenRun(() -> Program.report(Program.event("synced").put("handler", number)));
    }

    private void answer(Informer informer, JsonNode command) {
        switch (command.get("command").asText()) {
            case "store" -> {
                ObjectNode event = Program.event("store");
                ObjectNode objects = event.putObject("objects");
                informer.store().list().forEach(object -> objects.set(object.key(), Program.raw(object.object())));
                Program.report(event);
            }
            case "index" -> {
                ObjectNode event = Program.event("index");
                ArrayNode keys = event.putArray("keys");
                informer.store().byIndex(command.get("name").asText(), command.get("value").asText()).forEach(object -> keys.add(object.key()));
                Program.report(event);
            }
            case "get" -> {
                QueueObject found = informer.store().get(command.get("key").asText());
                ObjectNode event = Program.event("get");
                event.set("object", Program.raw(found == null ? null : found.object()));
                Program.report(event);
            }
            case "handler" -> addHandler(informer);
            case "wait_for_sync" -> informer.synced().thenRun(() -> Program.report(Program.event("cache_synced")));
            default -> System.err.println("unknown command " + command);
        }
    }

    void reflect(Queue queue) throws InterruptedException {
        Reflector reflector = new Reflector(queue, System.getenv("SOURCE"));
        Program.commands(command -> {
            try {
                Produced reply = reflect(reflector, command);
                Program.report(Program.event("applied").put("duplicate", reply.duplicate()).put("invalid", reply.invalid()));
            } catch (CancelledException e) {
                // The thread is interrupted, which ends the commands.
                return;
            } catch (LostException e) {
                Program.report(Program.event("lost"));
            } catch (ProblemException problem) {
                if (problem.isRetryable()) {
                    throw problem;
                }
                Program.report(Program.event("refused").put("code", problem.code()));
            }
        });
    }

    private static Produced reflect(Reflector reflector, JsonNode command) {
        if (command.get("command").asText().equals("list")) {
            return reflector.replace(Calls.objects(command));
        }
        List<DeltaCall> changes = new ArrayList<>();
        for (JsonNode delta : command.get("deltas")) {
            String key = delta.has("key") ? delta.get("key").asText() : null;
            Json object = delta.has("object") ? Json.of(Program.text(delta.get("object"))) : null;
            changes.add(new DeltaCall(delta.get("type").asText(), key, object, null, null, null, null, null, null, null));
        }
        return reflector.apply(changes);
    }
}
