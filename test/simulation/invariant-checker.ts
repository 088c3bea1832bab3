/**
 * The invariants, checked as events happen. It sees everything from outside: the answers of stores, the clients' view, and
 * true time.
 */

import type { ActiveClaim } from "../../src/client/engine.ts";
import { LockLostError } from "../../src/errors.ts";
import type { Lock } from "../../src/index.ts";
import { countAdmitted } from "../../src/lock-table/admission.ts";
import type { Answer, Claim, ClaimId, LockSpec } from "../../src/spi/driver.ts";
import type { EventQueue } from "./event-queue.ts";
import type { SimulatedMachine } from "./simulated-machine.ts";

/** A lock of a user in the simulated world. */
export interface HeldLock {
  readonly name: string;
  readonly machine: SimulatedMachine;
  /** Its client: a closing client releases everything at once. */
  readonly client: { readonly isClosing: boolean };
  readonly lock: Lock;
  readonly holds: readonly LockSpec[];
  /** 0: unknown. */
  readonly leaseMs: number;
  /** The end of its lease at the last look, by the clock of its machine that also counts sleep. */
  leaseUntil: number;
  /** Notified to stop while its lease lasts, and still working. */
  isStopping: boolean;
}

/** A client that may keep locks which it does not use. */
interface CachingClient {
  readonly machine: SimulatedMachine;
  /** Those that it could use at once. */
  readonly listUsableLocks: () => readonly ActiveClaim[];
}

/** One holder of a key, or a client that could be one at once. */
interface KeyHolder {
  readonly id: string;
  readonly token: bigint;
  readonly permits: number;
  readonly limit: number;
}

/** After a first failure a call is sent again within this time. */
const FIRST_RETRY_MS = 25;

interface KeyHistory {
  /** Held now, or about to be found lost. */
  readonly holdings: Set<HeldLock>;
  readonly seenTokens: Set<bigint>;
  highestToken: bigint;
  highestExclusiveToken: bigint;
}

export class InvariantChecker {
  readonly events: EventQueue;
  readonly #keys = new Map<string, KeyHistory>();
  readonly #names = new Map<ClaimId, string>();
  /** How often its release was sent. */
  readonly #releaseCounts = new Map<ClaimId, number>();
  /** When it was last claimed or renewed, by its machine's clock. */
  readonly #lastCallAt = new Map<ClaimId, number>();
  /** When the store had done a release that was answered, in true time. */
  readonly #releasedAt = new Map<ClaimId, number>();
  readonly #rechecks = new Map<
    ClaimId,
    { readonly machine: SimulatedMachine; readonly at: number; readonly lateMs: number }
  >();
  /** The longest answer time a client allows a call, plus its scheduling: a recheck is followed by a call within it. */
  recheckBoundMs = Number.POSITIVE_INFINITY;
  grants = 0;

  readonly #listClients: () => readonly CachingClient[];

  constructor(events: EventQueue, listClients: () => readonly CachingClient[]) {
    this.events = events;
    this.#listClients = listClients;
  }

  /** Claims are numbered as they appear: their ids do not follow from the seed. */
  claimName(id: ClaimId): string {
    let name = this.#names.get(id);
    if (name === undefined) {
      name = `#${this.#names.size + 1}`;
      this.#names.set(id, name);
    }
    return name;
  }

  // --- calls

  /** A client sends a call for these claims. */
  recordCall(machine: SimulatedMachine, ids: readonly ClaimId[]): void {
    for (const id of ids) {
      this.#lastCallAt.set(id, machine.now);
      const recheck = this.#rechecks.get(id);
      if (recheck === undefined) continue;
      this.#rechecks.delete(id);
      const waitedMs = machine.now - recheck.at - (machine.totalStoppedMs - recheck.lateMs) * machine.rate;
      if (waitedMs > this.recheckBoundMs) {
        this.events.fail(
          `${machine.name} asked about ${this.claimName(id)} only ${waitedMs.toFixed(0)} ms after a recheck`,
        );
      }
    }
  }

  recordRecheck(machine: SimulatedMachine, id: ClaimId): void {
    if (!this.#releaseCounts.has(id) && !this.#rechecks.has(id))
      this.#rechecks.set(id, { machine, at: machine.now, lateMs: machine.totalStoppedMs });
  }

  /** The client has given up these claims: no further calls are required. */
  recordDetach(reference: string): void {
    const body = Buffer.from(reference.split(".")[1] ?? "", "base64url").toString();
    const { c: claims } = JSON.parse(body) as { readonly c: readonly (readonly [ClaimId])[] };
    for (const [id] of claims) {
      this.#releaseCounts.set(id, Number.POSITIVE_INFINITY);
      this.#rechecks.delete(id);
    }
  }

  /** A client sends a release of these claims: it need not renew any more, but must repeat the release until it is answered. */
  recordRelease(machine: SimulatedMachine, claims: readonly Claim[]): void {
    for (const { id, ttlMs } of claims) {
      this.#rechecks.delete(id);
      const calls = (this.#releaseCounts.get(id) ?? 0) + 1;
      this.#releaseCounts.set(id, calls);
      // in a batch it would wait as long as the one that has failed most often
      if (calls === 1 && claims.length === 1) this.#expectReleased(machine, id, Number(ttlMs));
    }
  }

  /** An unanswered release is sent again, unless the store has forgotten the claim by then. */
  #expectReleased(machine: SimulatedMachine, id: ClaimId, ttlMs: number): void {
    const { totalStoppedMs } = machine;
    const maxWaitMs = ttlMs / 6 + FIRST_RETRY_MS;
    if (machine.now + maxWaitMs >= (this.#lastCallAt.get(id) ?? 0) + ttlMs) return;
    this.events.after(maxWaitMs / machine.rate, () => {
      if (machine.state === "dead" || machine.totalStoppedMs > totalStoppedMs) return;
      if (this.#releaseCounts.get(id) === 1 && !this.#releasedAt.has(id)) {
        this.events.fail(`${machine.name} does not send the release of ${this.claimName(id)} again`);
      }
    });
  }

  /** A release of this claim was answered; the store executed it at that time. */
  recordReleaseAnswer(id: ClaimId, releasedAt: number): void {
    this.#releasedAt.set(id, releasedAt);
  }

  /** The store answered a `claim` call. A call late by more than a lease need not be remembered. */
  recordStatus({ id, ttlMs }: Claim, answer: Answer): void {
    const lateMs = this.events.now - (this.#releasedAt.get(id) ?? Number.NEGATIVE_INFINITY);
    if (answer.state !== "none" && lateMs < 0.98 * Number(ttlMs)) {
      this.events.fail(`${this.claimName(id)} was given a place after its release had been answered`);
    }
  }

  // --- holders

  /** The known token of a key before a request for it is made. */
  highestSeen(lockSpecs: readonly LockSpec[]): ReadonlyMap<string, bigint> {
    return new Map(lockSpecs.map(({ key }) => [key, this.#historyOf(key).highestToken]));
  }

  /** A request was granted. `before`: highestSeen() when it was made. */
  recordGrant(heldLock: HeldLock, before: ReadonlyMap<string, bigint>): void {
    this.grants++;
    if (heldLock.lock.remainingMs === 0) this.events.fail(`${heldLock.name} was given a lock that is lost already`);
    for (const { key, permits, limit } of heldLock.holds) {
      const token = heldLock.lock.tokenOf(key);
      const history = this.#historyOf(key);
      const exclusive = permits === limit;
      const minToken = exclusive ? history.highestToken : history.highestExclusiveToken;
      const wasSeen = before.get(key) ?? 0n;
      if (history.seenTokens.has(token))
        this.events.fail(`${heldLock.name}: token ${token} of ${key} was granted twice`);
      if (token <= minToken) this.events.fail(`${heldLock.name}: token ${token} of ${key} is not above ${minToken}`);
      if (token <= wasSeen) {
        this.events.fail(
          `${heldLock.name}: token ${token} of ${key} is not above ${wasSeen}, seen before it was asked for`,
        );
      }
      history.seenTokens.add(token);
      if (token > history.highestToken) history.highestToken = token;
      if (exclusive && token > history.highestExclusiveToken) history.highestExclusiveToken = token;
    }
    this.recordAttach(heldLock);
  }

  /** It is held (again: after attach), with known tokens. */
  recordAttach(heldLock: HeldLock): void {
    for (const { key } of heldLock.holds) this.#historyOf(key).holdings.add(heldLock);
  }

  /** Its holder has stopped working with it. */
  recordEnd(heldLock: HeldLock): void {
    for (const { key } of heldLock.holds) this.#historyOf(key).holdings.delete(heldLock);
  }

  /** Has a key of this holder been granted since to a holder that excludes it? */
  isOvertaken({ holds, lock }: HeldLock): boolean {
    return holds.some(({ key, permits, limit }) => {
      const history = this.#historyOf(key);
      return lock.tokenOf(key) < (permits === limit ? history.highestToken : history.highestExclusiveToken);
    });
  }

  /** Never more admitted than the limit allows, by the holders' own clocks. A client that may use a lock at once is a holder. */
  check(): void {
    const unused = this.#listUnused();
    for (const [key, { holdings }] of this.#keys) {
      const unusedHere = unused.get(key) ?? [];
      if (holdings.size + unusedHere.length < 2) continue;
      const believedHeld = [...holdings].filter((heldLock) => this.#isBelievedHeld(heldLock));
      if (believedHeld.length + unusedHere.length < 2) continue;
      const entries = believedHeld
        .map((heldLock) => ({ id: heldLock.name, token: heldLock.lock.tokenOf(key), ...lockSpecFor(heldLock, key) }))
        .concat(unusedHere)
        .sort((a, b) => (a.token < b.token ? -1 : 1));
      if (countAdmitted(entries) < entries.length) {
        this.events.fail(`${key} is held by ${entries.map(({ id, token }) => `${id} (token ${token})`).join(" and ")}`);
      }
    }
  }

  #listUnused(): ReadonlyMap<string, KeyHolder[]> {
    const unused = new Map<string, KeyHolder[]>();
    for (const { machine, listUsableLocks } of this.#listClients()) {
      for (const { claim, state } of listUsableLocks()) {
        if (state.status !== "held") continue;
        for (const { key, permits, limit } of claim.locks) {
          const holder = { id: `${machine.name}, which does not use it`, token: state.token, permits, limit };
          unused.set(key, [...(unused.get(key) ?? []), holder]);
        }
      }
    }
    return unused;
  }

  /** Examines a holder before an event on its machine: until when could it be working? */
  checkHolding(heldLock: HeldLock): void {
    const remainingMs = heldLock.lock.remainingMs;
    if (remainingMs > 0) heldLock.leaseUntil = heldLock.machine.clock.uptime() + remainingMs;
  }

  #isBelievedHeld(heldLock: HeldLock): boolean {
    const { machine, lock, client } = heldLock;
    if (machine.state === "dead" || machine.state === "asleep") return false;
    if (heldLock.isStopping) return !client.isClosing && machine.clock.uptime() < heldLock.leaseUntil;
    try {
      lock.throwIfLost();
      heldLock.leaseUntil = machine.clock.uptime() + lock.remainingMs;
      return true;
    } catch (error) {
      if (!(error instanceof LockLostError)) throw error;
      // notified although its lease lasts: until its body has ended no other may be granted
      heldLock.isStopping = error.reason === "maxHold" || error.reason === "revoked";
      return heldLock.isStopping && !client.isClosing && machine.clock.uptime() < heldLock.leaseUntil;
    }
  }

  #historyOf(key: string): KeyHistory {
    let history = this.#keys.get(key);
    if (history === undefined) {
      history = { holdings: new Set(), seenTokens: new Set(), highestToken: 0n, highestExclusiveToken: 0n };
      this.#keys.set(key, history);
    }
    return history;
  }
}

function lockSpecFor({ holds }: HeldLock, key: string): { readonly permits: number; readonly limit: number } {
  const lockSpec = holds.find((spec) => spec.key === key);
  if (lockSpec === undefined) throw new Error(`no hold on ${key}`);
  return lockSpec;
}
