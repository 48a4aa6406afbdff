package example.deltaq;

import java.io.EOFException;
import java.io.IOException;
import java.net.ConnectException;
import java.net.SocketException;
import java.net.http.HttpConnectTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLHandshakeException;
import javax.net.ssl.SSLPeerUnverifiedException;

/** What an error says about a call: whether it is repeated, at which server, and whether it may have been applied. */
final class Failures {
    /** The longest error of a failed key, which is that of the server. The end of a longer one is sent, because it says more. */
    static final int ERROR_BYTES_MAX = 4096;

    private Failures() {}

    static boolean is(Throwable failure, String code) {
        return failure instanceof ProblemException problem && problem.is(code);
    }

    static int status(Throwable failure) {
        if (failure instanceof ProblemException problem) {
            return problem.status();
        }
        return failure instanceof ReplyException reply ? reply.status() : 0;
    }

    static boolean isRetryable(Throwable failure) {
        return failure instanceof DeltaqException known && known.isRetryable();
    }

    static boolean isCertificate(Throwable failure) {
        return failure instanceof ConnectionException connection && connection.isCertificate();
    }

    /** Whether an endless loop, such as that of a worker, goes on: the error is retryable, of a token source, or a defect. */
    static boolean isTemporary(Throwable failure) {
        return isRetryable(failure) || failure instanceof TokenException || isDefect(failure);
    }

    /** Whether a reply is a defect of the server or of a proxy. */
    static boolean isDefect(Throwable failure) {
        int status = status(failure);
        return status >= 500 || (failure instanceof ReplyException && status < 300);
    }

    /** Whether the call may have been applied. */
    static boolean isOutcomeUnknown(Throwable failure) {
        if (failure instanceof ProblemException problem) {
            return switch (problem.code()) {
                case Codes.DRAINING, Codes.RECOVERING, Codes.TOO_MANY_CONNECTIONS, Codes.JOURNAL_BEHIND, Codes.INDEX_BUILDING -> false;
                default -> isDefect(failure);
            };
        }
        if (failure instanceof ReplyException) {
            return isDefect(failure);
        }
        return !(failure instanceof ConnectionException connection) || connection.isSent();
    }

    /** Whether a server has done nothing, for a reason that another server need not have. */
    static boolean isUndoneHere(Throwable failure) {
        if (failure instanceof ProblemException problem) {
            return switch (problem.code()) {
                case Codes.DRAINING, Codes.HOST_NOT_ALLOWED, Codes.TOO_MANY_CONNECTIONS, Codes.UNAUTHORIZED -> true;
                default -> false;
            };
        }
        if (failure instanceof ReplyException reply) {
            return reply.status() >= 300 && reply.status() < 500 && !reply.isRetryable();
        }
        return failure instanceof ConnectionException connection && !connection.isSent();
    }

    /** Whether the next call should go to another server. */
    static boolean isOfServer(Throwable failure) {
        if (isUndoneHere(failure) || failure instanceof ConnectionException) {
            return true;
        }
        int status = status(failure);
        return status == 502 || status == 503 || status == 504;
    }

    /** How long the server asks to wait before a repeat of the call. */
    static Duration retryAfter(Throwable failure) {
        if (failure instanceof ProblemException problem) {
            return problem.retryAfter();
        }
        return failure instanceof ReplyException reply ? reply.retryAfter() : Duration.ZERO;
    }

    /** The error of an attempt without a complete reply. */
    static ConnectionException connection(String server, Throwable cause) {
        boolean isTls = cause instanceof SSLException && !isLostConnection(cause);
        String text = cause.getMessage() == null ? cause.getClass().getSimpleName() : cause.getMessage();
        // The beginning of the text depends on the version of Java.
        boolean isPlain = isTls && text.contains("ecognized SSL message");
        boolean isCertificate = isPlain || (isTls && (cause instanceof SSLHandshakeException || cause instanceof SSLPeerUnverifiedException));
        boolean isUnsent = cause instanceof ConnectException || cause instanceof HttpConnectTimeoutException || cause instanceof SSLHandshakeException
                || isCertificate;
        if (!isUnsent) {
            return new ConnectionException(server, true, false, "no complete reply from " + server + ": " + text, cause);
        }
        String hint = "";
        if (isPlain) {
            hint = "; the server has no TLS, so its URL begins with http";
        } else if (isCertificate) {
            hint = "; check ClientOptions.sslContext, which has the authorities to trust";
        } else if (cause instanceof ConnectException && cause.getMessage() == null) {
            text = "the connection is refused, or the name is unknown";
        }
        return new ConnectionException(server, false, isCertificate, "can't connect to " + server + ": " + text + hint, cause);
    }

    /** Whether a failure of TLS is one of the connection below. */
    private static boolean isLostConnection(Throwable failure) {
        Throwable cause = failure.getCause();
        return cause instanceof EOFException || cause instanceof SocketException
                || (cause instanceof IOException && !(cause instanceof SSLException) && String.valueOf(cause.getMessage()).contains("reset"));
    }

    /** Logs an exception of the application, which may be one that can't be printed. */
    static void log(System.Logger log, System.Logger.Level level, String line, Throwable thrown) {
        try {
            log.log(level, line, thrown);
        } catch (Throwable e) {
            log.log(level, line);
        }
    }

    /** The text of an error in a form that the server accepts: only the end of a long text, because the end says more. */
    static String bounded(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        if (bytes.length <= ERROR_BYTES_MAX) {
            return new String(bytes, StandardCharsets.UTF_8);
        }
        int start = bytes.length - ERROR_BYTES_MAX;
        while (start < bytes.length && (bytes[start] & 0xC0) == 0x80) {
            start++;
        }
        return new String(bytes, start, bytes.length - start, StandardCharsets.UTF_8);
    }
}
