// A model of a lock service, its clients and the faults of a torture, on a simulated clock: it writes histories that are
// correct. A stop may come between any two steps of a process.

import { createRandom } from "../../src/testing/random.ts";
import type { HistoryEvent, OperationKind, WorkerEvent } from "../../src/torture/history.ts";

/** Times in microseconds. */
const MS = 1_000;
const TTL = 200 * MS;
const FAULTS_END = 1_200 * MS;
const QUIET = 2 * TTL + 400 * MS;
const LIMIT = 3;
const TOKENS_OF_A_GRANT = 8;

type Process = {
  readonly worker: number;
  readonly place: number;
  isDead: boolean;
  stoppedUntil: number;
  cutOffUntil: number;
  lastArrival: number;
  callers: number;
};

type Request = {
  readonly op: number;
  readonly kind: OperationKind;
  readonly keys: readonly string[];
  readonly permits: number;
  readonly limit: number | null;
  readonly waitMs: number;
};

/** A claim, as the store and its client know it. */
type Claim = {
  readonly process: Process;
  readonly request: Request;
  isHeld: boolean;
  isGone: boolean;
  leaseEndsAt: number;
  tokens: Map<string, number>;
  /** What the client knows. */
  deadline: number;
  isGranted: boolean;
  isOver: boolean;
  onGrant: () => void;
  onGone: () => void;
};

export function writeHistory(seed: number): HistoryEvent[] {
  return new Model(seed).run();
}

class Model {
  readonly #random;
  readonly #seed: number;
  readonly #tasks = new Tasks();
  readonly #lines: { readonly arrival: number; readonly event: HistoryEvent }[] = [];
  readonly #queues = new Map<string, Claim[]>();
  readonly #lastTokens = new Map<string, number>();
  readonly #files = new Map<string, Set<{ readonly isExclusive: boolean }>>();
  readonly #registers = new Map<string, { highest: number; value: number }>();
  readonly #processes: Process[] = [];
  #count = 0;
  #faults = 0;
  #operations = 0;
  #storeDownUntil = 0;
  #registerDownUntil = 0;
  #isStopping = false;

  constructor(seed: number) {
    this.#seed = seed;
    this.#random = createRandom(seed);
  }

  run(): HistoryEvent[] {
    for (let place = 0; place < 3; place++) this.#startProcess(place);
    this.#tasks.at(50 * MS, () => this.#injectFaults());
    this.#tasks.at(FAULTS_END + 3 * TTL, () => this.#report({ event: "healed", at: this.#now }));
    this.#tasks.at(FAULTS_END + 3 * TTL + QUIET, () => {
      this.#isStopping = true;
      this.#report({ event: "stopping", at: this.#now });
    });
    this.#tasks.run();
    const count = [...this.#queues.values()]
      .flat()
      .filter(({ leaseEndsAt }) => leaseEndsAt > this.#now + 2 * TTL).length;
    this.#report({ event: "leftovers", at: this.#now + 2 * TTL, count });
    const header: HistoryEvent = {
      ...{ event: "run", format: 1, seed: this.#seed, subject: "model 1", store: "model", ttlMs: TTL / MS },
      ...{ workers: 3, seconds: FAULTS_END / 1e6, faults: [], versions: {} },
    };
    return [header, ...this.#lines.sort((a, b) => a.arrival - b.arrival).map(({ event }) => event)];
  }

  get #now(): number {
    return this.#tasks.now;
  }

  #report(event: HistoryEvent): void {
    this.#lines.push({ arrival: this.#now, event });
  }

  /** What a process has written arrives later, in its order, even if it has been killed. */
  #tell(process: Process, event: WorkerEvent): void {
    process.lastArrival = Math.max(process.lastArrival, this.#now + this.#random.int(2 * MS)) + 1;
    this.#lines.push({ arrival: process.lastArrival, event });
  }

  /** A step of a process: later, if it is stopped then; never, if it has been killed. */
  #step(process: Process, delay: number, run: () => void): void {
    this.#tasks.at(this.#now + delay, () => {
      if (process.isDead) return;
      if (process.stoppedUntil > this.#now)
        this.#step(process, process.stoppedUntil - this.#now + this.#random.int(MS), run);
      else run();
    });
  }

  /** A moment of a process that is at work. */
  #moment(): number {
    return this.#random.chance(0.02) ? this.#random.int(20 * MS) : this.#random.int(200);
  }

  // Processes and faults.

  #startProcess(place: number): void {
    const process: Process = {
      ...{ worker: this.#count++, place, isDead: false, stoppedUntil: 0, cutOffUntil: 0, lastArrival: 0, callers: 2 },
    };
    this.#processes[place] = process;
    const { worker } = process;
    this.#report({ event: "worker", at: this.#now, worker, pid: 100 + worker, phase: "started", reason: "" });
    this.#runAlways(process);
    for (let caller = 0; caller < process.callers; caller++)
      this.#step(process, this.#random.int(20 * MS), () => this.#call(process));
  }

  #runAlways(process: Process): void {
    this.#tell(process, { event: "runs", at: this.#now, worker: process.worker });
    if (process.callers > 0) this.#step(process, 100 * MS, () => this.#runAlways(process));
  }

  #endCaller(process: Process): void {
    process.callers--;
    if (process.callers > 0) return;
    const { worker } = process;
    this.#tasks.at(Math.max(this.#now, process.lastArrival) + MS, () =>
      this.#report({ event: "worker", at: this.#now, worker, pid: 100 + worker, phase: "ended", reason: "" }),
    );
  }

  #injectFaults(): void {
    if (this.#now > FAULTS_END) return;
    const random = this.#random;
    const process = random.pick(this.#processes as [Process, ...Process[]]);
    const fault = random.pick(["kill", "pause", "partition", "store-pause", "register"]);
    const end = this.#now + (0.3 + 2.2 * random.next()) * TTL;
    if (fault === "register") this.#registerDownUntil = this.#now + random.int(TTL);
    else {
      const workers = fault === "store-pause" ? null : [process.worker];
      const id = this.#faults++;
      this.#report({ event: "fault", fault, id, workers, at: this.#now, phase: "begin" });
      this.#tasks.at(fault === "kill" ? this.#now : end, () =>
        this.#report({ event: "fault", fault, id, workers, at: this.#now, phase: "end" }),
      );
      if (fault === "kill") this.#kill(process);
      if (fault === "pause") process.stoppedUntil = end;
      if (fault === "partition") process.cutOffUntil = end;
      if (fault === "store-pause") this.#storeDownUntil = end;
    }
    this.#tasks.at(this.#now + random.int(TTL), () => this.#injectFaults());
  }

  #kill(process: Process): void {
    const { worker, place } = process;
    this.#report({ event: "worker", at: this.#now, worker, pid: 100 + worker, phase: "killed", reason: "" });
    process.isDead = true;
    this.#tasks.at(this.#now + this.#random.int(50 * MS), () => this.#startProcess(place));
  }

  // A caller.

  #call(process: Process): void {
    if (this.#isStopping) return this.#endCaller(process);
    const request = this.#chooseRequest();
    const { op, waitMs } = request;
    const invokedAt = this.#now;
    const stamp = this.#stamp(process, op);
    this.#tell(process, { event: "invoke", ...stamp, ...request });
    let isAnswered = false;
    const again = (): void => this.#step(process, this.#random.int(10 * MS), () => this.#call(process));
    const claim = (): void => {
      const one = this.#createClaim(process, request);
      one.onGone = () => claim();
      one.onGrant = () => {
        isAnswered = true;
        this.#step(process, this.#moment(), () => this.#hold(one, again));
      };
      const giveUp = (event: "refused" | "unknown"): void => {
        if (isAnswered || one.isOver) return;
        isAnswered = true;
        one.isOver = true;
        // one that failed may be granted, and is not withdrawn
        if (event === "refused") this.#send(process, () => this.#remove(one));
        this.#tell(process, { event, ...this.#stamp(process, op), reason: "timeout" });
        again();
      };
      this.#step(process, Math.max(invokedAt + waitMs * MS - this.#now, 0), () => giveUp("refused"));
      if (this.#random.chance(0.02)) this.#step(process, this.#random.int(20 * MS), () => giveUp("unknown"));
      this.#step(process, this.#moment(), () => this.#renew(one));
    };
    claim();
  }

  #chooseRequest(): Request {
    const random = this.#random;
    const op = this.#operations++;
    const waitMs = random.pick([20, 200, 1_000, 1_000, 1_000]);
    const kind = random.pick<OperationKind>(["mutex", "mutex", "strict", "cached", "several", "reader", "permits"]);
    const one = { op, kind, keys: [random.pick(["a", "b"])], permits: 1, limit: 1, waitMs };
    if (kind === "several") return { ...one, keys: ["a", "b"] };
    if (kind === "reader") return { ...one, limit: null };
    if (kind === "permits") return { ...one, keys: ["permits"], permits: 1 + random.int(LIMIT), limit: LIMIT };
    return one;
  }

  #stamp({ worker }: Process, op: number): { readonly at: number; readonly worker: number; readonly op: number } {
    return { at: this.#now, worker, op };
  }

  /** The steps of a holder, each of which may come late. */
  #hold(claim: Claim, done: () => void): void {
    const { process, request } = claim;
    const { op, keys } = request;
    const isExclusive = request.permits === request.limit;
    const isBlind = this.#random.chance(0.5);
    const tokens = Object.fromEntries([...claim.tokens].map(([key, token]) => [key, String(token)]));
    const values = new Map<string, number>();
    let isLost = false;
    let isReleasing = false;
    const unlocks: (() => void)[] = [];
    const steps: ((next: () => void) => void)[] = [];
    const ask = (next: (isHeld: boolean) => void): void => {
      const stamp = this.#stamp(process, op);
      this.#step(process, this.#moment(), () => {
        const leftMs = claim.isOver ? 0 : Math.max(claim.deadline - this.#now, 0) / MS;
        this.#tell(process, { event: "asked", ...stamp, leftMs });
        next(leftMs > 0);
      });
    };
    const lose = (): void => {
      if (isLost || isReleasing) return;
      isLost = true;
      claim.isOver = true;
      this.#tell(process, { event: "lost", ...this.#stamp(process, op), reason: "expired" });
      for (const unlock of unlocks) unlock();
    };
    const watch = (): void => {
      if (isLost || isReleasing) return;
      if (claim.isGone || claim.deadline <= this.#now) lose();
      else this.#step(process, claim.deadline - this.#now, watch);
    };
    claim.onGone = lose;
    this.#tell(process, { event: "granted", ...this.#stamp(process, op), tokens });
    const release = (): void => {
      for (const unlock of unlocks) unlock();
      ask(() => {
        this.#tell(process, { event: "releasing", ...this.#stamp(process, op) });
        isReleasing = true;
        this.#step(process, this.#moment(), () =>
          this.#release(claim, (wasHeld) => {
            this.#tell(process, { event: "released", ...this.#stamp(process, op), wasHeld });
            done();
          }),
        );
      });
    };
    ask((isHeld) => {
      watch();
      if (!isHeld) return release();
      const next = (): void => {
        const step = steps.shift();
        if (step === undefined) release();
        else step(() => this.#step(process, this.#moment(), next));
      };
      if (isExclusive || request.limit === null)
        for (const key of keys)
          steps.push((then) =>
            this.#lockFile(claim, key, isExclusive, (unlock) => {
              unlocks.push(unlock);
              if (isLost) unlock();
              then();
            }),
          );
      if (isExclusive)
        for (const key of keys)
          steps.push((then) =>
            this.#askRegister(claim, key, null, (value) => {
              values.set(key, value);
              then();
            }),
          );
      const workUntil = this.#now + (this.#random.chance(0.08) ? this.#random.int(2 * TTL) : this.#random.int(10 * MS));
      const work = (then: () => void): void => {
        if (this.#now >= workUntil || (isLost && !isBlind)) return then();
        this.#step(process, Math.min(workUntil - this.#now, 20 * MS), () => ask(() => work(then)));
      };
      steps.push(work);
      if (isExclusive)
        for (const key of keys)
          steps.push((then) => {
            const write = (): void => this.#askRegister(claim, key, values.get(key) ?? 0, then);
            if (isBlind) return write();
            ask((stillHeld) => {
              if (stillHeld && !isLost) return write();
              steps.length = 0;
              then();
            });
          });
      next();
    });
  }

  #lockFile(claim: Claim, key: string, isExclusive: boolean, done: (unlock: () => void) => void): void {
    const { process, request } = claim;
    const locks = this.#files.get(key) ?? new Set();
    this.#files.set(key, locks);
    this.#tasks.at(this.#now + this.#random.int(3 * MS), () => {
      const taken = [...locks].some((one) => one.isExclusive || isExclusive);
      const lock = { isExclusive };
      if (!taken) locks.add(lock);
      const release = (): void => void locks.delete(lock);
      const closeIfKilled = (): void => {
        if (process.isDead) release();
        else if (locks.has(lock)) this.#tasks.at(this.#now + 20 * MS, closeIfKilled);
      };
      closeIfKilled();
      this.#step(process, this.#moment(), () => {
        this.#tell(process, { event: "kernel", ...this.#stamp(process, request.op), key, taken });
        let isOpen = !taken;
        done(() => {
          if (!isOpen) return;
          isOpen = false;
          release();
          this.#tell(process, { event: "unlocked", ...this.#stamp(process, request.op), key });
        });
      });
    });
  }

  #askRegister(claim: Claim, key: string, base: number | null, done: (value: number) => void): void {
    const { process, request } = claim;
    const apply = (): void => {
      if (this.#registerDownUntil > this.#now) return this.#tasks.at(this.#registerDownUntil, apply);
      const register = this.#registers.get(key) ?? { highest: 0, value: 0 };
      this.#registers.set(key, register);
      const token = claim.tokens.get(key) as number;
      const accepted = token >= register.highest;
      if (accepted) register.highest = token;
      const { value } = register;
      if (base !== null) register.value = base + 1;
      const common = { ...this.#stamp(process, request.op), key, token: String(token), accepted, value };
      this.#report(base === null ? { event: "enter", ...common } : { event: "write", base, ...common });
      this.#step(process, this.#random.int(MS), () => done(value));
    };
    this.#tasks.at(this.#now + this.#random.int(MS), apply);
  }

  // The client's calls.

  /** A call, or its answer: lost if the process is cut off, late if the store is down. */
  #send(process: Process, arrive: () => void): void {
    const deliver = (): void => {
      if (process.cutOffUntil > this.#now) return;
      if (this.#storeDownUntil > this.#now) this.#tasks.at(this.#storeDownUntil + this.#random.int(MS), deliver);
      else arrive();
    };
    this.#tasks.at(this.#now + 200 + this.#random.int(MS), deliver);
  }

  #answer(process: Process, arrive: () => void): void {
    this.#tasks.at(this.#now + 200 + this.#random.int(MS), () => {
      if (process.cutOffUntil <= this.#now) this.#step(process, 0, arrive);
    });
  }

  #createClaim(process: Process, request: Request): Claim {
    return {
      ...{ process, request, isHeld: false, isGone: false, leaseEndsAt: 0, tokens: new Map() },
      ...{ deadline: this.#now + 0.9 * TTL, isGranted: false, isOver: false },
      onGrant: () => undefined,
      onGone: () => undefined,
    };
  }

  /** Makes the claim, or renews it, again and again. */
  #renew(claim: Claim): void {
    if (claim.isOver) return;
    const sentAt = this.#now;
    this.#send(claim.process, () => {
      this.#expire();
      this.#place(claim);
      this.#answer(claim.process, () => {
        if (claim.isOver) return;
        if (claim.isGone) {
          claim.isOver = true;
          claim.onGone();
          return;
        }
        claim.deadline = Math.max(claim.deadline, sentAt + 0.9 * TTL);
        this.#noticeGrant(claim);
      });
    });
    this.#step(claim.process, TTL / 3, () => this.#renew(claim));
  }

  #noticeGrant(claim: Claim): void {
    if (!claim.isHeld || claim.isGranted || claim.isOver) return;
    if (this.#now >= claim.deadline) {
      claim.isOver = true;
      this.#send(claim.process, () => this.#remove(claim));
      claim.onGone();
      return;
    }
    claim.isGranted = true;
    claim.onGrant();
  }

  #release(claim: Claim, done: (wasHeld: boolean) => void): void {
    const { process, deadline } = claim;
    const isHeld = !claim.isOver && deadline > this.#now;
    const heir = isHeld && this.#random.chance(0.5) ? this.#findHeir(claim) : null;
    if (heir !== null) {
      this.#handOn(claim, heir);
      return done(true);
    }
    claim.isOver = true;
    let isDone = false;
    const end = (wasHeld: boolean): void => {
      if (isDone) return;
      isDone = true;
      done(wasHeld);
    };
    const ask = (): void => {
      if (isDone) return;
      this.#send(process, () => {
        this.#expire();
        const existed = !claim.isGone;
        this.#remove(claim);
        this.#answer(process, () => end(isHeld ? existed || this.#now >= deadline : existed));
      });
    };
    ask();
    this.#step(process, TTL / 2, ask);
    this.#step(process, TTL, () => end(isHeld));
  }

  /** A request of the same process that waits for the same keys. */
  #findHeir(claim: Claim): Claim | null {
    if (claim.request.limit !== 1 || claim.request.kind === "strict") return null;
    const [key = ""] = claim.request.keys;
    return (
      this.#queues
        .get(key)
        ?.find(
          ({ process, request, isHeld, isOver }) =>
            process === claim.process &&
            !isHeld &&
            !isOver &&
            request.limit === 1 &&
            request.kind !== "strict" &&
            request.keys.join() === claim.request.keys.join(),
        ) ?? null
    );
  }

  /** The heir takes the claim over, with the next token; its own is withdrawn. */
  #handOn(claim: Claim, heir: Claim): void {
    const tokens = new Map([...claim.tokens].map(([key, token]) => [key, token + 1]));
    const first = Math.min(...[...tokens].map(([key, token]) => (this.#lastTokens.get(key) as number) - token));
    const { onGone } = heir;
    if (first < 0) return;
    heir.onGone = () => undefined;
    this.#remove(heir);
    heir.isGone = false;
    heir.isHeld = true;
    heir.tokens = tokens;
    heir.leaseEndsAt = claim.leaseEndsAt;
    heir.deadline = claim.deadline;
    heir.onGone = onGone;
    claim.isOver = true;
    claim.isGone = true;
    for (const key of claim.request.keys) {
      const queue = this.#queues.get(key) as Claim[];
      queue[queue.indexOf(claim)] = heir;
    }
    heir.isGranted = true;
    heir.onGrant();
  }

  // The store.

  #place(claim: Claim): void {
    if (claim.isGone) return;
    const isNew = claim.leaseEndsAt === 0;
    claim.leaseEndsAt = this.#now + TTL;
    this.#tasks.at(claim.leaseEndsAt, () => this.#expire());
    if (!isNew) return;
    for (const key of claim.request.keys) {
      const queue = this.#queues.get(key);
      if (queue === undefined) this.#queues.set(key, [claim]);
      else queue.push(claim);
    }
    this.#admit();
  }

  #remove(claim: Claim): void {
    claim.isGone = true;
    for (const key of claim.request.keys) {
      const queue = this.#queues.get(key) ?? [];
      this.#queues.set(
        key,
        queue.filter((one) => one !== claim),
      );
    }
    this.#admit();
  }

  #expire(): void {
    if (this.#storeDownUntil > this.#now) return;
    for (const queue of this.#queues.values())
      for (const claim of queue) if (claim.leaseEndsAt <= this.#now) this.#remove(claim);
  }

  #admit(): void {
    for (const queue of this.#queues.values())
      for (const claim of queue) {
        if (claim.isHeld || !claim.request.keys.every((key) => this.#isAdmitted(claim, key))) continue;
        claim.isHeld = true;
        for (const key of claim.request.keys) {
          const token = Math.max((this.#lastTokens.get(key) ?? 0) + 1, this.#now);
          claim.tokens.set(key, token);
          this.#lastTokens.set(key, token + (claim.request.limit === 1 ? TOKENS_OF_A_GRANT - 1 : 0));
        }
        this.#answer(claim.process, () => this.#noticeGrant(claim));
      }
  }

  #isAdmitted(claim: Claim, key: string): boolean {
    const { request } = claim;
    let permits = request.permits;
    for (const before of this.#queues.get(key) ?? []) {
      if (before === claim) return true;
      permits += before.request.permits;
      if (!before.isHeld || before.request.limit !== request.limit) return false;
      if (request.limit !== null && permits > request.limit) return false;
    }
    return false;
  }
}

/** What is to happen, in the order of time. */
class Tasks {
  readonly #heap: { readonly at: number; readonly order: number; readonly run: () => void }[] = [];
  #order = 0;
  now = 0;

  at(at: number, run: () => void): void {
    const heap = this.#heap;
    const task = { at: Math.max(Math.floor(at), this.now), order: this.#order++, run };
    let index = heap.length;
    heap.push(task);
    while (index > 0) {
      const parent = (index - 1) >> 1;
      const above = heap[parent] as typeof task;
      if (!isBefore(task, above)) break;
      heap[index] = above;
      index = parent;
    }
    heap[index] = task;
  }

  run(): void {
    for (let task = this.#pop(); task !== undefined; task = this.#pop()) {
      this.now = task.at;
      task.run();
    }
  }

  #pop(): { readonly at: number; readonly run: () => void } | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let index = 0;
    for (;;) {
      let child = 2 * index + 1;
      if (child >= heap.length) break;
      const right = heap[child + 1];
      if (right !== undefined && isBefore(right, heap[child] as typeof right)) child++;
      const below = heap[child] as typeof last;
      if (!isBefore(below, last)) break;
      heap[index] = below;
      index = child;
    }
    heap[index] = last;
    return first;
  }
}

type Ordered = { readonly at: number; readonly order: number };

function isBefore(a: Ordered, b: Ordered): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order);
}
