package example.deltaq;

/** Is called for the changes of an informer's store. Each method does nothing by default. */
public interface InformerHandler {
    /**
     * An object is new in the store.
     *
     * @param object the object
     * @param isInInitialList whether it is of the first list of the handler
     */
    default void onAdd(QueueObject object, boolean isInInitialList) {}

    /**
     * An object has changed. A resync calls it with the same object twice.
     *
     * @param before the object before
     * @param now the object
     */
    default void onUpdate(QueueObject before, QueueObject now) {}

    /**
     * A key has left the view.
     *
     * @param object the last object
     * @param isFinalStateUnknown whether it may be older than the last state: a list shows that the key is gone, or the server says so
     */
    default void onDelete(QueueObject object, boolean isFinalStateUnknown) {}
}
