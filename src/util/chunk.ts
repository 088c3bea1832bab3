/** Splits items into chunks of at most maxSize, in order. */
export function chunk<T>(items: readonly T[], maxSize: number): (readonly T[])[] {
  const chunks: (readonly T[])[] = [];
  for (let start = 0; start < items.length; start += maxSize) chunks.push(items.slice(start, start + maxSize));
  return chunks;
}

/** Cuts a list after `max` items. The tag of a page's last item says where the next page starts. */
export function toPage<T extends { readonly tag: string }>(
  items: readonly T[],
  max: number,
): { readonly items: readonly T[]; readonly next?: string } {
  const last = items[max - 1];
  return items.length > max && last !== undefined ? { items: items.slice(0, max), next: last.tag } : { items };
}
