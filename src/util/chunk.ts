/** Splits items into chunks of at most maxSize, in order. */
export function chunk<T>(items: readonly T[], maxSize: number): (readonly T[])[] {
  const chunks: (readonly T[])[] = [];
  for (let start = 0; start < items.length; start += maxSize) chunks.push(items.slice(start, start + maxSize));
  return chunks;
}
