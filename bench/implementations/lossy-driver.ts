/** A driver that loses pushes, as a bad network does. */

import type { Driver, DriverEvents } from "../../src/spi/driver.ts";

/** The driver, with every second push lost on average, of grants and of recalls alike. */
export function losePushes(driver: Driver): Driver {
  const open = driver.open.bind(driver);
  const isLost = (): boolean => Math.random() < 0.5;
  driver.open = (events: DriverEvents) =>
    open({
      pushed: (id, answer) => isLost() || events.pushed(id, answer),
      recheck: (id) => isLost() || events.recheck(id),
      disconnected: () => events.disconnected(),
      reconnected: () => events.reconnected(),
      recalled: (id) => isLost() || events.recalled(id),
      heldTokens: (id) => events.heldTokens(id),
    });
  return driver;
}
