package example.deltaq.spring;

import java.nio.file.Path;
import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties that begin with {@code deltaq}.
 *
 * @param url the URL of the server, or several with commas between them
 * @param token the token, or null
 * @param tokenFile a file with the token, or null
 * @param listeners whether the workers of {@link DeltaqListener} methods run
 * @param grace how long the end of the application waits for running handlers
 */
@ConfigurationProperties("deltaq")
public record DeltaqProperties(@DefaultValue("http://localhost:7070") String url, String token, Path tokenFile, @DefaultValue("true") boolean listeners,
        @DefaultValue("30s") Duration grace) {
    /** The properties without the token. */
    @Override
    public String toString() {
        return "DeltaqProperties[url=" + url + ", tokenFile=" + tokenFile + ", listeners=" + listeners + ", grace=" + grace + "]";
    }
}
