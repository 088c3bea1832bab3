/** The options and url parameters that all stores on the document driver have besides their own. */

import { describeValue } from "../util/duration.ts";
import { noProblem } from "../util/validate.ts";
import type { DocumentDriverOptions } from "./document/driver.ts";

/** The document driver checks their values. */
export const DOCUMENT_RULES: Readonly<Record<keyof DocumentDriverOptions, typeof noProblem>> = {
  documents: noProblem,
  pollMs: noProblem,
  callTimeoutMs: noProblem,
  tokenBase: noProblem,
  clock: noProblem,
};

/** Those of the document driver among the options. */
export function pickDocumentOptions(options: DocumentDriverOptions): DocumentDriverOptions {
  return Object.fromEntries(Object.entries(options).filter(([name]) => Object.hasOwn(DOCUMENT_RULES, name)));
}

const DOCUMENT_PARAMETERS: readonly string[] = ["documents", "pollMs", "tokenBase"];

/**
 * The parameters of a url: those with these names, which are texts, and those of the document driver.
 * @throws TypeError naming the parameter
 */
export function parseStoreParameters<Name extends string>(
  scheme: string,
  query: string,
  names: readonly Name[],
): { readonly [N in Name]?: string } & DocumentDriverOptions {
  const parameters = new URLSearchParams(query);
  const values: Record<string, string | number | bigint> = {};
  for (const [name, value] of parameters) {
    if ((names as readonly string[]).includes(name)) values[name] = value;
    else if (DOCUMENT_PARAMETERS.includes(name)) values[name] = parseCount(name, value);
    else throw new TypeError(`url has no parameter ${describeValue(name)} for ${scheme}:`);
  }
  return values as { readonly [N in Name]?: string } & DocumentDriverOptions;
}

function parseCount(name: string, value: string): number | bigint {
  if (!/^\d{1,18}$/.test(value)) throw new TypeError(`url: ${name} must be a number, not ${describeValue(value)}`);
  return name === "tokenBase" ? BigInt(value) : Number(value);
}
