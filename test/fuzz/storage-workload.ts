// Random clients on a server whose disk hangs and fails, which crashes and stops, and the invariants that must hold.

import type { Driver } from "../../src/spi/driver.ts";
import { flushEventLoop } from "../support/fake-clock.ts";
import { toReleases } from "../support/releases.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import { makeClaim } from "../support/server-fixture.ts";
import type { HarnessClient, MemoryStorage } from "../support/server-harness.ts";
import { ServerHarness } from "../support/server-harness.ts";
import type { TestAccount } from "../support/test-accounts.ts";
import { createTestAccess, testAccount } from "../support/test-accounts.ts";
import type { ExpectedClaim } from "./client-expectations.ts";
import { ClientExpectations, isBelievedHeld } from "./client-expectations.ts";

const KEYS = ["a", "b", "c"];
const LEASES = [2_000, 20_000, 50_000, 58_000, 61_000, 90_000, "session"] as const;
/** More than any lease, and than a recovery. */
const LONGER_THAN_ANY_LEASE_MS = 400_000;
/** Claims of one account, and waiting entries, at the end. */
const FINAL_CLAIMS = 40;

interface FuzzClient {
  readonly local: boolean;
  client: HarnessClient;
  pushesSeen: number;
  readonly claims: Map<string, ExpectedClaim>;
}

export class StorageWorkload {
  readonly #random: SeededRandom;
  readonly #harness: ServerHarness;
  readonly #storage: MemoryStorage;
  readonly #account: TestAccount;
  readonly #clients: FuzzClient[] = [];
  readonly #expectations = new ClientExpectations();
  readonly faults: string[] = [];
  readonly trace: string[] = [];
  #openGate: (() => void) | null = null;
  #pending = 0;

  constructor(random: SeededRandom) {
    this.#random = random;
    this.#account = testAccount("ana");
    const access = createTestAccess(this.#account);
    this.#harness = new ServerHarness({
      remote: true,
      access,
      limits: { claimsPerAccount: 3 * FINAL_CLAIMS },
    });
    this.#storage = this.#harness.storage as MemoryStorage;
  }

  async run(steps: number): Promise<void> {
    await this.#harness.start();
    for (const local of [true, true, false]) {
      this.#clients.push({ local, client: await this.#newClient(local), pushesSeen: 0, claims: new Map() });
    }
    for (let step = 0; step < steps && this.faults.length === 0; step++) {
      await this.#step();
      await flushEventLoop(this.#random.int(4));
      this.#checkInvariants();
    }
    await this.#end();
  }

  async #step(): Promise<void> {
    const fuzzClient = this.#random.pick(this.#clients);
    const draw = this.#random.int(100);
    if (draw < 30) this.#claim(fuzzClient);
    else if (draw < 45) this.#renew(fuzzClient);
    else if (draw < 60) this.#release(fuzzClient);
    else if (draw < 66) this.#detach(fuzzClient);
    else if (draw < 70) this.#revoke(fuzzClient);
    else if (draw < 75) await this.#disconnect(fuzzClient);
    else if (draw < 82) this.#toggleGate();
    else if (draw < 86) this.#storage.isFull = this.#random.pick([false, false, true, "journal"] as const);
    else if (draw < 88) this.#harness.serverClockOffsetMs += 40_000;
    else if (draw < 98) await this.#harness.clock.advance(this.#random.pick([10, 200, 1_500, 7_000, 20_000, 70_000]));
    else await this.#restart();
  }

  #claim(fuzzClient: FuzzClient): void {
    const key = this.#random.pick(KEYS);
    const ttlMs = this.#random.pick(LEASES);
    const claim = makeClaim(key, { ttlMs, wait: this.#random.int(4) > 0 });
    const requestedAt = this.#now();
    const state = { token: null, heldAt: 0, isAnswered: false, isReleased: false, isDetached: false };
    const expectedClaim: ExpectedClaim = { claim, key, requestedAt, deadline: requestedAt, ...state };
    fuzzClient.claims.set(claim.id, expectedClaim);
    this.#expectations.all.push(expectedClaim);
    this.#log("claim", key, ttlMs, claim.id);
    this.#track(fuzzClient.client.driver.claim(claim), (answer) => {
      expectedClaim.isAnswered = true;
      this.#applyAnswer(fuzzClient, expectedClaim, answer, requestedAt);
    });
  }

  #renew(fuzzClient: FuzzClient): void {
    const live = [...fuzzClient.claims.values()].filter(({ isReleased }) => !isReleased);
    if (live.length === 0) return;
    const sentAt = this.#now();
    this.#track(fuzzClient.client.driver.renew(live.map(({ claim }) => claim)), (answers) => {
      for (const [index, expectedClaim] of live.entries()) {
        const answer = answers[index];
        if (answer !== undefined) this.#applyAnswer(fuzzClient, expectedClaim, answer, sentAt);
      }
    });
  }

  #release(fuzzClient: FuzzClient): void {
    if (fuzzClient.claims.size > 0)
      this.#releaseUntilAnswered(fuzzClient, this.#random.pick([...fuzzClient.claims.values()]));
  }

  #releaseUntilAnswered(fuzzClient: FuzzClient, expectedClaim: ExpectedClaim): void {
    expectedClaim.isReleased = true;
    fuzzClient.claims.delete(expectedClaim.claim.id);
    this.#log("release", expectedClaim.claim.id);
    const retry = (attempt: number): void => {
      this.#track(
        fuzzClient.client.driver.release([
          { claim: expectedClaim.claim, hasUnansweredClaim: !expectedClaim.isAnswered },
        ]),
        () => undefined,
        () => attempt > 0 && retry(attempt - 1),
      );
    };
    retry(20);
  }

  #detach(fuzzClient: FuzzClient): void {
    const held = [...fuzzClient.claims.values()].filter(
      (expectedClaim) => isBelievedHeld(expectedClaim, this.#now()) && expectedClaim.claim.ttlMs !== "session",
    );
    if (held.length === 0) return;
    const believed = this.#random.pick(held);
    const sentAt = this.#now();
    this.#log("detach", believed.claim.id);
    this.#track(fuzzClient.client.driver.detach?.([believed.claim]) as Promise<readonly boolean[]>, ([done]) => {
      if (done !== true || believed.isReleased) return;
      believed.isDetached = true;
      believed.deadline = Math.max(believed.deadline, sentAt + 0.9 * Number(believed.claim.ttlMs));
    });
  }

  #revoke(fuzzClient: FuzzClient): void {
    const believedClaims = this.#expectations.believedHeld(this.#now());
    if (believedClaims.length === 0) return;
    const held = this.#random.pick(believedClaims);
    const now = this.#random.int(2) === 0;
    this.#log("revoke", held.claim.id, now);
    // its holder may still rely on it, as "at once" implies
    if (now) held.isReleased = true;
    const target = { key: held.key, token: held.token as bigint, now };
    this.#track(fuzzClient.client.driver.revoke?.([target]) as Promise<readonly boolean[]>, () => undefined);
  }

  /** The crash of a process on this machine; on another one its connection is lost, perhaps for a while. */
  async #disconnect(fuzzClient: FuzzClient): Promise<void> {
    this.#log("cut", fuzzClient.local);
    if (!fuzzClient.local) {
      fuzzClient.client.isUnreachable = this.#random.int(2) === 0;
      fuzzClient.client.disconnect();
      return;
    }
    for (const expectedClaim of fuzzClient.claims.values())
      if (!expectedClaim.isDetached) expectedClaim.isReleased = true;
    fuzzClient.claims.clear();
    const { client } = fuzzClient;
    client.processState = "gone";
    fuzzClient.pushesSeen = 0;
    fuzzClient.client = await this.#newClient(true);
    client.disconnect();
    await client.driver.close();
  }

  #toggleGate(): void {
    this.#log(this.#openGate === null ? "hang" : "go on");
    if (this.#openGate === null) this.#openGate = this.#storage.blockWrites();
    else this.#resumeWrites();
  }

  #resumeWrites(): void {
    this.#openGate?.();
    this.#openGate = null;
  }

  async #restart(): Promise<void> {
    const crashes = this.#random.int(3) > 0;
    this.#log("restart", crashes);
    if (crashes) {
      if (this.#random.int(2) === 0) this.#resumeWrites();
      await flushEventLoop(this.#random.int(2));
      this.#harness.crash();
    } else {
      this.#resumeWrites();
      await this.#harness.stop().catch(() => this.#harness.crash());
    }
    this.#resumeWrites();
    await flushEventLoop();
    this.#storage.isFull = false;
    await this.#harness.start();
  }

  async #newClient(local: boolean): Promise<HarnessClient> {
    return this.#harness.connectClient(local, this.#account.credential);
  }

  #track<T>(call: Promise<T>, onResult: (result: T) => void, failed: () => void = () => undefined): void {
    this.#pending++;
    call.then(
      (result) => {
        this.#pending--;
        onResult(result);
      },
      () => {
        this.#pending--;
        failed();
      },
    );
  }

  #applyAnswer(
    fuzzClient: FuzzClient,
    expectedClaim: ExpectedClaim,
    answer: Awaited<ReturnType<Driver["claim"]>>,
    sentAt: number,
  ): void {
    if (expectedClaim.isReleased || expectedClaim.isDetached) return;
    this.#log("told", expectedClaim.claim.id, answer.state);
    // a revoked claim keeps its entry until it is released
    if (answer.state === "none") return this.#releaseUntilAnswered(fuzzClient, expectedClaim);
    const { ttlMs } = expectedClaim.claim;
    const maxMs = Math.min(answer.remainingMs, ttlMs === "session" ? 30_000 : ttlMs);
    expectedClaim.deadline = Math.max(expectedClaim.deadline, sentAt + 0.9 * maxMs);
    if (answer.state === "held" && expectedClaim.token === null) {
      this.faults.push(...this.#expectations.recordGrant(expectedClaim, answer.token, this.#now()));
    }
  }

  #checkInvariants(): void {
    for (const fuzzClient of this.#clients) {
      const { pushes } = fuzzClient.client;
      for (const { id, answer } of pushes.slice(fuzzClient.pushesSeen)) {
        const expectedClaim = fuzzClient.claims.get(id ?? "");
        if (expectedClaim !== undefined && answer !== undefined)
          this.#applyAnswer(fuzzClient, expectedClaim, answer, expectedClaim.deadline - 1e9);
      }
      fuzzClient.pushesSeen = pushes.length;
    }
    this.faults.push(...this.#expectations.findConflicts(this.#now()));
    if (this.#storage.hadOverlappingWrites) this.faults.push("two writes of one file at a time");
  }

  async #end(): Promise<void> {
    this.#log("end");
    this.#resumeWrites();
    this.#storage.isFull = false;
    const { clock } = this.#harness;
    for (const fuzzClient of this.#clients) fuzzClient.client.isUnreachable = false;
    await clock.advance(10_000);
    for (const fuzzClient of this.#clients)
      for (const expectedClaim of [...fuzzClient.claims.values()])
        this.#releaseUntilAnswered(fuzzClient, expectedClaim);
    await clock.advance(LONGER_THAN_ANY_LEASE_MS);
    if (this.#pending > 0) this.faults.push(`${this.#pending} calls have no answer`);
    this.#expectNothingLeft("at the end");
    await this.#expectQuotasFree();
    this.#harness.crash();
    await this.#harness.start();
    this.#expectNothingLeft("after a crash");
  }

  #expectNothingLeft(when: string): void {
    const { table, sessions } = this.#harness.inspect();
    const leftIds = [...table.records.values()].map(({ claim }) => claim.id);
    if (leftIds.length > 0) this.faults.push(`${leftIds} are left ${when}`);
    if (table.waitingCount !== 0) this.faults.push(`${table.waitingCount} waiting claims are counted ${when}`);
    for (const { records } of sessions.values()) {
      if (records.size > 0) this.faults.push(`a session has ${records.size} claims ${when}`);
    }
  }

  /** All counted resources have been returned. */
  async #expectQuotasFree(): Promise<void> {
    const { driver } = (this.#clients[0] as FuzzClient).client;
    const claims = Array.from({ length: 2 * FINAL_CLAIMS + 1 }, () => makeClaim("room"));
    try {
      for (const claim of claims) await driver.claim(claim);
    } catch (error) {
      this.faults.push(`at the end: ${error}`);
    }
    await driver.release(toReleases(...claims));
    await flushEventLoop();
  }

  #log(...parts: readonly unknown[]): void {
    this.trace.push(`${this.#now()} ${parts.join(" ")}`);
  }

  #now(): number {
    return this.#harness.clock.now();
  }
}
