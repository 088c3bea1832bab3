/** Calls for many claims, bucket by bucket. */

/** One call reaches one bucket in a Cluster. What came of it for each item, and why some calls failed, when all have settled. */
export async function eachHome<T, R>(
  items: readonly T[],
  home: (item: T) => string,
  call: (some: readonly T[]) => Promise<readonly R[]>,
): Promise<{ readonly answers: ReadonlyMap<T, R>; readonly failures: readonly unknown[] }> {
  const byHome = new Map<string, T[]>();
  for (const item of items) {
    const there = byHome.get(home(item));
    if (there === undefined) byHome.set(home(item), [item]);
    else there.push(item);
  }
  const parts = [...byHome.values()];
  const settled = await Promise.allSettled(parts.map(call));
  const answers = new Map<T, R>();
  const failures: unknown[] = [];
  for (const [of, one] of settled.entries()) {
    if (one.status === "rejected") failures.push(one.reason);
    else for (const [at, item] of (parts[of] as T[]).entries()) answers.set(item, one.value[at] as R);
  }
  return { answers, failures };
}
