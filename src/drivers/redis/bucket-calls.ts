/** Groups items by bucket, since one call reaches one bucket in a Cluster. Resolves when all calls have settled. */
export async function callPerBucket<T, R>(
  items: readonly T[],
  toBucket: (item: T) => string,
  call: (batch: readonly T[]) => Promise<readonly R[]>,
): Promise<{ readonly answers: ReadonlyMap<T, R>; readonly failures: readonly unknown[] }> {
  const byBucket = new Map<string, T[]>();
  for (const item of items) {
    const sameBucket = byBucket.get(toBucket(item));
    if (sameBucket === undefined) byBucket.set(toBucket(item), [item]);
    else sameBucket.push(item);
  }
  const batches = [...byBucket.values()];
  const results = await Promise.allSettled(batches.map(call));
  const answers = new Map<T, R>();
  const failures: unknown[] = [];
  for (const [batchIndex, result] of results.entries()) {
    if (result.status === "rejected") failures.push(result.reason);
    else
      for (const [itemIndex, item] of (batches[batchIndex] as T[]).entries())
        answers.set(item, result.value[itemIndex] as R);
  }
  return { answers, failures };
}
