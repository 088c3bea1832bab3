/** What the browser keeps for the pages. Some browsers refuse it: then it lasts as long as the page. */

const fallback = new Map<string, string>();

export function readItem(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return fallback.get(name) ?? null;
  }
}

/** @param value null: removes it */
export function writeItem(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    if (value === null) fallback.delete(name);
    else fallback.set(name, value);
  }
}
