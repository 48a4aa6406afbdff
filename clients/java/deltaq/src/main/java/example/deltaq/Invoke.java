package example.deltaq;

/** Makes a call with its repeats. {@link ClientOptions#middleware} changes what it does. */
@FunctionalInterface
public interface Invoke {
    /**
     * Makes the call.
     *
     * @param call the call
     * @throws DeltaqException if the call has failed
     */
    void invoke(Call call);
}
