/** Reads the drivers' own parameters of a url; all others are those of the client library. */

import { parseGuardDataLoss } from "../data-loss-guard.ts";
import type { SqlOptions } from "./options.ts";

/** The parameters that takeUrlOptions() takes. */
export const URL_OPTIONS = ["prefix", "createTables", "guardDataLoss", "silenceWarnings"] as const;

interface UrlOptions extends Pick<SqlOptions, "prefix" | "createTables" | "guardDataLoss"> {
  /** The driver checks them. */
  readonly silenceWarnings?: readonly string[];
}

/**
 * Takes prefix, createTables ("true" or "false"), guardDataLoss ("true", or the longest ttl such as "30s") and
 * silenceWarnings (names separated by commas) out of a url.
 * @throws TypeError that does not contain the url, which may hold a password
 */
export function takeUrlOptions(url: string): { readonly url: string; readonly options: UrlOptions } {
  const { url: rest, values } = takeUrlParameters(url, URL_OPTIONS);
  const { prefix, createTables, guardDataLoss, silenceWarnings } = values;
  return {
    url: rest,
    options: {
      ...(prefix !== undefined && { prefix }),
      ...(createTables !== undefined && { createTables: parseUrlBoolean("createTables", createTables) }),
      ...(guardDataLoss !== undefined && { guardDataLoss: parseGuardDataLoss(guardDataLoss) }),
      ...(silenceWarnings !== undefined && { silenceWarnings: silenceWarnings.split(",") }),
    },
  };
}

/** @throws TypeError naming the parameter */
export function parseUrlBoolean(name: string, value: string): boolean {
  if (value !== "true" && value !== "false") throw new TypeError(`url parameter ${name} must be true or false`);
  return value === "true";
}

/** Takes parameters out of a url: the rest of it, and the values of those that it has. */
export function takeUrlParameters<Name extends string>(
  url: string,
  names: readonly Name[],
): { readonly url: string; readonly values: { readonly [N in Name]?: string } } {
  const [base = "", ...queries] = url.split("?");
  if (queries.length === 0) return { url, values: {} };
  const query = new URLSearchParams(queries.join("?"));
  const values: { [N in Name]?: string } = {};
  for (const name of names) {
    const value = query.get(name);
    if (value !== null) values[name] = value;
    query.delete(name);
  }
  return { url: query.size === 0 ? base : `${base}?${query}`, values };
}
