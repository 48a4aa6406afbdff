package example.deltaq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.reflect.RecordComponent;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.SortedSet;
import java.util.TreeSet;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Compares the records with the schemas of docs/openapi.json. */
class SchemaTest {
    private static final Path API = Path.of("../../../docs/openapi.json");

    private record Described(Class<?> type, String... schemas) {}

    private static final List<Described> SAME = List.of(
        new Described(Delta.class, "DeltaDocument"),
        new Described(Lease.class, "LeaseDocument"),
        new Described(DiffOperation.class, "DiffOperation"),
        new Described(PoppedItem.class, "PoppedItem"),
        new Described(Popped.class, "Popped"),
        new Described(Hold.class, "Hold"),
        new Described(Settle.class, "SettleCall"),
        new Described(Settled.class, "SettledDocument"),
        new Described(SettledList.class, "SettledList"),
        new Described(FailedKey.class, "FailedKey"),
        new Described(InvalidObject.class, "InvalidObject"),
        new Described(Produced.class, "Produced"),
        new Described(ReplaceCounts.class, "ReplaceCounts"),
        new Described(DeltaCall.class, "DeltaCall"),
        new Described(Purged.class, "PurgedDocument"),
        new Described(Page.class, "Page_ObjectDocument", "Page_ItemDocument", "Page_EventDocument", "Page_WatchRow"),
        new Described(Page.class, "Page_IndexDocument", "Page_IndexValueDocument", "Page_SourceDocument", "Page_WorkerDocument"),
        new Described(QueueObject.class, "ObjectDocument"),
        new Described(Item.class, "ItemDocument"),
        new Described(Explanation.class, "ExplainDocument"),
        new Described(ParkedError.class, "ParkedError"),
        new Described(ParkedErrors.class, "ParkedErrors"),
        new Described(LastReplace.class, "LastReplaceDocument"),
        new Described(SourceProblem.class, "SourceProblem"),
        new Described(Source.class, "SourceDocument"),
        new Described(GroupList.class, "GroupList"),
        new Described(GroupStatus.class, "GroupDocument"),
        new Described(Groups.class, "Groups", "GivenGroups"),
        new Described(GroupOverride.class, "GroupOverride"),
        new Described(WorkerStatus.class, "WorkerDocument"),
        new Described(Index.class, "IndexDocument"),
        new Described(IndexValue.class, "IndexValueDocument"),
        new Described(SyncedReply.class, "SyncedDocument"),
        new Described(SettingsPlan.class, "SettingsPlan"),
        new Described(PushTest.class, "PushTestDocument"),
        new Described(RateLimiter.class, "RateLimiter", "GivenRateLimiter"),
        new Described(ItemExponential.class, "ItemExponential", "GivenItemExponential"),
        new Described(ItemFastSlow.class, "ItemFastSlow", "GivenItemFastSlow"),
        new Described(Bucket.class, "Bucket", "GivenBucket"),
        new Described(Debounce.class, "Debounce", "GivenDebounce"),
        new Described(HeadStartOrder.class, "HeadStartOrder", "GivenHeadStartOrder"),
        new Described(PriorityOrder.class, "PriorityOrder", "GivenPriorityOrder"),
        new Described(Order.class, "Order", "GivenOrder"),
        new Described(DeliveryRate.class, "DeliveryRate", "GivenDeliveryRate"),
        new Described(Follow.class, "Follow", "GivenFollow"),
        new Described(Push.class, "Push", "GivenPush"),
        new Described(Retention.class, "Retention", "GivenRetention"),
        new Described(DiffSettings.class, "DiffSettings", "GivenDiffSettings"),
        new Described(QueueSettings.class, "QueueSettings", "GivenSettings"),
        new Described(FollowStatus.class, "FollowStatus"),
        new Described(PushStatus.class, "PushStatus"),
        new Described(Hook.class, "Hook", "GivenHook"),
        new Described(HookSignature.class, "HookSignature", "GivenHookSignature"),
        new Described(HookCondition.class, "HookCondition", "GivenHookCondition"),
        new Described(CloudEvents.class, "CloudEvents", "GivenCloudEvents"),
        new Described(Kubernetes.class, "Kubernetes", "GivenKubernetes"),
        new Described(HookStatus.class, "HookStatus"),
        new Described(QueueStatus.class, "QueueStatus"),
        new Described(QueueDocument.class, "QueueDocument"),
        new Described(UnavailableQueue.class, "UnavailableQueue"),
        new Described(QueuePage.class, "QueuePage"),
        new Described(Info.class, "Info"),
        new Described(InfoStore.class, "InfoStore"),
        new Described(InfoNode.class, "InfoNode"),
        new Described(InfoCaller.class, "InfoCaller"),
        new Described(InfoGrant.class, "InfoGrant"),
        new Described(Node.class, "NodeDocument"),
        new Described(NodeList.class, "NodeList"),
        new Described(NodeDetails.class, "NodeDetails"),
        new Described(OwnedPartition.class, "OwnedPartition"),
        new Described(InfoLinks.class, "InfoLinks"),
        new Described(Violation.class, "ViolationDocument"));

    /** Records of several kinds of documents, whose schemas have a part of the members each. */
    private static final List<Described> WIDER = List.of(
        new Described(WatchRow.class, "AddedRow", "UpdatedRow", "DeletedRow", "BookmarkRow", "ErrorRow", "ExpiredRow"),
        new Described(HistoryEvent.class, "AppendedEvent", "QueuedEvent", "FailedEvent", "DroppedEvent", "TakenOverEvent", "LeasedEvent",
            "ExtendedEvent", "ProgressedEvent", "SettledEvent", "DelayElapsedEvent", "ForgottenEvent", "RefreshedEvent", "RedrivenEvent",
            "RemovedEvent", "VersionRememberedEvent", "SeededEvent"),
        new Described(Problem.class, "ProblemDocument"),
        new Described(ReplaceReply.class, "ReplaceCounts", "Replaced"));

    private static JsonNode schemas;

    @BeforeAll
    static void read() throws IOException {
        assumeTrue(Files.exists(API));
        schemas = new ObjectMapper().readTree(API.toFile()).at("/components/schemas");
    }

    private static SortedSet<String> members(Class<?> type) {
        SortedSet<String> members = new TreeSet<>();
        for (RecordComponent component : type.getRecordComponents()) {
            Named named = component.getAnnotation(Named.class);
            members.add(named != null ? named.value() : Documents.memberOf(component.getName()));
        }
        return members;
    }

    private static SortedSet<String> members(String schema) {
        assertTrue(schemas.has(schema), "there is no schema " + schema);
        SortedSet<String> members = new TreeSet<>();
        collect(schemas.get(schema), members);
        return members;
    }

    private static void collect(JsonNode schema, SortedSet<String> into) {
        schema.path("properties").fieldNames().forEachRemaining(into::add);
        for (JsonNode part : schema.path("allOf")) {
            String reference = part.path("$ref").asText("");
            collect(reference.isEmpty() ? part : schemas.get(reference.substring(reference.lastIndexOf('/') + 1)), into);
        }
    }

    @Test
    void recordsHaveTheMembersOfTheirSchemas() {
        List<String> wrong = new ArrayList<>();
        for (Described each : SAME) {
            for (String schema : each.schemas) {
                if (!members(schema).equals(members(each.type))) {
                    wrong.add(each.type.getSimpleName() + " has " + members(each.type) + ", and " + schema + " has " + members(schema));
                }
            }
        }
        for (Described each : WIDER) {
            for (String schema : each.schemas) {
                SortedSet<String> missing = new TreeSet<>(members(schema));
                missing.removeAll(members(each.type));
                if (!missing.isEmpty()) {
                    wrong.add(each.type.getSimpleName() + " lacks " + missing + " of " + schema);
                }
            }
        }
        assertEquals("", String.join("\n", wrong));
    }
}
