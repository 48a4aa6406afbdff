package example.deltaq;

import java.lang.annotation.ElementType;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/** A member that every document of a kind has. A reply without it is from another service, which also replies with JSON. */
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
@interface Needs {
    String value();
}
