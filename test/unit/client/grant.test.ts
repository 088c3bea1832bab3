import { describe, expect, test } from "vitest";
import type { ActiveClaim } from "../../../src/client/engine.ts";
import { Grant, tokensToRequest } from "../../../src/client/grant.ts";
import type { LocalHold } from "../../../src/client/local-hold.ts";
import type { QueueKind } from "../../../src/client/options.ts";

/** A kind of queue on a store. */
interface Setting {
  readonly kind: QueueKind;
  readonly recall: "push" | "recheck";
  readonly holders: number;
  readonly ms: number;
  readonly reportsBreaks?: false;
}

const POLLING: Setting = { kind: "shared", recall: "recheck", holders: 64, ms: 10 };
const RECALLING: Setting = { kind: "shared", recall: "push", holders: 4, ms: 10 };
const STRICT: Setting = { ...RECALLING, kind: "strict" };
const ALONE: Setting = { ...RECALLING, kind: "alone" };

type GrantContext = ConstructorParameters<typeof Grant>[0];

function contextOf({ recall, reportsBreaks, holders, ms }: Setting): GrantContext {
  return { traits: { recall, reportsBreaks }, settings: { handoffLimits: { holders, ms } } } as GrantContext;
}

/** How many tokens a claim made now requests. */
function request(setting: Setting, waiterCount: number, suggestedCount = 1, isCached = false): number {
  return tokensToRequest(contextOf(setting), setting.kind, waiterCount, suggestedCount, isCached);
}

interface GrantOptions {
  readonly now?: number;
  readonly isWanted?: boolean;
  /** Enough of the lease is left, and no call failed. */
  readonly isReusable?: boolean;
  readonly isHeld?: boolean;
  readonly survivesSilence?: boolean;
  /** What the locks of this name have shown. */
  readonly isCacheable?: boolean;
  readonly successors?: ActiveClaim["successors"];
  /** The other claims of the client. */
  readonly claims?: Readonly<Record<string, { readonly status?: string; readonly label?: string }>>;
}

/** A grant of these tokens, whose first holder has not taken its own yet. */
function createGrant(setting: Setting, token: bigint, tokenCount: number, options: GrantOptions = {}): Grant {
  const { now = 0, isWanted = false, isReusable = true, isHeld = true, isCacheable = true } = options;
  const { survivesSilence = false, successors = null, claims = {} } = options;
  const find = (id: string): unknown => {
    const found = claims[id];
    if (found === undefined) return undefined;
    return { claim: { id, label: found.label ?? "same" }, state: { status: found.status ?? "waiting" } };
  };
  const context = {
    ...contextOf(setting),
    engine: { isReusable: () => isReusable, find, scheduler: { schedule: () => undefined } },
    cachedLocks: {
      allows: () => isCacheable,
      add: () => undefined,
      remove: () => undefined,
      nextPollAt: () => Number.POSITIVE_INFINITY,
      settleLater: () => undefined,
    },
    tokenFloors: { record: () => undefined },
  } as unknown as GrantContext;
  const activeClaim = {
    claim: { locks: [], label: "same" },
    state: { status: "held", token, tokenCount },
    settings: { survivesSilence },
    isHeld: () => isHeld,
    isWanted,
    successors,
  } as unknown as ActiveClaim;
  return new Grant(context, setting.kind, "key", activeClaim, now);
}

/** The token of the next holder; null: the claim is released. */
function nextToken(grant: Grant, now: number, isWantedHere: boolean): bigint | null {
  return grant.next(now, isWantedHere, 0) === "handOn" ? grant.takeToken() : null;
}

/** The store has answered with a range of this length. */
function answer({ activeClaim }: Grant, tokenCount: number): void {
  Object.assign(activeClaim.state, { tokenCount });
}

test("a claim requests a token for each local waiter, at least one, at most as many as may be handed on", () => {
  expect([request(POLLING, 0), request(POLLING, 5), request(POLLING, 100)]).toEqual([1, 5, 64]);
  expect(request({ ...POLLING, holders: 1 }, 5)).toBe(1);
});

test("a claim requests one token if its grant is handed on to no request, or to those that the store names", () => {
  expect(request(ALONE, 1)).toBe(1);
  expect(request(STRICT, 1), "the store adds those of the successors").toBe(1);
  expect(request({ ...RECALLING, reportsBreaks: false }, 5, 2)).toBe(1);
});

/** Claims of one local queue one after another, each handed on until its bounds, with a millisecond for each holder. */
class Claims {
  readonly #setting: Setting;
  suggestedCount = 1;

  constructor(setting: Setting) {
    this.#setting = setting;
  }

  /** Returns the number of holders of the next one. With `returns` each of them waits again at once. */
  countHolders(waiterCount: number, returns: boolean): number {
    const tokenCount = request(this.#setting, waiterCount, this.suggestedCount);
    const grant = createGrant(this.#setting, 100n, tokenCount);
    grant.takeToken();
    for (let holders = 1; ; holders++) {
      const waitersLeft = returns ? waiterCount : waiterCount - holders;
      const next = grant.next(holders, waitersLeft > 0, 0);
      if (next === "handOn") {
        grant.takeToken();
        continue;
      }
      this.suggestedCount = grant.suggestTokens(next === "usedUp");
      return holders;
    }
  }
}

test("a token range used up while others waited is followed by one twice as long, up to the limit", () => {
  const claims = new Claims({ ...POLLING, holders: 20, ms: 100 });
  expect([1, 2, 3, 4, 5].map(() => claims.countHolders(3, true))).toEqual([3, 6, 12, 20, 20]);
});

test("unused tokens of a range are not requested again", () => {
  const claims = new Claims(POLLING);
  expect([claims.countHolders(8, true), claims.countHolders(8, true)]).toEqual([8, 10]);
  expect(request(POLLING, 8, claims.suggestedCount)).toBe(10);
  expect(claims.countHolders(8, false), "eight were there").toBe(8);
  expect(request(POLLING, 0, claims.suggestedCount)).toBe(8);
});

test("each holder takes the next token of the range, and a used-up range allows no hand-off", () => {
  const grant = createGrant(POLLING, 100n, 3);
  const tokens = [grant.takeToken(), nextToken(grant, 1, true), nextToken(grant, 2, true), nextToken(grant, 3, true)];
  expect(tokens).toEqual([100n, 101n, 102n, null]);
});

test("a range longer than may be handed on is not used up", () => {
  const grant = createGrant({ ...POLLING, holders: 2 }, 100n, 50);
  grant.takeToken();
  expect([nextToken(grant, 1, true), nextToken(grant, 1, true)]).toEqual([101n, null]);
});

test("no hand-off after the time limit since the grant, or if no request waits", () => {
  const grant = createGrant(POLLING, 100n, 3, { now: 50 });
  grant.takeToken();
  expect(nextToken(grant, 60, true)).toBeNull();
  expect(nextToken(grant, 59, false)).toBeNull();
  expect(nextToken(grant, 59, true)).toBe(101n);
});

test("a grant that may be kept is kept while it has tokens, also after its time; without one its claim was too short", () => {
  const grant = createGrant(RECALLING, 100n, 2);
  grant.takeToken();
  expect(grant.next(1_000, false, 60_000)).toBe("keep");
  grant.takeToken();
  expect(grant.next(1_001, false, 60_000)).toBe("usedUp");
  expect([grant.suggestTokens(true), grant.suggestTokens(false)]).toEqual([4, 2]);
});

test.each<[string, GrantOptions]>([
  ["was recalled", { isWanted: true }],
  ["ends with no silence", { survivesSilence: true }],
  ["has little of its lease left, or a call that failed", { isReusable: false }],
  ["is not held by the clock", { isHeld: false }],
  ["was kept in vain before", { isCacheable: false }],
])("a claim is not kept that %s", (_, options) => {
  const grant = createGrant(RECALLING, 100n, 5, options);
  grant.takeToken();
  expect(grant.next(1, false, 60_000)).toBe("end");
});

test("a claim that may be kept is handed on if a request waits, and is not kept without the option", () => {
  const grant = createGrant(RECALLING, 100n, 5);
  grant.takeToken();
  expect(grant.next(1, true, 60_000)).toBe("handOn");
  expect(grant.next(2, false, 0)).toBe("end");
});

test.each(["isReusable", "isHeld"])("a grant is not handed on, nor used while idle, without %s", (condition) => {
  const grant = createGrant(RECALLING, 100n, 5, { [condition]: false });
  grant.takeToken();
  expect(nextToken(grant, 1, true)).toBeNull();
  expect(grant.reuse(1)).toBe(false);
});

test("a grant alone has one holder, whatever its answers say, and is not kept", () => {
  const grant = createGrant(ALONE, 100n, 5);
  grant.takeToken();
  answer(grant, 9);
  expect([grant.hasTokens, grant.findSuccessor(), grant.next(1, false, 60_000)]).toEqual([false, null, "end"]);
});

describe("in strict order", () => {
  /** Hands the lock on as long as the store has named a request: the claims of its holders, with their tokens. */
  function handOn(
    ids: readonly string[],
    claims: GrantOptions["claims"] & object,
    { token = 100n, tokenCount = ids.length + 1, status = "held" } = {},
  ): [string, bigint][] {
    const grant = createGrant(STRICT, 100n, tokenCount, { claims, successors: { token, ids } });
    grant.takeToken();
    Object.assign(grant.activeClaim.state, { status });
    const holders: [string, bigint][] = [];
    for (;;) {
      const successor = grant.findSuccessor();
      if (grant.next(holders.length, successor !== null, 0) !== "handOn") return holders;
      holders.push([(successor as ActiveClaim).claim.id, grant.takeToken()]);
    }
  }

  test("the lock goes to each claim that the store has named, with the token of its place, also if one does not wait any more", () => {
    expect(handOn(["a", "b", "c"], { a: { status: "asking" }, c: {} })).toEqual([
      ["a", 101n],
      ["c", 103n],
    ]);
  });

  test("not beyond a claim that the store has granted meanwhile: this grant is gone", () => {
    expect(handOn(["a", "b"], { a: { status: "held" }, b: {} })).toEqual([]);
  });

  test("not beyond another label, which lists would show wrongly", () => {
    expect(handOn(["a", "b"], { a: { label: "other" }, b: {} })).toEqual([]);
  });

  test("not if another grant has named them, or the claim is not held", () => {
    expect(handOn(["a"], { a: {} }, { token: 99n })).toEqual([]);
    expect(handOn(["a"], { a: {} }, { status: "lost" })).toEqual([]);
  });

  test("not beyond the claims that were named, if the range is longer", () => {
    expect(handOn(["a"], { a: {}, b: {} }, { tokenCount: 3 })).toEqual([["a", 101n]]);
  });

  test("not beyond the token range of the last answer", () => {
    expect(handOn(["a", "b"], { a: {}, b: {} }, { tokenCount: 2 })).toEqual([["a", 101n]]);
    const successors = { token: 100n, ids: ["a"] };
    const grant = createGrant(STRICT, 100n, 2, { claims: { a: {} }, successors });
    grant.takeToken();
    answer(grant, 1);
    expect(grant.findSuccessor()).toBeNull();
  });
});

test("a grant is used by one holder after another, idle while none follows, and ended for good", () => {
  const grant = createGrant(RECALLING, 100n, 5);
  const holder = {} as LocalHold;
  expect([grant.status, grant.holder, grant.idleSince]).toEqual(["between", null, null]);
  grant.beginUse(holder);
  expect([grant.status, grant.holder]).toEqual(["used", holder]);
  grant.endUse();
  expect([grant.status, grant.holder]).toEqual(["between", null]);
  grant.becomeIdle(7, 60_000);
  expect([grant.status, grant.holder, grant.idleSince]).toEqual(["idle", null, 7]);
  grant.end();
  expect([grant.status, grant.idleSince]).toEqual(["ended", null]);
});

describe("on a store that recalls", () => {
  /** How many holders a range serves when another request waits all the time; and the suggestion for the next one. */
  function useRange(setting: Setting, tokenCount: number, recalledAt: number): { holders: number; next: number } {
    const grant = createGrant(setting, 1n, tokenCount, { isWanted: recalledAt === 0 });
    grant.takeToken();
    for (let holders = 1; ; holders++) {
      if (holders === recalledAt) grant.becomeWanted(holders);
      const next = grant.next(holders, true, 0);
      if (next === "handOn") {
        grant.takeToken();
        continue;
      }
      return { holders, next: request(setting, 1, grant.suggestTokens(next === "usedUp")) };
    }
  }
  const countHolders = (setting: Setting, tokenCount: number, recalledAt: number): number =>
    useRange(setting, tokenCount, recalledAt).holders;

  test("a grant is bounded by its tokens alone until it is recalled", () => {
    expect(countHolders(RECALLING, 1_000, Number.POSITIVE_INFINITY)).toBe(1_000);
  });

  test("from the recall on, or from the grant if it came before, as many holders as without it", () => {
    expect(countHolders(RECALLING, 1_000, 0)).toBe(4);
    expect(countHolders(RECALLING, 1_000, 500)).toBe(503);
  });

  test("from the recall on, as long as without it, and a second recall grants no more time", () => {
    const setting = { ...RECALLING, holders: 64 };
    expect(countHolders(setting, 1_000, 500)).toBe(510);
    const grant = createGrant(setting, 1n, 1_000);
    grant.takeToken();
    grant.becomeWanted(100);
    grant.becomeWanted(109);
    expect(nextToken(grant, 109, true)).not.toBeNull();
    expect(nextToken(grant, 110, true)).toBeNull();
  });

  test("a range that was too short is doubled, up to 65,536; else the next is as long as the last was used", () => {
    expect(useRange(RECALLING, 100, Number.POSITIVE_INFINITY).next).toBe(200);
    expect(useRange(RECALLING, 200, 50).next).toBe(53);
    expect(useRange(RECALLING, 60_000, Number.POSITIVE_INFINITY).next).toBe(65_536);
  });

  test("a claim that may be cached requests at least 16 tokens", () => {
    expect(request(RECALLING, 1, 1, true)).toBe(16);
  });

  test("a renewal asks for twice the last use when half of the range is used", () => {
    const grant = createGrant(RECALLING, 1n, 100);
    for (let use = 0; use < 49; use++) grant.takeToken();
    expect(grant.tokensToRenew()).toBe(0);
    for (let use = 0; use < 11; use++) grant.takeToken();
    expect(grant.tokensToRenew(), "60 used, 11 of them since: enough are left").toBe(0);
    for (let use = 0; use < 30; use++) grant.takeToken();
    expect(grant.tokensToRenew(), "90 used, 30 of them since").toBe(150);
  });

  test("a renewal asks for no more tokens while the lock has one holder", () => {
    const grant = createGrant(RECALLING, 1n, 1);
    grant.takeToken();
    expect([grant.tokensToRenew(), grant.tokensToRenew()]).toEqual([0, 0]);
  });

  test("the range is as long as the store's last answer says, also if that is shorter", () => {
    const grant = createGrant(RECALLING, 1n, 10);
    for (let use = 0; use < 5; use++) grant.takeToken();
    answer(grant, 12);
    for (let use = 5; use < 12; use++) expect(nextToken(grant, 1, true)).toBe(BigInt(use + 1));
    expect(nextToken(grant, 1, true)).toBeNull();
    answer(grant, 20);
    expect(nextToken(grant, 1, true)).toBe(13n);
    answer(grant, 3);
    expect(nextToken(grant, 1, true)).toBeNull();
  });

  test("on another store the range is at most as long as the limit, whatever its answers say", () => {
    const grant = createGrant({ ...POLLING, holders: 2 }, 1n, 2);
    grant.takeToken();
    answer(grant, 50);
    expect([nextToken(grant, 1, true), nextToken(grant, 2, true), grant.tokensToRenew()]).toEqual([2n, null, 0]);
  });

  test("with one holder there is no hand-off", () => {
    expect(countHolders({ ...POLLING, holders: 1 }, 5, Number.POSITIVE_INFINITY)).toBe(1);
  });
});
