/** A starter for Spring Boot: a client as a bean, and workers for methods. */
package example.deltaq.spring;
