/** Reads the driver's own parameters of a url; all others are those of the client library. */

import { parseGuardDataLoss } from "../data-loss-guard.ts";
import type { SqlOptions } from "./options.ts";

const PARAMETERS = ["prefix", "createTables", "guardDataLoss", "silenceWarnings"] as const;

interface UrlOptions extends Pick<SqlOptions, "prefix" | "createTables" | "guardDataLoss"> {
  /** The driver checks them. */
  readonly silenceWarnings?: readonly string[];
}

/**
 * Takes prefix, createTables ("true" or "false"), guardDataLoss ("true", or the longest ttl such as "30s") and silenceWarnings (names separated by commas) out of a url.
 * @throws TypeError that does not contain the url, which may hold a password
 */
export function takeUrlOptions(url: string): { readonly url: string; readonly options: UrlOptions } {
  const [base = "", ...queries] = url.split("?");
  if (queries.length === 0) return { url, options: {} };
  const query = new URLSearchParams(queries.join("?"));
  const [prefix, createTables, guardDataLoss, silenceWarnings] = PARAMETERS.map((name) => query.get(name));
  for (const name of PARAMETERS) query.delete(name);
  const isBoolean = createTables === "true" || createTables === "false";
  if (typeof createTables === "string" && !isBoolean)
    throw new TypeError("url parameter createTables must be true or false");
  return {
    url: query.size === 0 ? base : `${base}?${query}`,
    options: {
      ...(typeof prefix === "string" && { prefix }),
      ...(isBoolean && { createTables: createTables === "true" }),
      ...(typeof guardDataLoss === "string" && { guardDataLoss: parseGuardDataLoss(guardDataLoss) }),
      ...(typeof silenceWarnings === "string" && { silenceWarnings: silenceWarnings.split(",") }),
    },
  };
}
