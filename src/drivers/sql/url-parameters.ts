/** Reads the driver's own parameters of a url; all others are those of the client library. */

import type { SqlOptions } from "./options.ts";

const PARAMETERS = ["prefix", "createTables", "silenceWarnings"] as const;

interface UrlOptions extends Pick<SqlOptions, "prefix" | "createTables"> {
  /** The driver checks them. */
  readonly silenceWarnings?: readonly string[];
}

/**
 * Takes prefix, createTables ("true" or "false") and silenceWarnings (names separated by commas) out of a url.
 * @throws TypeError that does not contain the url, which may hold a password
 */
export function takeUrlOptions(url: string): { readonly url: string; readonly options: UrlOptions } {
  const [base = "", ...queries] = url.split("?");
  if (queries.length === 0) return { url, options: {} };
  const query = new URLSearchParams(queries.join("?"));
  const [prefix, createTables, silenceWarnings] = PARAMETERS.map((name) => query.get(name));
  for (const name of PARAMETERS) query.delete(name);
  const isBoolean = createTables === "true" || createTables === "false";
  if (typeof createTables === "string" && !isBoolean)
    throw new TypeError("url parameter createTables must be true or false");
  return {
    url: query.size === 0 ? base : `${base}?${query}`,
    options: {
      ...(typeof prefix === "string" && { prefix }),
      ...(isBoolean && { createTables: createTables === "true" }),
      ...(typeof silenceWarnings === "string" && { silenceWarnings: silenceWarnings.split(",") }),
    },
  };
}
