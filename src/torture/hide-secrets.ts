/** Errors of other libraries, and of clients of stores, may contain a url with its password, or the id of a claim, which is a right to it. */

import { redactUrls } from "../util/redact-url.ts";

/** The form of an id, as util/ids.ts makes them. */
const CLAIM_ID = /\b[a-z2-7]{26}\b/g;

/** The text without users and passwords of urls and without ids of claims. */
export function hideSecrets(text: string): string {
  return redactUrls(text).replace(CLAIM_ID, "(claim id)");
}
