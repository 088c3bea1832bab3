/** What the urls of all stores with a conditional write have in common. */

import { describeValue } from "../util/duration.ts";
import type { DocumentDriverOptions } from "./document/options.ts";

/** What connect() says besides the url. */
export type ConnectOptions = Pick<DocumentDriverOptions, "connectTimeout">;

const DOCUMENT_PARAMETERS: readonly string[] = ["documents", "pollMs", "tokenBase"];

/**
 * The parameters of a url: those with these names, which are texts, and those of the document driver; and `connectTimeout`.
 * @throws TypeError naming the parameter
 */
export function parseStoreParameters<Name extends string>(
  scheme: string,
  query: string,
  names: readonly Name[],
  { connectTimeout }: ConnectOptions,
): { readonly [N in Name]?: string } & DocumentDriverOptions {
  const parameters = new URLSearchParams(query);
  const values: Record<string, unknown> = connectTimeout === undefined ? {} : { connectTimeout };
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
