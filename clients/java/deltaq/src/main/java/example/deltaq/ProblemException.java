package example.deltaq;

import java.time.Duration;
import java.util.List;

/** A refusal of the server. {@link Codes} has the codes. */
public final class ProblemException extends DeltaqException {
    /** The status of the reply. */
    private final int status;
    private final transient Problem problem;
    /** How long the server asks to wait. */
    private final Duration retryAfter;

    ProblemException(int status, Problem problem, Duration retryAfter) {
        super(status + " " + problem.code() + ": " + problem.detail() + (problem.hint() == null ? "" : "; " + problem.hint()), null);
        this.status = status;
        this.problem = problem;
        this.retryAfter = problem.retryAfterMs() == null ? retryAfter : Retry.milliseconds(problem.retryAfterMs());
    }

    /**
     * The kind of the problem, such as {@code queue-full}.
     *
     * @return one of {@link Codes}, or a code of a newer server
     */
    public String code() {
        return problem.code();
    }

    /**
     * Whether the problem has this code.
     *
     * @param code one of {@link Codes}
     * @return true if it has
     */
    public boolean is(String code) {
        return code.equals(problem.code());
    }

    /**
     * The status of the reply.
     *
     * @return the status of HTTP
     */
    public int status() {
        return status;
    }

    /**
     * What is wrong, and where.
     *
     * @return a text for people
     */
    public String detail() {
        return problem.detail();
    }

    /**
     * The whole problem document.
     *
     * @return the document
     */
    public Problem problem() {
        return problem;
    }

    /**
     * How long the server asks to wait before a repeat.
     *
     * @return the time, which is zero if it does not ask
     */
    public Duration retryAfter() {
        return retryAfter;
    }

    @Override
    public boolean isRetryable() {
        return problem.retryable();
    }

    List<Settled> settled() {
        return problem.settled();
    }
}
