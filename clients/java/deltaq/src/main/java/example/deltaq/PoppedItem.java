package example.deltaq;

import java.util.List;

/**
 * A delivered key with every change since its last acknowledgement.
 *
 * @param key the key
 * @param lease the right to work on it
 * @param attempt the number of deliveries since the last acknowledgement
 * @param failures the failures since then
 * @param isInInitialList whether the key is of the first list of the queue
 * @param deltas the changes, oldest first; in mode events one, in mode keys none
 * @param known the object that was acknowledged last, if the pop asks for it and there is one
 * @param diff the operations from that object to the newest one, if the pop asks for them; null without a difference to show
 * @param diffOmitted why there is no difference, or null
 */
@Needs("lease")
public record PoppedItem(
        String key, Lease lease, long attempt, long failures, boolean isInInitialList, List<Delta> deltas, Json known, List<DiffOperation> diff,
        String diffOmitted) {
    /**
     * In mode keys there are no changes.
     *
     * @param key the key
     * @param lease the right to work on it
     * @param attempt the number of deliveries since the last acknowledgement
     * @param failures the failures since then
     * @param isInInitialList whether the key is of the first list of the queue
     * @param deltas the changes, oldest first; in mode events one, in mode keys none
     * @param known the object that was acknowledged last, if the pop asks for it and there is one
     * @param diff the operations from that object to the newest one, if the pop asks for them; null without a difference to show
     * @param diffOmitted why there is no difference, or null
     */
    public PoppedItem {
        deltas = deltas == null ? List.of() : deltas;
    }

    /**
     * The newest change.
     *
     * @return the change; null in mode keys
     */
    public Delta newest() {
        return deltas.isEmpty() ? null : deltas.get(deltas.size() - 1);
    }

    /**
     * The newest object; for a deleted key its last one.
     *
     * @return the object; null in mode keys
     */
    public Json object() {
        return deltas.isEmpty() ? null : newest().object();
    }

    /**
     * The newest object as a type of the application, by {@link Json#as(Class)}.
     *
     * @param type a record or class
     * @param <T> the type
     * @return the value
     * @throws DecodeException if there is no object, or it is no such value
     */
    public <T> T object(Class<T> type) {
        if (object() == null) {
            throw new DecodeException("the key " + key + " has no object", null);
        }
        return object().as(type);
    }

    /**
     * Whether the newest change is a deletion.
     *
     * @return true if it is
     */
    public boolean isDeleted() {
        return !deltas.isEmpty() && DeltaType.DELETED.equals(newest().type());
    }
}
