/** Calls for many claims, bucket by bucket. */

/** One call reaches one bucket in a Cluster. Gives back why some failed, when all have settled. */
export async function eachHome<T>(
  items: readonly T[],
  home: (item: T) => string,
  call: (some: readonly T[]) => Promise<void>,
): Promise<readonly unknown[]> {
  const byHome = new Map<string, T[]>();
  for (const item of items) {
    const there = byHome.get(home(item));
    if (there === undefined) byHome.set(home(item), [item]);
    else there.push(item);
  }
  const settled = await Promise.allSettled([...byHome.values()].map(call));
  return settled.flatMap((one) => (one.status === "rejected" ? [one.reason as unknown] : []));
}
