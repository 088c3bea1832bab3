/**
 * A store that is core/table on a machine of its own, and a driver that reaches it through the simulated network. It
 * behaves as badly as the driver contract allows: pushes come late, twice, as mere nudges or not at all, renewals may be
 * looks that extend nothing, may leave answers out, and a call may be answered when its caller has long given up.
 */

import { listTable } from "../../src/core/listing.ts";
import { standingOf } from "../../src/core/standing.ts";
import { Table } from "../../src/core/table.ts";
import { tagOf } from "../../src/ids.ts";
import type { Answer, Claim, ClaimId, Driver, Notify, Traits } from "../../src/spi/driver.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Machine } from "./machine.ts";
import type { Network } from "./network.ts";
import type { Watch } from "./watch.ts";

/** How the store behaves within its contract. */
export interface Manners {
  /** Ends leases by a timer of its own; else only when somebody asks. */
  readonly timer: boolean;
  /** A renewal looks without extending while more than three quarters of the lease are left. */
  readonly looks: boolean;
  /** How often a grant is announced by a mere nudge. */
  readonly nudges: number;
  readonly manyKeys: boolean;
  /** How often a renewal leaves a claim's answer out; each part of the store is renewed alone. */
  readonly leavesOut: number;
  readonly parts: number;
}

export class RpcStore {
  readonly machine: Machine;
  readonly table: Table = new Table();
  readonly manners: Manners;
  readonly watch: Watch;
  readonly #timer;

  constructor(machine: Machine, manners: Manners, watch: Watch) {
    this.machine = machine;
    this.manners = manners;
    this.watch = watch;
    this.#timer = machine.clock.timer(() => {
      this.table.advance(machine.clock.now(), this.micros());
      this.passOn();
    });
  }

  micros(): number {
    return Math.floor(this.machine.clock.wall() * 1_000);
  }

  passOn(): void {
    for (const { id, owner, answer } of this.table.takeGrants()) (owner as Push)(id, answer);
    if (this.manners.timer) this.#timer.set(this.table.nextDue());
  }

  renew(claim: Claim, push: Push): Answer {
    const { table, machine } = this;
    const now = machine.clock.now();
    const entry = table.entries.get(claim.id);
    if (this.manners.looks && entry !== undefined && !entry.revoked && typeof claim.ttlMs === "number") {
      if (entry.expiresAt - now > 0.75 * claim.ttlMs) return standingOf(entry, now, table.sessionMs);
    }
    return table.renew(claim.id, push, now, this.micros());
  }
}

type Push = (id: ClaimId, answer: Answer) => void;

/** One client's driver. It belongs to that life of its machine. */
export function rpcDriver(machine: Machine, store: RpcStore, network: Network): Driver {
  const { world } = network;
  const random: SeededRandom = world.random.fork();
  const { table, manners, watch } = store;
  let notify: Notify = () => {};
  const now = (): number => store.machine.clock.now();

  /** One call: `work` is done at the store, each time the request arrives. */
  function call<T>(what: string, repeats: boolean, work: () => T): Promise<T> {
    const { arrivals, replyMs, failsMs } = network.fate(machine, repeats);
    machine.note(`sends ${what}`);
    return new Promise((resolve, reject) => {
      const lost = arrivals.length === 0 || replyMs === null;
      if (lost && failsMs !== null) {
        const fail = (): void => reject(new Error(`${what}: the connection broke`));
        world.after((arrivals.at(-1) ?? 0) + failsMs, () => machine.execute(fail));
      }
      for (const [index, arrival] of arrivals.entries()) {
        world.after(arrival, () =>
          store.machine.execute(() => {
            const result = work();
            store.passOn();
            if (index < arrivals.length - 1 || replyMs === null) return;
            world.after(replyMs, () => machine.execute(() => resolve(result)));
          }),
        );
      }
    });
  }

  const names = (claims: readonly Claim[], marked?: ReadonlySet<ClaimId>): string =>
    claims.map(({ id }) => `${watch.name(id)}${marked?.has(id) ? " (unanswered)" : ""}`).join(" ");

  const push: Push = (id, answer) => {
    const mere = random.chance(manners.nudges);
    for (let copies = network.copies(machine); copies > 0; copies--) {
      world.after(network.delay(), () =>
        machine.execute(() => {
          machine.note(`pushed ${watch.name(id)} ${mere ? "a nudge" : shownAnswer(answer)}`);
          if (mere) watch.nudged(machine, id);
          notify(id, mere ? undefined : answer);
        }),
      );
    }
  };

  const traits: Traits = {
    lease: { claim: true },
    manyKeys: manners.manyKeys,
    permits: "any",
    fencing: true,
    fifo: true,
    survives: "restart",
  };

  return {
    name: "rpc",
    traits,

    async open(sink) {
      notify = sink;
    },

    claim(claim) {
      watch.called(machine, [claim.id]);
      return call(`claim ${watch.name(claim.id)}`, true, () => {
        const answer = table.claim(claim, push, now(), store.micros());
        watch.stood(claim, answer);
        store.machine.note(`claim ${watch.name(claim.id)} ${shownHolds(claim)}: ${shownAnswer(answer)}`);
        return answer;
      });
    },

    renew(claims) {
      watch.called(
        machine,
        claims.map(({ id }) => id),
      );
      return call(`renew ${names(claims)}`, true, () =>
        claims.map((claim) => {
          const answer = store.renew(claim, push);
          const isLeftOut = world.parts?.chance(manners.leavesOut) === true;
          store.machine.note(`renew ${watch.name(claim.id)}: ${shownAnswer(answer)}${isLeftOut ? " (left out)" : ""}`);
          return isLeftOut ? undefined : answer;
        }),
      );
    },

    ...(manners.parts > 1 && { shardOf: ({ holds }: Claim) => String(holds[0].key.charCodeAt(0) % manners.parts) }),

    async release(claims, unanswered) {
      watch.leaving(machine, claims);
      // a library that sends a release again unseen would make its "was not there" worthless: the contract forbids it
      let doneAt = 0;
      const there = await call(`release ${names(claims, unanswered)}`, false, () =>
        claims.map(({ id, ttlMs }) => {
          const was = table.release(id, now(), store.micros(), unanswered?.has(id) ? ttlMs : undefined);
          store.machine.note(`release ${watch.name(id)}: ${was}`);
          doneAt = world.now;
          return was;
        }),
      );
      for (const { id } of claims) watch.releaseAnswered(id, doneAt);
      return there;
    },

    revoke: (targets) =>
      call("revoke", false, () =>
        targets.map(({ key, token, now: removed }) => table.revoke(key, Number(token), removed, now(), store.micros())),
      ),

    list: (filter, max, after) =>
      call("list", true, () => {
        table.advance(now(), store.micros());
        return listTable(table, tagOf, { filter, max, ...(after !== undefined && { after }) }, now());
      }),

    async close() {
      notify = () => {};
    },
  };
}

function shownAnswer(answer: Answer): string {
  if (answer.state === "none") return `none${answer.reason === undefined ? "" : ` (${answer.reason})`}`;
  const left = `${answer.ttlMs.toFixed(1)} ms left`;
  if (answer.state === "waiting") return `waiting, ${left}, ask in ${answer.recheckMs.toFixed(1)} ms`;
  return `held, token ${answer.token}+${answer.tokens}, ${left}`;
}

function shownHolds({ holds, tokens, wait }: Claim): string {
  const list = holds.map(({ key, permits, limit }) => (permits === limit ? key : `${key}:${permits}/${limit}`));
  return `[${list.join(" ")}]${tokens > 1 ? ` x${tokens}` : ""}${wait ? "" : " once"}`;
}
