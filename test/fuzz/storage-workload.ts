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
      limits: { claimsPerAccount: 3 * FINAL_CLAIMS, waiters: 2 * FINAL_CLAIMS },
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
    const dice = this.#random.int(100);
    if (dice < 30) this.#claim(fuzzClient);
    else if (dice < 45) this.#renew(fuzzClient);
    else if (dice < 60) this.#release(fuzzClient);
    else if (dice < 66) this.#detach(fuzzClient);
    else if (dice < 70) this.#revoke(fuzzClient);
    else if (dice < 75) await this.#disconnect(fuzzClient);
    else if (dice < 82) this.#toggleGate();
    else if (dice < 86) this.#storage.isFull = this.#random.pick([false, false, true, "journal"] as const);
    else if (dice < 88) this.#harness.serverClockOffsetMs += 40_000;
    else if (dice < 98) await this.#harness.clock.advance(this.#random.pick([10, 200, 1_500, 7_000, 20_000, 70_000]));
    else await this.#restart();
  }

  #claim(fuzzClient: FuzzClient): void {
    const key = this.#random.pick(KEYS);
    const ttlMs = this.#random.pick(LEASES);
    const claim = makeClaim(key, { ttlMs, wait: this.#random.int(4) > 0 });
    const requestedAt = this.#now();
    const state = { token: null, heldAt: 0, isAnswered: false, isReleased: false, isDetached: false };
    const mine: ExpectedClaim = { claim, key, requestedAt, deadline: requestedAt, ...state };
    fuzzClient.claims.set(claim.id, mine);
    this.#expectations.all.push(mine);
    this.#log("claim", key, ttlMs, claim.id);
    this.#track(fuzzClient.client.driver.claim(claim), (answer) => {
      mine.isAnswered = true;
      this.#applyAnswer(fuzzClient, mine, answer, requestedAt);
    });
  }

  #renew(fuzzClient: FuzzClient): void {
    const live = [...fuzzClient.claims.values()].filter(({ isReleased }) => !isReleased);
    if (live.length === 0) return;
    const sentAt = this.#now();
    this.#track(fuzzClient.client.driver.renew(live.map(({ claim }) => claim)), (answers) => {
      for (const [at, mine] of live.entries()) {
        const answer = answers[at];
        if (answer !== undefined) this.#applyAnswer(fuzzClient, mine, answer, sentAt);
      }
    });
  }

  #release(fuzzClient: FuzzClient): void {
    if (fuzzClient.claims.size > 0)
      this.#releaseUntilAnswered(fuzzClient, this.#random.pick([...fuzzClient.claims.values()]));
  }

  #releaseUntilAnswered(fuzzClient: FuzzClient, mine: ExpectedClaim): void {
    mine.isReleased = true;
    fuzzClient.claims.delete(mine.claim.id);
    this.#log("release", mine.claim.id);
    const again = (tries: number): void => {
      this.#track(
        fuzzClient.client.driver.release([{ claim: mine.claim, hasUnansweredClaim: !mine.isAnswered }]),
        () => undefined,
        () => tries > 0 && again(tries - 1),
      );
    };
    again(20);
  }

  #detach(fuzzClient: FuzzClient): void {
    const held = [...fuzzClient.claims.values()].filter(
      (mine) => isBelievedHeld(mine, this.#now()) && mine.claim.ttlMs !== "session",
    );
    if (held.length === 0) return;
    const mine = this.#random.pick(held);
    const sentAt = this.#now();
    this.#log("detach", mine.claim.id);
    this.#track(fuzzClient.client.driver.detach?.([mine.claim]) as Promise<readonly boolean[]>, ([done]) => {
      if (done !== true || mine.isReleased) return;
      mine.isDetached = true;
      mine.deadline = Math.max(mine.deadline, sentAt + 0.9 * Number(mine.claim.ttlMs));
    });
  }

  #revoke(fuzzClient: FuzzClient): void {
    const all = this.#expectations.believedHeld(this.#now());
    if (all.length === 0) return;
    const held = this.#random.pick(all);
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
    for (const mine of fuzzClient.claims.values()) if (!mine.isDetached) mine.isReleased = true;
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

  #track<T>(call: Promise<T>, done: (result: T) => void, failed: () => void = () => undefined): void {
    this.#pending++;
    call.then(
      (result) => {
        this.#pending--;
        done(result);
      },
      () => {
        this.#pending--;
        failed();
      },
    );
  }

  #applyAnswer(
    fuzzClient: FuzzClient,
    mine: ExpectedClaim,
    answer: Awaited<ReturnType<Driver["claim"]>>,
    sentAt: number,
  ): void {
    if (mine.isReleased || mine.isDetached) return;
    this.#log("told", mine.claim.id, answer.state);
    // a revoked claim keeps its entry until it is released
    if (answer.state === "none") return this.#releaseUntilAnswered(fuzzClient, mine);
    const { ttlMs } = mine.claim;
    const most = Math.min(answer.remainingMs, ttlMs === "session" ? 30_000 : ttlMs);
    mine.deadline = Math.max(mine.deadline, sentAt + 0.9 * most);
    if (answer.state === "held" && mine.token === null) {
      this.faults.push(...this.#expectations.recordGrant(mine, answer.token, this.#now()));
    }
  }

  #checkInvariants(): void {
    for (const fuzzClient of this.#clients) {
      const { pushes } = fuzzClient.client;
      for (const { id, answer } of pushes.slice(fuzzClient.pushesSeen)) {
        const mine = fuzzClient.claims.get(id ?? "");
        if (mine !== undefined && answer !== undefined)
          this.#applyAnswer(fuzzClient, mine, answer, mine.deadline - 1e9);
      }
      fuzzClient.pushesSeen = pushes.length;
    }
    this.faults.push(...this.#expectations.conflicts(this.#now()));
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
      for (const mine of [...fuzzClient.claims.values()]) this.#releaseUntilAnswered(fuzzClient, mine);
    await clock.advance(LONGER_THAN_ANY_LEASE_MS);
    if (this.#pending > 0) this.faults.push(`${this.#pending} calls have no answer`);
    this.#expectNothingLeft("at the end");
    await this.#expectQuotasFree();
    this.#harness.crash();
    await this.#harness.start();
    this.#expectNothingLeft("after a crash");
  }

  #expectNothingLeft(when: string): void {
    const left = [...this.#harness.inspect().records.values()].map(({ claim }) => claim.id);
    if (left.length > 0) this.faults.push(`${left} are left ${when}`);
    for (const { records } of this.#harness.inspect().sessions.values()) {
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

  #log(...words: readonly unknown[]): void {
    this.trace.push(`${this.#now()} ${words.join(" ")}`);
  }

  #now(): number {
    return this.#harness.clock.now();
  }
}
