package example.deltaq;

import java.math.BigDecimal;
import java.time.Duration;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Lengths of time as the API writes them, such as {@code 1m30s} or {@code 7d}. */
public final class Durations {
    private static final Pattern PART = Pattern.compile("([0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d)");
    private static final BigDecimal SECOND = BigDecimal.valueOf(1_000_000_000L);
    private static final Map<String, BigDecimal> NANOS = Map.of("ns", BigDecimal.ONE, "us", BigDecimal.valueOf(1_000), "µs", BigDecimal.valueOf(1_000),
            "μs", BigDecimal.valueOf(1_000), "ms", BigDecimal.valueOf(1_000_000), "s", SECOND, "m", SECOND.multiply(BigDecimal.valueOf(60)),
            "h", SECOND.multiply(BigDecimal.valueOf(3_600)), "d", SECOND.multiply(BigDecimal.valueOf(86_400)));

    private Durations() {}

    /**
     * Reads a duration: a number and a unit, such as {@code 250ms}, {@code 1.5s} or {@code 7d}, or a sum of them, such as {@code 1m30s}.
     *
     * @param text the text
     * @return the duration
     * @throws IllegalArgumentException if the text is none
     */
    public static Duration parse(String text) {
        String rest = text;
        boolean isNegative = rest.startsWith("-");
        if (isNegative || rest.startsWith("+")) {
            rest = rest.substring(1);
        }
        if (rest.equals("0")) {
            return Duration.ZERO;
        }
        Matcher part = PART.matcher(rest);
        BigDecimal nanos = BigDecimal.ZERO;
        int end = 0;
        while (part.find() && part.start() == end) {
            nanos = nanos.add(new BigDecimal(part.group(1)).multiply(NANOS.get(part.group(2))));
            end = part.end();
        }
        if (end == 0 || end < rest.length()) {
            throw new IllegalArgumentException("\"" + text + "\" is not a duration such as 7d or 1m30s");
        }
        BigDecimal[] split = nanos.divideAndRemainder(SECOND);
        Duration length = Duration.ofSeconds(split[0].longValueExact(), split[1].longValue());
        return isNegative ? length.negated() : length;
    }

    /**
     * Writes a duration as the API takes it, such as {@code 1500ms}. The server rounds down to whole microseconds.
     *
     * @param length the duration
     * @return the text
     */
    public static String format(Duration length) {
        if (length.isNegative()) {
            return "-" + format(length.negated());
        }
        if (length.getNano() == 0) {
            return length.getSeconds() + "s";
        }
        if (length.getNano() % 1_000_000 == 0) {
            return length.toMillis() + "ms";
        }
        // A sum, because the nanoseconds of a long time are more than a long has.
        return length.getSeconds() + "s" + length.getNano() / 1_000 + "us";
    }
}
