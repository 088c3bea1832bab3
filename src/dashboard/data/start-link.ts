/** The token in the link that `holdfast dashboard` prints. */

import { RequestError, signIn } from "./api.ts";
import { sessionState } from "./session.ts";
import { ValueStore } from "./value-store.ts";

/** Why the link that was opened did not work; null: it worked, or there was none. */
export const linkFailure: ValueStore<string | null> = new ValueStore<string | null>(null);

// with a session it does not matter any more
sessionState.subscribe(() => {
  if (sessionState.value === "signedIn") linkFailure.set(null);
});

/** The token in the fragment, which is removed from the address at once; null: there is none. */
function takeStartToken(): string | null {
  const token = new URLSearchParams(location.hash.slice(1)).get("start");
  if (token === null) return null;
  history.replaceState(null, "", location.pathname + location.search);
  return token;
}

/** Exchanges the token of a link for a session. Also a link that is opened while the page is open: only its fragment differs. */
export async function followStartLink(): Promise<void> {
  const token = takeStartToken();
  if (token === null) return;
  try {
    await signIn({ start: token });
    linkFailure.set(null);
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    linkFailure.set(describeFailure(error));
    // an earlier session may still be valid: the next request shows it
    if (sessionState.value === "signedOut") return;
    sessionState.set("unknown");
  }
}

function describeFailure({ status, kind, message }: RequestError): string {
  if (kind === "unreachable") return "The gateway could not be reached.";
  if (status === 401) return "It was used already, or it is older than 60 s.";
  return status === 429 ? "There were too many attempts. Try again in a minute." : message;
}
