/** The session of the viewer: its secret is shared by the tabs of the browser, as its cookie is. */

import { onItemChanged, readItem, writeItem } from "./storage.ts";
import { ValueStore } from "./value-store.ts";

const SECRET_ITEM = "holdfast-ui-secret";

/** null: no session. Another one means another session, maybe of another account. */
export const sessionSecret: ValueStore<string | null> = new ValueStore(readItem(SECRET_ITEM));

/** "unknown": the gateway has not accepted the secret yet. */
export const sessionState: ValueStore<"unknown" | "signedIn" | "signedOut"> = new ValueStore(
  sessionSecret.value === null ? "signedOut" : "unknown",
);

/** The secret now: a tab that slept may have missed a change. */
export function readSecret(): string | null {
  followSecret();
  return sessionSecret.value;
}

export function beginSession(secret: string): void {
  writeItem(SECRET_ITEM, secret);
  sessionSecret.set(secret);
  sessionState.set("signedIn");
}

/** For all tabs. */
export function endSession(): void {
  writeItem(SECRET_ITEM, null);
  sessionSecret.set(null);
  sessionState.set("signedOut");
}

/** The gateway does not accept this secret. It may be replaced already. */
export function refuseSecret(secret: string | null): void {
  if (secret === readSecret()) sessionState.set("signedOut");
}

/** Continues with what another tab does: with a new link there, the sign-in view here is not needed any more. */
export function startSession(): void {
  onItemChanged(SECRET_ITEM, followSecret);
}

function followSecret(): void {
  const secret = readItem(SECRET_ITEM);
  if (secret === sessionSecret.value) return;
  sessionSecret.set(secret);
  sessionState.set(secret === null ? "signedOut" : "unknown");
}
