/** Functions around calls and handlers. */

/** Takes a function, and returns one that takes its place. */
export type Middleware<F> = (next: F) => F;

/** The function inside all middleware, of which the first is the outermost. */
export function wrap<F>(inner: F, middleware: readonly Middleware<F>[] = []): F {
    return middleware.reduceRight((next, around) => around(next), inner);
}
