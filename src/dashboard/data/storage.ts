/** What the browser keeps for the pages. Some browsers refuse it, and even the access throws: then it lasts as long as the page. */

/** What the browser did not take. */
const refused = new Map<string, string | null>();

export function readItem(name: string): string | null {
  const own = refused.get(name);
  if (own !== undefined) return own;
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** @param value null: removes it */
export function writeItem(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
    refused.delete(name);
  } catch {
    refused.set(name, value);
  }
}

/** Calls it when another tab has changed the item. */
export function onItemChanged(name: string, listener: () => void): void {
  // without a key: all items were removed
  addEventListener("storage", ({ key }) => {
    if (key === name || key === null) listener();
  });
}
