/** The events and traits of drivers, for tests. */

import type { Answer, ClaimId, Driver, DriverEvents, Traits } from "../../src/spi/driver.ts";

/** Any push of a store: with an answer, without one, or (null) for all claims after a reconnect. */
type OnPush = (id: ClaimId | null, answer?: Answer) => unknown;

/** Passes all pushes to one function. */
export function toDriverEvents(onPush: OnPush): DriverEvents {
  return {
    pushed: (id, answer) => void onPush(id, answer),
    recheck: (id) => void onPush(id),
    disconnected: () => undefined,
    reconnected: () => void onPush(null),
    recalled: () => undefined,
    heldTokens: () => null,
  };
}

/** Ignores all pushes. */
export const NO_EVENTS: DriverEvents = toDriverEvents(() => undefined);

/** The inverse of toDriverEvents(). */
export function toOnPush(events: DriverEvents): (id: ClaimId | null, answer?: Answer) => void {
  return (id, answer) => {
    if (id === null) events.reconnected();
    else if (answer === undefined) events.recheck(id);
    else events.pushed(id, answer);
  };
}

/** The member open() of a driver like this one with other traits. */
export function withTraits(driver: Driver, traits: Partial<Traits>): Pick<Driver, "open"> {
  return { open: async (events) => ({ ...(await driver.open(events)), ...traits }) };
}
