/** Starts real deltaq servers for tests. */
package example.deltaq.test;
