/** The rules of options that drivers of clusters have in common: each returns what the option must be, or null. */

import { isIntegerBetween, isObject } from "../util/validate.ts";

/** The addresses of at least one server. */
export const serversRule = (value: unknown): string | null =>
  Array.isArray(value) && value.length > 0 && value.every(isServer) ? null : "a list of at least one { host, port }";

/** TLS, also with certificates that are renewed. */
export const tlsRule = (value: unknown): string | null =>
  isObject(value) || typeof value === "function" ? null : "options of node:tls, or a function that returns them";

function isServer(value: unknown): boolean {
  return (
    isObject(value) && typeof value.host === "string" && value.host !== "" && isIntegerBetween(value.port, 1, 65_535)
  );
}
