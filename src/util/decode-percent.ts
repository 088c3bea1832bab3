/** Undoes the percent-encoding of a part of a url. @throws TypeError, without a cause: it would show the text */
export function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new TypeError("url must be percent-encoded properly");
  }
}
