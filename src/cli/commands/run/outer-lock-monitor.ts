/**
 * Monitors the keys that outer runs hold. On a Holdfast server an event on a key triggers a poll; any other store is
 * polled at intervals.
 */

import type { AdminConnection } from "../../../drivers/server/admin-connection.ts";
import type { Driver } from "../../../spi/driver.ts";
import { MAX_TIMEOUT_MS } from "../../../util/duration.ts";
import type { OuterLock } from "./outer-locks.ts";

/** The poll interval without events. */
const POLL_MS = 2_000;
/** The poll interval with events, in case one gets lost. */
const POLL_WITH_EVENTS_MS = 30_000;
/** Renewals cause no events, so each lease is polled this often during its length. */
const POLLS_PER_LEASE = 12;

/** The polls of one key. */
interface Poll {
  readonly lock: OuterLock;
  poll(): void;
  /** The end of the lease by the last answer. */
  leaseEndsAt(): number;
  stop(): void;
}

/** A running monitor. */
export interface OuterLockMonitor {
  /** What is left of the lease that ends first, by the last answers. */
  remainingMs(): number;
  stop(): void;
}

/** Starts a monitor. It calls `onLost` for a key that is no longer held, or whose lease has ended by our clock. */
export function monitorOuterLocks(
  driver: Driver,
  outerLocks: readonly OuterLock[],
  onLost: (key: string, reason: "released" | "expired") => void,
): OuterLockMonitor {
  const admins: AdminConnection[] = [];
  const leases = outerLocks.map(({ leaseMs }) => (leaseMs ?? Number.POSITIVE_INFINITY) / POLLS_PER_LEASE);
  let isStopped = false;
  let timer = startInterval(POLL_MS);

  /** One query at a time; a poll during a query causes another query after it. */
  function createPoll(lock: OuterLock): Poll {
    let state: "idle" | "asking" | "again" = "idle";
    let leaseEndsAt = lock.leaseEndsAt;
    let expiryTimer = scheduleExpiry();

    function scheduleExpiry(): NodeJS.Timeout {
      const expire = (): void => {
        if (leaseEndsAt > performance.now()) expiryTimer = scheduleExpiry();
        else if (!isStopped) onLost(lock.key, "expired");
      };
      return setTimeout(expire, Math.min(leaseEndsAt - performance.now(), MAX_TIMEOUT_MS)).unref();
    }

    const poll = (): void => {
      if (isStopped || state !== "idle") {
        state = state === "idle" ? "idle" : "again";
        return;
      }
      state = "asking";
      // a failed query is not a loss: the lease still ends by our clock
      void lock
        .queryLeaseEnd()
        .catch(() => leaseEndsAt)
        .then((newEnd) => {
          if (newEnd === null && !isStopped) onLost(lock.key, "released");
          if (newEnd !== null && !isStopped) {
            leaseEndsAt = newEnd;
            clearTimeout(expiryTimer);
            expiryTimer = scheduleExpiry();
          }
          const isRepeated = state === "again";
          state = "idle";
          if (isRepeated) poll();
        });
    };
    return { lock, poll, leaseEndsAt: () => leaseEndsAt, stop: () => clearTimeout(expiryTimer) };
  }

  const polls = outerLocks.map(createPoll);

  function pollAll(): void {
    for (const { poll } of polls) poll();
  }

  async function subscribe(): Promise<void> {
    const { openAdminConnection } = await import("../../../drivers/server/admin-connection.ts");
    for (const { lock, poll } of polls) {
      const admin = await openAdminConnection(driver);
      if (admin === null) return;
      if (isStopped) return admin.close();
      admins.push(admin);
      admin.watch(lock.key, {
        onEvents: poll,
        onConnected: poll,
        onDisconnected: () => undefined,
        onRefused: fallBackToPolling,
      });
    }
    setPollInterval(POLL_WITH_EVENTS_MS);
    // a lock may have ended before the subscription began
    pollAll();
  }

  function fallBackToPolling(): void {
    setPollInterval(POLL_MS);
  }

  function setPollInterval(ms: number): void {
    clearInterval(timer);
    if (!isStopped) timer = startInterval(ms);
  }

  function startInterval(ms: number): NodeJS.Timeout {
    return setInterval(pollAll, Math.min(ms, ...leases));
  }

  subscribe().catch(fallBackToPolling);
  return {
    remainingMs: () => Math.min(...polls.map(({ leaseEndsAt }) => leaseEndsAt())) - performance.now(),
    stop() {
      isStopped = true;
      clearInterval(timer);
      for (const { stop } of polls) stop();
      for (const admin of admins) admin.close();
    },
  };
}
