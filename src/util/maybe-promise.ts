/** A plain value if the result is available at once, so that a hot path creates no promise. */
export type MaybePromise<T> = T | Promise<T>;
