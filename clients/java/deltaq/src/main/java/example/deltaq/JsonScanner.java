package example.deltaq;

/**
 * Reads JSON text (RFC 8259) from left to right. It finds where values begin and end, and leaves them as text, so numbers of any length and the order of
 * members stay as they are.
 */
final class JsonScanner {
    /** The deepest nesting. The server permits 128. */
    private static final int DEPTH_MAX = 1000;

    final String text;
    int at;

    JsonScanner(String text, int at) {
        this.text = text;
        this.at = at;
    }

    /** A text that is not JSON. */
    static final class NotJson extends RuntimeException {
        NotJson(String message) {
            super(message, null, false, false);
        }
    }

    NotJson wrong(String what) {
        return new NotJson("not JSON: " + what + " at the offset " + at);
    }

    /** The next character after white space, which stays unread; 0 at the end. */
    char peek() {
        while (at < text.length()) {
            char next = text.charAt(at);
            if (next != ' ' && next != '\n' && next != '\r' && next != '\t') {
                return next;
            }
            at++;
        }
        return 0;
    }

    /** Reads a character if it is the next one after white space. */
    boolean take(char wanted) {
        if (peek() != wanted || at >= text.length()) {
            return false;
        }
        at++;
        return true;
    }

    void expect(char wanted) {
        if (!take(wanted)) {
            throw wrong("no " + wanted);
        }
    }

    /** Requires the end of the text. */
    void end() {
        peek();
        if (at < text.length()) {
            throw wrong("more text");
        }
    }

    /** Passes a value, which begins after white space. */
    void skip() {
        skip(0);
    }

    private void skip(int depth) {
        if (depth > DEPTH_MAX) {
            throw wrong("more than " + DEPTH_MAX + " levels");
        }
        char first = peek();
        switch (first) {
            case '{' -> {
                at++;
                if (take('}')) {
                    return;
                }
                do {
                    if (peek() != '"') {
                        throw wrong("no name");
                    }
                    skipString();
                    expect(':');
                    skip(depth + 1);
                } while (take(','));
                expect('}');
            }
            case '[' -> {
                at++;
                if (take(']')) {
                    return;
                }
                do {
                    skip(depth + 1);
                } while (take(','));
                expect(']');
            }
            case '"' -> skipString();
            case 't' -> word("true");
            case 'f' -> word("false");
            case 'n' -> word("null");
            default -> number();
        }
    }

    private void word(String word) {
        if (!text.startsWith(word, at)) {
            throw wrong("no value");
        }
        at += word.length();
    }

    private void number() {
        if (at < text.length() && text.charAt(at) == '-') {
            at++;
        }
        int first = at;
        if (digits() > 1 && text.charAt(first) == '0') {
            throw wrong("a number that begins with 0");
        }
        if (at < text.length() && text.charAt(at) == '.') {
            at++;
            digits();
        }
        if (at < text.length() && (text.charAt(at) | 32) == 'e') {
            at++;
            if (at < text.length() && (text.charAt(at) == '+' || text.charAt(at) == '-')) {
                at++;
            }
            digits();
        }
    }

    private int digits() {
        int first = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        if (at == first) {
            throw wrong("no value");
        }
        return at - first;
    }

    private void skipString() {
        at++;
        while (at < text.length()) {
            char next = text.charAt(at++);
            if (next == '"') {
                return;
            }
            if (next < ' ') {
                throw wrong("a control character in a string");
            }
            if (next == '\\') {
                escape(null);
            }
        }
        throw wrong("the end of the text in a string");
    }

    /** Reads a string, which begins after white space. */
    String string() {
        if (peek() != '"') {
            throw wrong("no string");
        }
        int first = ++at;
        StringBuilder read = null;
        while (at < text.length()) {
            char next = text.charAt(at++);
            if (next == '"') {
                return read == null ? text.substring(first, at - 1) : read.toString();
            }
            if (next < ' ') {
                throw wrong("a control character in a string");
            }
            if (next == '\\') {
                if (read == null) {
                    read = new StringBuilder().append(text, first, at - 1);
                }
                escape(read);
            } else if (read != null) {
                read.append(next);
            }
        }
        throw wrong("the end of the text in a string");
    }

    /** Reads what follows a backslash. */
    private void escape(StringBuilder into) {
        if (at >= text.length()) {
            throw wrong("the end of the text in a string");
        }
        char read = text.charAt(at++);
        char meant = switch (read) {
            case '"', '\\', '/' -> read;
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> unicode();
            default -> throw wrong("an unknown escape");
        };
        if (into != null) {
            into.append(meant);
        }
    }

    private char unicode() {
        int code = 0;
        for (int count = 0; count < 4; count++) {
            int digit = at < text.length() ? Character.digit(text.charAt(at), 16) : -1;
            if (digit < 0 || text.charAt(at) > 'f') {
                throw wrong("an unknown escape");
            }
            code = code * 16 + digit;
            at++;
        }
        return (char) code;
    }
}
