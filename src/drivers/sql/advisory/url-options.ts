/** Reads the parameters of a url of advisory locks; all others are those of the client library. */

import { takeUrlParameters } from "../url-parameters.ts";
import type { AdvisoryOptions } from "./options.ts";

/** The parameters that takeAdvisoryUrlOptions() takes. */
export const ADVISORY_URL_OPTIONS = ["sessionMs", "maxWaitConnections", "silenceWarnings"] as const;

type UrlOptions = Pick<AdvisoryOptions, "sessionMs" | "maxWaitConnections" | "silenceWarnings">;

/**
 * Takes sessionMs, maxWaitConnections and silenceWarnings (names separated by commas) out of a url, and "+advisory" out
 * of its scheme. The options are still to be validated.
 */
export function takeAdvisoryUrlOptions(url: string): { readonly url: string; readonly options: UrlOptions } {
  const { url: rest, values } = takeUrlParameters(url, ADVISORY_URL_OPTIONS);
  const { sessionMs, maxWaitConnections, silenceWarnings } = values;
  return {
    url: rest.replace("+advisory:", ":"),
    options: {
      ...(sessionMs !== undefined && { sessionMs: toNumber(sessionMs) }),
      ...(maxWaitConnections !== undefined && { maxWaitConnections: toNumber(maxWaitConnections) }),
      ...(silenceWarnings !== undefined && { silenceWarnings: silenceWarnings.split(",") }),
    },
  };
}

/** NaN, which no rule accepts, for what is not written in digits. */
function toNumber(text: string): number {
  return /^\d+$/.test(text) ? Number(text) : Number.NaN;
}
