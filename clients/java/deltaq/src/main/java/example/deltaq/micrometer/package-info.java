/** Measures with Micrometer. Its core must be in the class path; the client does without it. */
package example.deltaq.micrometer;
