/** Where the events of the dashboard come from: the log of this process, or the lock server that a gateway serves. */

import type { AdminConnection } from "../../drivers/server/admin-connection.ts";
import { openAdminConnection } from "../../drivers/server/admin-connection.ts";
import type { EventLog } from "../../server/events/event-log.ts";
import type { Logger } from "../../server/logger.ts";
import type { Driver } from "../../spi/driver.ts";
import type { Clock } from "../../util/clock.ts";
import type { EventHistory } from "./event-history.ts";

/** Receives what a source of events reports. */
interface EventSink {
  readonly history: EventHistory;
  /** The lock server recovers after a restart, and grants no new locks for this time. */
  onRecovery(remainingMs: number): void;
}

/** Adds events to a history until it is disposed of. */
export type EventSource = (sink: EventSink) => Disposable;

/** The events of this log, from the oldest that it still has. */
export function eventsOfLog(eventLog: EventLog): EventSource {
  let lastSequence = 0;
  return ({ history }) =>
    eventLog.subscribe(
      { prefix: "", canSee: () => true },
      ({ events, hasGap }) => {
        lastSequence = events.at(-1)?.seq ?? lastSequence;
        history.addReported(events, hasGap);
        return true;
      },
      lastSequence,
    );
}

/** How long after a failed attempt the server is asked again. */
const RETRY_MS = 5_000;

/**
 * The events of a lock server; of the log, while the server does not let the gateway see those of all keys. A server that
 * cannot be reached is asked again.
 */
export function eventsOfServer(driver: Driver, ownEvents: EventSource, clock: Clock, log: Logger): EventSource {
  return (sink) => {
    const { history } = sink;
    history.origin = "gateway";
    let current = ownEvents(sink);
    let isEnded = false;
    const retry = clock.timer(() => void start());
    const startLater = (): void => {
      if (!isEnded) retry.set(clock.now() + RETRY_MS);
    };

    async function start(): Promise<void> {
      let admin: AdminConnection | null = null;
      try {
        admin = await openAdminConnection(driver);
        const { rights = [] } = (await admin?.info("")) ?? {};
        if (admin === null || isEnded) return admin?.close();
        if (rights.includes("inspect")) return watch(admin);
        log("the lock server does not let this gateway see all events", undefined, { level: "warn" });
        admin.close();
      } catch {
        // the list of the store fails, too, and that is shown
        admin?.close();
        startLater();
      }
    }

    function watch(admin: AdminConnection): void {
      current[Symbol.dispose]();
      current = { [Symbol.dispose]: () => admin.close() };
      history.origin = "server";
      history.markGap();
      admin.watch("", {
        onEvents: (events, hasGap) => history.addReported(events, hasGap),
        onConnected({ recoveryRemainingMs }, isRestarted) {
          sink.onRecovery(recoveryRemainingMs);
          if (isRestarted) history.markGap();
        },
        onDisconnected: () => undefined,
        onRefused() {
          admin.close();
          history.origin = "gateway";
          if (isEnded) return;
          current = ownEvents(sink);
          startLater();
        },
      });
    }

    void start();
    return {
      [Symbol.dispose]() {
        isEnded = true;
        retry.stop();
        current[Symbol.dispose]();
      },
    };
  };
}
