/**
 * A store that is the lock table on its own machine, and a driver that reaches it through the simulated network. It
 * behaves as badly as the driver contract allows: pushes come late, twice, as mere rechecks or not at all, renewals may be
 * look-ups without an extension, may leave answers out, and a call may be answered long after its caller has abandoned it.
 */

import { listTable } from "../../src/lock-table/listing.ts";
import { LockTable, toAnswer } from "../../src/lock-table/table.ts";
import type { Answer, Claim, ClaimId, Driver, DriverEvents, Traits } from "../../src/spi/driver.ts";
import { publicTag } from "../../src/util/ids.ts";
import { toOnPush } from "../support/driver-events.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { InvariantChecker } from "./invariant-checker.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";
import type { SimulatedNetwork } from "./simulated-network.ts";

/** How the store behaves within its contract. */
export interface StoreBehavior {
  /** Ends leases by its own timer; else only on a call. */
  readonly hasTimer: boolean;
  /** A renewal does not extend while more than seven eighths of the lease are left. */
  readonly renewalsOnlyLook: boolean;
  /** How often a grant is announced by a mere recheck. */
  readonly recheckChance: number;
  readonly manyKeys: boolean;
  /** How often a renewal leaves a claim's answer out; each part of the store is renewed alone. */
  readonly omissionChance: number;
  readonly parts: number;
  readonly recall: Traits["recall"];
  /** How often the push of a recall is lost, beside those that the network loses. */
  readonly recallLossChance: number;
}

export class RpcStore {
  readonly machine: SimulatedMachine;
  readonly table: LockTable = new LockTable();
  readonly behavior: StoreBehavior;
  readonly checker: InvariantChecker;
  readonly #timer;

  constructor(machine: SimulatedMachine, behavior: StoreBehavior, watch: InvariantChecker) {
    this.machine = machine;
    this.behavior = behavior;
    this.checker = watch;
    this.#timer = machine.clock.timer(() => {
      this.table.advance({ now: machine.clock.now(), micros: this.micros() });
      this.sendNotifications();
    });
  }

  micros(): number {
    return Math.floor(this.machine.clock.wall() * 1_000);
  }

  sendNotifications(): void {
    for (const { id, owner, answer } of this.table.drainNotifications()) (owner as Push)(id, answer);
    if (this.behavior.hasTimer) this.#timer.set(this.table.nextDueAt());
  }

  renew(claim: Claim, push: Push, tokenCount?: number): Answer {
    const { table, machine } = this;
    const now = machine.clock.now();
    const record = table.records.get(claim.id);
    if (
      this.behavior.renewalsOnlyLook &&
      record !== undefined &&
      !record.revokeReason &&
      typeof claim.ttlMs === "number"
    ) {
      if (record.expiresAt - now > 0.875 * claim.ttlMs) return toAnswer(record, now, table.sessionMs);
    }
    return table.renew(claim.id, push, { now, micros: this.micros() }, tokenCount);
  }
}

type Push = (id: ClaimId, answer: Answer | "recalled" | "recheck") => void;

/** One client's driver. It belongs to that run of its machine. */
export function createRpcDriver(machine: SimulatedMachine, store: RpcStore, network: SimulatedNetwork): Driver {
  const { events } = network;
  const random: SeededRandom = events.random.fork();
  const { table, behavior, checker } = store;
  let notify: ReturnType<typeof toOnPush> = () => {};
  let recall: DriverEvents["recalled"] = () => {};
  const now = (): number => store.machine.clock.now();

  /** One call: `work` is done at the store, each time the request arrives. */
  function call<T>(description: string, repeats: boolean, operation: () => T): Promise<T> {
    const { arrivals, replyMs, failsMs } = network.planDelivery(machine, repeats);
    machine.note(`sends ${description}`);
    return new Promise((resolve, reject) => {
      const isLost = arrivals.length === 0 || replyMs === null;
      if (isLost && failsMs !== null) {
        const fail = (): void => reject(new Error(`${description}: the connection broke`));
        events.after((arrivals.at(-1) ?? 0) + failsMs, () => machine.execute(fail));
      }
      for (const [index, arrival] of arrivals.entries()) {
        events.after(arrival, () =>
          store.machine.execute(() => {
            const result = operation();
            store.sendNotifications();
            if (index < arrivals.length - 1 || replyMs === null) return;
            events.after(replyMs, () => machine.execute(() => resolve(result)));
          }),
        );
      }
    });
  }

  const names = (claims: readonly Claim[]): string => claims.map(({ id }) => checker.claimName(id)).join(" ");

  const push: Push = (id, answer) => {
    if (answer === "recalled") return pushRecall(id);
    // undefined: a recheck
    const pushed = random.chance(behavior.recheckChance) || answer === "recheck" ? undefined : answer;
    for (let copies = network.pushCopies(machine); copies > 0; copies--) {
      events.after(network.delay(), () =>
        machine.execute(() => {
          machine.note(`pushed ${checker.claimName(id)} ${pushed === undefined ? "a recheck" : formatAnswer(pushed)}`);
          if (pushed === undefined) checker.recordRecheck(machine, id);
          notify(id, pushed);
        }),
      );
    }
  };

  const pushRecall = (id: ClaimId): void => {
    if (behavior.recall !== "push" || events.recallRandom?.chance(behavior.recallLossChance) !== false) return;
    for (let copies = network.pushCopies(machine); copies > 0; copies--) {
      events.after(network.delay(), () =>
        machine.execute(() => {
          machine.note(`${checker.claimName(id)} is recalled`);
          recall(id);
        }),
      );
    }
  };

  const traits: Traits = {
    lease: { claim: true },
    manyKeys: behavior.manyKeys,
    permits: "any",
    fencing: true,
    fifo: true,
    durability: "restart",
    recall: behavior.recall,
  };

  return {
    name: "rpc",

    async open(driverEvents) {
      notify = toOnPush(driverEvents);
      recall = (id) => driverEvents.recalled(id);
      return traits;
    },

    claim(claim) {
      checker.recordCall(machine, [claim.id]);
      return call(`claim ${checker.claimName(claim.id)}`, true, () => {
        const answer = table.claim(claim, { owner: push }, { now: now(), micros: store.micros() });
        checker.recordStatus(claim, answer);
        store.machine.note(`claim ${checker.claimName(claim.id)} ${formatLocks(claim)}: ${formatAnswer(answer)}`);
        return answer;
      });
    },

    renew(claims, tokenCounts) {
      checker.recordCall(
        machine,
        claims.map(({ id }) => id),
      );
      return call(`renew ${names(claims)}`, true, () =>
        claims.map((claim, index) => {
          const answer = store.renew(claim, push, tokenCounts?.[index]);
          const isLeftOut = events.storePartsRandom?.chance(behavior.omissionChance) === true;
          store.machine.note(
            `renew ${checker.claimName(claim.id)}: ${formatAnswer(answer)}${isLeftOut ? " (left out)" : ""}`,
          );
          return isLeftOut ? undefined : answer;
        }),
      );
    },

    ...(behavior.parts > 1 && { shardOf: ({ locks }: Claim) => String(locks[0].key.charCodeAt(0) % behavior.parts) }),

    async release(releases) {
      const claims = releases.map(({ claim }) => claim);
      checker.recordRelease(machine, claims);
      // a library that silently resends a release would make its "was not there" worthless: the contract forbids it
      let releasedAt = 0;
      const releaseTexts = releases.map(
        ({ claim, hasUnansweredClaim }) => `${checker.claimName(claim.id)}${hasUnansweredClaim ? " (unanswered)" : ""}`,
      );
      const released = await call(`release ${releaseTexts.join(" ")}`, false, () =>
        releases.map(({ claim: { id, ttlMs }, hasUnansweredClaim }) => {
          const wasHeld = table.release(
            id,
            { now: now(), micros: store.micros() },
            hasUnansweredClaim ? ttlMs : undefined,
          );
          store.machine.note(`release ${checker.claimName(id)}: ${wasHeld}`);
          releasedAt = events.now;
          return wasHeld;
        }),
      );
      for (const { id } of claims) checker.recordReleaseAnswer(id, releasedAt);
      return released;
    },

    revoke: (targets) =>
      call("revoke", false, () =>
        targets.map(({ key, token, now: removed }) =>
          table.revoke(key, Number(token), removed, { now: now(), micros: store.micros() }),
        ),
      ),

    list: (query, options) =>
      call("list", true, () => {
        table.advance({ now: now(), micros: store.micros() });
        return listTable(table, publicTag, { query, ...options }, now());
      }),

    async close() {
      notify = () => {};
      recall = () => {};
    },
  };
}

function formatAnswer(answer: Answer): string {
  if (answer.state === "none") return `none${answer.reason === undefined ? "" : ` (${answer.reason})`}`;
  const remainingText = `${answer.remainingMs.toFixed(1)} ms left`;
  if (answer.state === "waiting") return `waiting, ${remainingText}, ask in ${answer.recheckMs.toFixed(1)} ms`;
  return `held, token ${answer.token}+${answer.tokenCount}, ${remainingText}${answer.recalled ? ", recalled" : ""}`;
}

function formatLocks({ locks, tokenCount, wait }: Claim): string {
  const lockText = locks.map(({ key, permits, limit }) => (permits === limit ? key : `${key}:${permits}/${limit}`));
  return `[${lockText.join(" ")}]${tokenCount > 1 ? ` x${tokenCount}` : ""}${wait ? "" : " once"}`;
}
