/** Results of a pure function that are used again and again. */

/** So many results are kept at most. */
const MAX_RESULTS = 1_000;

/** Keeps the results of a pure function, until there are too many. */
export function memoize<T extends NonNullable<unknown>>(compute: (text: string) => T): (text: string) => T {
  const results = new Map<string, T>();
  return (text) => {
    let result = results.get(text);
    if (result === undefined) {
      result = compute(text);
      if (results.size === MAX_RESULTS) results.clear();
      results.set(text, result);
    }
    return result;
  };
}
