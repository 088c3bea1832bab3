import { describe, expect, test } from "vitest";
import type { Invariant, Verdict } from "../../../src/torture/checker.ts";
import { checkHistory } from "../../../src/torture/checker.ts";
import type { HistoryEvent } from "../../../src/torture/history.ts";
import type { History, OperationRecord } from "../../../src/torture/operations.ts";
import { beliefOf, isExclusive, readOperations } from "../../../src/torture/operations.ts";
import { writeHistory } from "../../support/torture-model.ts";

const MS = 1_000;
const SECOND = 1_000 * MS;
const SEEDS = 2_000;
const BATCHES = 40;
/** For each way of being wrong. */
const WRONG_SEEDS = 30;

type Writable<T> = T extends unknown ? { -readonly [K in keyof T]: T[K] } : never;
type Event = Writable<HistoryEvent>;
type Name = HistoryEvent["event"];
type Named<N extends Name> = Writable<Extract<HistoryEvent, { event: N }>>;

const judge = (events: Iterable<HistoryEvent>): Verdict => checkHistory(readOperations(events));

/** A history to be changed. */
class Draft {
  events: Event[];
  readonly history: History;
  readonly operations: readonly OperationRecord[];

  constructor(seed: number) {
    this.events = structuredClone(writeHistory(seed)) as Event[];
    this.history = readOperations(this.events);
    this.operations = this.history.operations;
  }

  all<N extends Name>(name: N, of?: OperationRecord): Named<N>[] {
    return this.events.filter(
      (event) =>
        event.event === name &&
        (of === undefined || ("op" in event && event.op === of.op && event.worker === of.worker)),
    ) as Named<N>[];
  }

  /** What an operation did from a time on, its request excepted. */
  removeFrom(record: OperationRecord, at: number): void {
    const { op, worker } = record;
    this.events = this.events.filter(
      (event) =>
        !("op" in event && event.op === op && event.worker === worker) || event.event === "invoke" || event.at < at,
    );
  }

  add(event: HistoryEvent): void {
    this.events.push(event as Event);
  }

  beliefOf(record: OperationRecord): { readonly from: number; readonly to: number } | null {
    return beliefOf(record, this.history.workers);
  }

  /** Two that held a key one after the other. */
  *pairs(): Generator<readonly [OperationRecord, OperationRecord, string]> {
    for (const key of ["a", "b", "permits"]) {
      const ofKey = this.operations
        .filter((record) => record.keys.includes(key) && this.beliefOf(record) !== null)
        .sort((a, b) => (a.heldFrom as number) - (b.heldFrom as number));
      for (const [index, later] of ofKey.entries())
        for (const earlier of ofKey.slice(Math.max(index - 4, 0), index)) yield [earlier, later, key];
    }
  }

  findPair(
    fits: (earlier: OperationRecord, later: OperationRecord, key: string) => boolean,
  ): readonly [OperationRecord, OperationRecord, string] | null {
    for (const pair of this.pairs()) if (fits(...pair)) return pair;
    return null;
  }

  /** No other one held this key from the first one to the second one. */
  areAlone(earlier: OperationRecord, later: OperationRecord, key: string): boolean {
    const end = (later.heldFrom as number) + MS;
    return this.operations.every((one) => {
      if (one === earlier || one === later || !one.keys.includes(key)) return true;
      const belief = this.beliefOf(one);
      return belief === null || belief.to < (earlier.heldFrom as number) || belief.from > end;
    });
  }

  /** One that was released in the usual way goes on until this time. */
  holdUntil(record: OperationRecord, until: number): void {
    const from = record.heldFrom as number;
    this.add({ event: "asked", at: from, worker: record.worker, op: record.op, leftMs: (until - from) / MS });
    for (const releasing of this.all("releasing", record)) releasing.at = until;
  }

  /** A worker goes on, and reports that it runs. */
  runUntil(worker: number, until: number): void {
    const { endedAt } = this.history;
    for (let at = this.history.workers.get(worker)?.lastAt ?? endedAt; at < until; at += 100 * MS)
      this.add({ event: "runs", at, worker });
    this.events = this.events.filter(
      (event) => !(event.event === "worker" && event.worker === worker && event.phase === "ended"),
    );
  }
}

/** Two holders, 1 ms long. */
function overlap(draft: Draft, fits: (earlier: OperationRecord, later: OperationRecord) => boolean): boolean {
  const pair = draft.findPair((earlier, later, key) => {
    const belief = draft.beliefOf(later);
    const { releasingAt, lostAt } = earlier;
    if (belief === null || releasingAt === null || lostAt !== null || releasingAt > belief.from) return false;
    if (draft.history.workers.get(earlier.worker)?.wasKilled !== false) return false;
    if (belief.to - belief.from <= MS || draft.beliefOf(earlier)?.to !== releasingAt) return false;
    return fits(earlier, later) && draft.areAlone(earlier, later, key);
  });
  if (pair === null) return false;
  const [earlier, later] = pair;
  draft.holdUntil(earlier, (later.heldFrom as number) + MS);
  return true;
}

/** Gives an operation other tokens. */
function setToken(draft: Draft, record: OperationRecord, key: string, token: bigint): void {
  for (const granted of draft.all("granted", record)) granted.tokens = { ...granted.tokens, [key]: String(token) };
  draft.events = draft.events.filter(
    (event) => !((event.event === "enter" || event.event === "write") && event.op === record.op),
  );
}

function isUnused(draft: Draft, key: string, token: bigint): boolean {
  return !draft.operations.some(({ tokens }) => tokens?.get(key) === token);
}

/** One that ended as it should. */
function isUsual({ wasHeld, lostAt, releasedAt }: OperationRecord): boolean {
  return wasHeld === true && lostAt === null && releasedAt !== null;
}

/** An operation whose worker lives until the end. */
function findLiving(draft: Draft, fits: (record: OperationRecord) => boolean): OperationRecord | undefined {
  return draft.operations.find(
    (record) => draft.history.workers.get(record.worker)?.wasKilled === false && fits(record),
  );
}

interface Wrong {
  readonly name: string;
  readonly invariant: Invariant;
  readonly message: RegExp;
  /** Makes a history wrong; false: there is no place for it. */
  readonly inject: (draft: Draft) => boolean;
}

const tokenOf = (record: OperationRecord, key: string): bigint => record.tokens?.get(key) as bigint;

const WRONGS: readonly Wrong[] = [
  {
    name: "a double hold by 1 ms",
    invariant: "exclusion",
    message: /^two holders had it at once, for 1\.0 ms$/,
    inject: (draft) => overlap(draft, (a, b) => isExclusive(a) && isExclusive(b) && a.worker !== b.worker),
  },
  {
    name: "two callers of one process at once",
    invariant: "exclusion",
    message: /^two holders had it at once, for 1\.0 ms$/,
    inject: (draft) => overlap(draft, (a, b) => isExclusive(a) && isExclusive(b) && a.worker === b.worker),
  },
  {
    name: "a reader beside a writer",
    invariant: "exclusion",
    message: /^two holders had it at once/,
    inject: (draft) => overlap(draft, (a, b) => a.kind === "reader" && isExclusive(b)),
  },
  {
    name: "a writer beside a reader",
    invariant: "exclusion",
    message: /^two holders had it at once/,
    inject: (draft) => overlap(draft, (a, b) => isExclusive(a) && b.kind === "reader"),
  },
  {
    name: "permits exceeded by one",
    invariant: "exclusion",
    message: /^4 of 3 permits were held at once/,
    inject: (draft) =>
      overlap(draft, (a, b) => a.kind === "permits" && b.kind === "permits" && a.permits + b.permits === 4),
  },
  {
    name: "several keys, one of which another holder still has",
    invariant: "exclusion",
    message: /^two holders had it at once/,
    inject: (draft) => overlap(draft, (a, b) => isExclusive(a) && a.kind !== "several" && b.kind === "several"),
  },
  {
    name: "the kernel's lock taken",
    invariant: "exclusion",
    message: /kernel's lock/,
    inject(draft) {
      const firstFault = draft.history.faults[0]?.beganAt ?? 0;
      const record = draft.operations.find((one) => isUsual(one) && (one.releasedAt as number) < firstFault);
      const kernel = record && draft.all("kernel", record)[0];
      if (record === undefined || kernel === undefined || kernel.taken) return false;
      kernel.taken = true;
      const { op, worker } = record;
      draft.events = draft.events.filter(
        (event) => event.event !== "unlocked" || event.op !== op || event.worker !== worker,
      );
      return true;
    },
  },
  {
    name: "the kernel's lock taken long after a holder was killed",
    invariant: "exclusion",
    message: /kernel's lock/,
    inject(draft) {
      const killed = draft.operations.find(
        ({ worker, keys, heldFrom, releasingAt }) =>
          draft.history.workers.get(worker)?.wasKilled === true &&
          heldFrom !== null &&
          releasingAt === null &&
          keys[0] !== "permits",
      );
      if (killed === undefined) return false;
      const at = draft.history.endedAt + 10 * SECOND;
      const common = { worker: 99, op: 99_999 };
      const [key = ""] = killed.keys;
      draft.add({ event: "invoke", at, kind: "mutex", keys: [key], permits: 1, limit: 1, waitMs: 0, ...common });
      draft.add({ event: "granted", at: at + 1, tokens: { [key]: "999999999" }, ...common });
      draft.add({ event: "asked", at: at + 2, leftMs: 100, ...common });
      draft.add({ event: "kernel", at: at + 3, key, taken: true, ...common });
      return true;
    },
  },
  {
    name: "a token granted twice",
    invariant: "tokens",
    message: /was granted twice/,
    inject(draft) {
      const pair = draft.findPair((a, b) => a.worker !== b.worker && b.kind !== "several" && a.kind !== "several");
      if (pair === null) return false;
      const [earlier, later, key] = pair;
      setToken(draft, later, key, tokenOf(earlier, key));
      return true;
    },
  },
  {
    name: "a lower token in another process, of locks that may be held together",
    invariant: "tokens",
    message: /is lower than .*, which was granted before this lock was asked for/,
    inject(draft) {
      const pair = draft.findPair(
        (a, b, key) =>
          a.worker !== b.worker &&
          (a.grantedAt as number) < b.invokedAt &&
          a.kind === b.kind &&
          !isExclusive(a) &&
          !isExclusive(b) &&
          isUnused(draft, key, tokenOf(a, key) - 1n),
      );
      if (pair === null) return false;
      const [earlier, later, key] = pair;
      setToken(draft, later, key, tokenOf(earlier, key) - 1n);
      return true;
    },
  },
  ...(
    [
      ["exclusive after exclusive", true, true],
      ["shared after exclusive", true, false],
      ["exclusive after shared", false, true],
    ] as const
  ).map(
    ([what, isFirst, isSecond]): Wrong => ({
      name: `a lower token of one that had waited: ${what}`,
      invariant: "tokens",
      message: /is lower than .*, which a holder had before this one had the lock/,
      inject(draft) {
        const pair = draft.findPair((a, b, key) => {
          const token = tokenOf(a, key) - 1n;
          const isAfter = (draft.beliefOf(a)?.to ?? 0) < (b.heldFrom as number);
          // none is known to have been granted before it was asked for
          const isWaiting = draft.operations.every(
            (one) =>
              one === b ||
              one.tokens?.get(key) === undefined ||
              tokenOf(one, key) < token ||
              (one.grantedAt as number) >= b.invokedAt,
          );
          return (
            isExclusive(a) === isFirst &&
            isExclusive(b) === isSecond &&
            isAfter &&
            isWaiting &&
            isUnused(draft, key, token)
          );
        });
        if (pair === null) return false;
        const [earlier, later, key] = pair;
        setToken(draft, later, key, tokenOf(earlier, key) - 1n);
        return true;
      },
    }),
  ),
  {
    name: "a set of several keys without one of them",
    invariant: "tokens",
    message: /without a token of this key/,
    inject(draft) {
      const granted = draft.all("granted").find(({ tokens }) => tokens !== null && Object.keys(tokens).length > 1);
      if (granted === undefined) return false;
      granted.tokens = { a: granted.tokens?.a ?? "" };
      return true;
    },
  },
  {
    name: "a late write that is accepted",
    invariant: "register",
    message: /accepted the token \d+ from one holder after \d+ from another/,
    inject(draft) {
      const pair = draft.findPair(
        (a, b, key) => isExclusive(a) && draft.all("enter", b).some((enter) => enter.key === key && enter.accepted),
      );
      if (pair === null) return false;
      const [earlier, later, key] = pair;
      const enter = draft.all("enter", later).find((one) => one.key === key) as Named<"enter">;
      const { worker, op } = earlier;
      const late = { ...enter, event: "write", worker, op, token: String(tokenOf(earlier, key)), base: 1 } as const;
      draft.events.splice(draft.events.indexOf(enter) + 1, 0, late);
      return true;
    },
  },
  {
    name: "a token that the register accepts from two holders",
    invariant: "register",
    message: /accepted the token (\d+) from one holder after \1 from another/,
    inject(draft) {
      const pair = draft.findPair(
        (a, b, key) => isExclusive(a) && draft.all("enter", b).some((enter) => enter.key === key && enter.accepted),
      );
      if (pair === null) return false;
      const [earlier, later, key] = pair;
      const enter = draft.all("enter", later).find((one) => one.key === key) as Named<"enter">;
      draft.events.splice(draft.events.indexOf(enter) + 1, 0, { ...enter, worker: earlier.worker, op: earlier.op });
      return true;
    },
  },
  {
    name: "a rightful holder that is refused",
    invariant: "register",
    message: /refused a holder/,
    inject(draft) {
      const record = draft.operations.find((one) => isUsual(one) && draft.all("write", one).length > 0);
      const write = record && draft.all("write", record)[0];
      if (write === undefined) return false;
      write.accepted = false;
      return true;
    },
  },
  {
    name: "a release that lies",
    invariant: "release",
    message: /another holder had it before/,
    inject(draft) {
      const pair = draft.findPair((a, b) => {
        if (!isExclusive(a) || !isExclusive(b) || a.wasHeld !== false || a.releasingAt === null) return false;
        return (b.heldFrom as number) < a.releasingAt;
      });
      if (pair === null) return false;
      for (const released of draft.all("released", pair[0])) released.wasHeld = true;
      return true;
    },
  },
  {
    name: "a loss that is never told",
    invariant: "notice",
    message: /was not told/,
    inject(draft) {
      const record = findLiving(
        draft,
        (one) => isUsual(one) && (one.leaseEndsAt as number) < draft.history.endedAt - 3 * SECOND,
      );
      if (record === undefined) return false;
      draft.removeFrom(record, record.releasingAt as number);
      return true;
    },
  },
  {
    name: "a loss that is told late",
    invariant: "notice",
    message: /was not told/,
    inject(draft) {
      const record = findLiving(
        draft,
        (one) => isUsual(one) && (one.leaseEndsAt as number) < draft.history.endedAt - 3 * SECOND,
      );
      if (record === undefined) return false;
      const { worker, op, leaseEndsAt } = record;
      draft.removeFrom(record, record.releasingAt as number);
      draft.add({ event: "lost", at: (leaseEndsAt as number) + 2 * SECOND, worker, op, reason: "expired" });
      return true;
    },
  },
  {
    name: "a request that is never answered",
    invariant: "progress",
    message: /never answered/,
    inject(draft) {
      const record = findLiving(draft, ({ grantedAt }) => grantedAt === null);
      if (record === undefined) return false;
      draft.removeFrom(record, record.invokedAt);
      return true;
    },
  },
  {
    name: "a request that is answered late",
    invariant: "progress",
    message: /was answered .* later/,
    inject(draft) {
      const record = findLiving(draft, ({ grantedAt }) => grantedAt === null);
      const refused = record && draft.all("refused", record)[0];
      if (record === undefined || refused === undefined) return false;
      refused.at = draft.history.endedAt + 6 * SECOND;
      draft.runUntil(record.worker, refused.at + SECOND);
      return true;
    },
  },
  {
    name: "a release that is not answered",
    invariant: "progress",
    message: /a release was not answered/,
    inject(draft) {
      const record = findLiving(draft, isUsual);
      if (record === undefined) return false;
      draft.events = draft.events.filter(
        (event) => event.event !== "released" || event.op !== record.op || event.worker !== record.worker,
      );
      draft.runUntil(record.worker, draft.history.endedAt + 7 * SECOND);
      return true;
    },
  },
  {
    name: "a process that fails",
    invariant: "progress",
    message: /^worker \d+ ended: code 1/,
    inject(draft) {
      const ended = draft.all("worker").find(({ phase }) => phase === "ended");
      if (ended === undefined) return false;
      ended.reason = "code 1";
      return true;
    },
  },
  {
    name: "a key that is starved after the repair",
    invariant: "progress",
    message: /^none of \d+ requests was granted/,
    inject(draft) {
      const { healedAt, stoppingAt } = draft.history as { healedAt: number; stoppingAt: number };
      const late = draft.operations.filter(
        ({ keys, grantedAt }) => keys[0] === "permits" && (grantedAt ?? 0) > healedAt,
      );
      if (!late.some(({ invokedAt, waitMs }) => waitMs >= 200 && invokedAt > healedAt && invokedAt < stoppingAt))
        return false;
      for (const record of late) {
        const { worker, op, invokedAt, waitMs } = record;
        draft.removeFrom(record, invokedAt);
        draft.add({ event: "refused", at: invokedAt + waitMs * MS, worker, op, reason: "timeout" });
      }
      return true;
    },
  },
  {
    name: "a key that is free while a request waits",
    invariant: "progress",
    message: /^it was free for .* although a request waited for it/,
    inject(draft) {
      const record = findLiving(draft, ({ grantedAt }) => (grantedAt ?? 0) > (draft.history.healedAt as number));
      if (record === undefined) return false;
      const { worker } = record;
      const at = draft.history.stoppingAt as number;
      draft.add({
        event: "invoke",
        at,
        worker,
        op: 99_999,
        kind: "mutex",
        keys: ["free"],
        permits: 1,
        limit: 1,
        waitMs: 9_000,
      });
      draft.add({ event: "refused", at: at + 4 * SECOND, worker, op: 99_999, reason: "timeout" });
      return true;
    },
  },
  {
    name: "claims that are left",
    invariant: "remains",
    message: /^1 claims were left/,
    inject(draft) {
      for (const leftovers of draft.all("leftovers")) leftovers.count = 1;
      return true;
    },
  },
];

describe("a correct history is ok", () => {
  for (let batch = 0; batch < BATCHES; batch++) {
    const size = SEEDS / BATCHES;
    test(`seeds ${batch * size} to ${(batch + 1) * size - 1}`, () => {
      for (let seed = batch * size; seed < (batch + 1) * size; seed++) {
        const { verdict, violations, reasons } = judge(writeHistory(seed));
        expect({ seed, verdict, violations, reasons }).toEqual({ seed, verdict: "ok", violations: [], reasons: [] });
      }
    });
  }
});

describe("a history is found to be wrong", () => {
  test.for(WRONGS)("$name", ({ invariant, message, inject }) => {
    let injected = 0;
    for (let seed = 0; seed < 1_000 && injected < WRONG_SEEDS; seed++) {
      const draft = new Draft(seed);
      if (!inject(draft)) continue;
      injected++;
      const { verdict, violations } = judge(draft.events);
      const found = violations.some((one) => one.invariant === invariant && message.test(one.message));
      expect({ seed, verdict, found, violations: found ? [] : violations }).toEqual({
        ...{ seed, verdict: "violated", found: true, violations: [] },
      });
    }
    expect(injected).toBe(WRONG_SEEDS);
  });
});
