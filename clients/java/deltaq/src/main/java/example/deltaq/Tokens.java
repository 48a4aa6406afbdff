package example.deltaq;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** The token of the calls. */
final class Tokens {
    private final TokenSource source;
    private final Path file;
    private volatile String text;

    Tokens(ClientOptions options) {
        source = options.tokenSource;
        file = options.tokenFile;
        text = options.token == null ? "" : fit("the token", options.token);
        int given = (source == null ? 0 : 1) + (file == null ? 0 : 1) + (options.token == null ? 0 : 1);
        if (given > 1) {
            throw new IllegalArgumentException("a client has only one of token, tokenFile and tokenSource");
        }
        if (file != null) {
            try {
                text = fit("the token in " + file, Files.readString(file));
            } catch (IOException e) {
                throw new IllegalArgumentException("the token: " + file + " can't be read", e);
            }
        }
    }

    /** A token without the white space around it. The error of one that no header can have does not show it. */
    private static String fit(String name, String written) {
        String token = written.strip();
        if (token.chars().anyMatch(letter -> letter < ' ' || letter == 0x7f || letter > 0xff)) {
            throw new IllegalArgumentException(name + " has a control character, such as a line break, or a letter beyond Latin-1");
        }
        return token;
    }

    String get() {
        if (source == null) {
            return text;
        }
        try {
            String token = source.token();
            return token == null ? "" : fit("what the source has returned", token);
        } catch (InterruptedException e) {
            throw Scope.interrupted(e);
        } catch (Exception e) {
            throw new TokenException(e);
        }
    }

    /** The present token if it is another one than the server has refused, else null. */
    String replacing(String refused) {
        if (file != null) {
            try {
                String read = fit("the token in " + file, Files.readString(file));
                text = read.isEmpty() ? text : read;
            } catch (IOException | IllegalArgumentException e) {
                // The file may be absent or incomplete for a moment while it is replaced.
            }
        }
        try {
            String token = get();
            return token.equals(refused) ? null : token;
        } catch (TokenException e) {
            return null;
        }
    }
}
