/** Results of users' functions that are thenables. */

/**
 * Returns what a user's function returned; a promise in place of a thenable. A query builder (Knex, Drizzle, Prisma) is a thenable
 * that executes each time its then() is called, in the async context of that call. So then() is called here, once and at once, and
 * nothing else may see the thenable. A promise of the engine itself is awaited without its then().
 */
export function adoptThenable<T>(result: T | PromiseLike<T>): T | Promise<T> {
  if ((typeof result !== "object" && typeof result !== "function") || result === null) return result;
  if (result instanceof Promise && result.constructor === Promise) return result;
  const { then } = result as PromiseLike<T>;
  if (typeof then !== "function") return result as T;
  return new Promise((resolve, reject) => {
    then.call(result, resolve, reject);
  });
}
