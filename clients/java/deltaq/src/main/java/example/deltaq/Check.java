package example.deltaq;

import java.time.Duration;

/** Checks of arguments. The texts name the argument, and what it must be. */
final class Check {
    private Check() {}

    static Duration notNegative(String name, Duration length) {
        given(name, length);
        if (length.isNegative()) {
            throw new IllegalArgumentException(name + " is " + Durations.format(length) + "; it must not be negative");
        }
        return length;
    }

    static int positive(String name, int number) {
        if (number < 1) {
            throw new IllegalArgumentException(name + " is " + number + "; it must be at least 1");
        }
        return number;
    }

    static int notNegative(String name, int number) {
        if (number < 0) {
            throw new IllegalArgumentException(name + " is " + number + "; it must not be negative");
        }
        return number;
    }

    static <T> T given(String name, T value) {
        if (value == null) {
            throw new IllegalArgumentException(name + " is null");
        }
        return value;
    }

    static <T> T given(String name, T value, String example) {
        if (value == null) {
            throw new IllegalArgumentException(name + " is null; it must be " + example);
        }
        return value;
    }
}
