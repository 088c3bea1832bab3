/** Where the events of the dashboard come from: the log of this process, or the lock server that a gateway serves. */

import { openAdminConnection } from "../../drivers/server/admin-connection.ts";
import type { EventLog } from "../../server/events/event-log.ts";
import type { Logger } from "../../server/logger.ts";
import type { Driver } from "../../spi/driver.ts";
import type { EventHistory } from "./event-history.ts";

/** Adds events to a history until it is disposed of. */
export type EventSource = (history: EventHistory) => Disposable;

/** The events of this log, from the oldest that it still has. */
export function eventsOfLog(eventLog: EventLog): EventSource {
  let lastSequence = 0;
  return (history) =>
    eventLog.subscribe(
      { prefix: "", canSee: () => true },
      ({ events, hasGap }) => {
        lastSequence = events.at(-1)?.seq ?? lastSequence;
        history.addTold(events, hasGap);
        return true;
      },
      lastSequence,
    );
}

/** The events of a lock server; of the log if the server refuses to tell them. */
export function eventsOfServer(driver: Driver, fallback: EventSource, log: Logger): EventSource {
  return (history) => {
    let end: Disposable | null = null;
    let isEnded = false;
    const useFallback = (error: unknown): void => {
      log("the lock server tells no events", error, { level: "warn" });
      if (!isEnded) end = fallback(history);
    };
    openAdminConnection(driver).then((admin) => {
      if (admin === null || isEnded) return admin?.close();
      end = { [Symbol.dispose]: () => admin.close() };
      history.markGap();
      admin.watch("", {
        onEvents: (events, hasGap) => history.addTold(events, hasGap),
        onConnected: (_hello, isRestarted) => {
          if (isRestarted) history.markGap();
        },
        onDisconnected: () => undefined,
        onRefused(error) {
          admin.close();
          useFallback(error);
        },
      });
    }, useFallback);
    return {
      [Symbol.dispose]() {
        isEnded = true;
        end?.[Symbol.dispose]();
      },
    };
  };
}
