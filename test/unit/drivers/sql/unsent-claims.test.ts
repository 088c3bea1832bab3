import { expect, test } from "vitest";
import type { ReleaseReply, ReleaseRow } from "../../../../src/drivers/sql/dialect.ts";
import type { UnsentCall } from "../../../../src/drivers/sql/unsent-claims.ts";
import { UnsentClaims } from "../../../../src/drivers/sql/unsent-claims.ts";
import { seededRandom } from "../../../support/seeded-random.ts";

const STEPS = 2_000;
const IDS = ["a", "b", "c"];

/** A call, whose parts happen when the test says so. */
class Call implements UnsentCall<string> {
  readonly id: string;
  readonly result: Promise<string>;
  readonly #onSent: () => void;
  at: "unsent" | "sent" | "over" = "unsent";
  answer!: (reply: string) => void;
  fail!: (error: Error) => void;

  constructor(id: string, onSent: () => void) {
    this.id = id;
    this.#onSent = onSent;
    this.result = new Promise((resolve, reject) => {
      this.answer = resolve;
      this.fail = reject;
    });
    this.result.catch(() => undefined);
  }

  /** A call may be sent again: over another connection, or after a rollback. */
  send(): void {
    this.at = "sent";
    this.#onSent();
  }

  withdraw(): void {
    expect(this.at).toBe("unsent");
    this.at = "over";
    this.answer("none");
  }

  end(isAnswered: boolean): void {
    this.at = "over";
    if (isAnswered) this.answer("held");
    else this.fail(new Error("lost"));
  }
}

/** What the database may have of a claim, as long as it is not released. */
interface Model {
  /** The calls that are not over, in their order. */
  readonly open: Call[];
  isSent: boolean;
}

/** Flags say whether a release was sent. */
async function release(claims: UnsentClaims<string>, ids: readonly string[]): Promise<readonly boolean[]> {
  const rows: ReleaseRow[] = ids.map((id) => ({ id, key: id, bucket: 0, ttlMs: 1, hasUnansweredClaim: true }));
  const send = async (sent: readonly ReleaseRow[]): Promise<ReleaseReply> => ({
    flags: sent.map(() => true),
    pushes: sent.map(({ id }) => id),
  });
  const { flags, pushes } = await claims.release(rows, send);
  expect(pushes).toEqual(ids.filter((_, index) => flags[index]));
  return flags;
}

test.each([1, 2, 3])("a claim is released unless the database cannot have it (seed %i)", async (seed) => {
  const random = seededRandom(seed);
  const claims = new UnsentClaims<string>();
  const models = new Map<string, Model>();
  const modelOf = (id: string): Model => {
    const model = models.get(id) ?? { open: [], isSent: false };
    models.set(id, model);
    return model;
  };
  const seen = { shared: 0, withdrawn: 0, released: 0 };
  for (let step = 0; step < STEPS; step++) {
    const id = random.pick(IDS);
    const model = modelOf(id);
    const event = random.int(5);
    if (event === 0) {
      const unsent = model.open.find(({ at }) => at === "unsent");
      let made: Call | null = null;
      const result = claims.claim(id, (onSent) => {
        made = new Call(id, onSent);
        return made;
      });
      if (unsent !== undefined) seen.shared++;
      expect(made === null).toBe(unsent !== undefined);
      if (unsent !== undefined) expect(result).toBe(unsent.result);
      if (made !== null) model.open.push(made);
    } else if (event === 1 || event === 2) {
      const call = model.open.length === 0 ? null : random.pick(model.open);
      call?.send();
      if (call !== null) model.isSent = true;
    } else if (event === 3) {
      const call = model.open.length === 0 ? null : random.pick(model.open);
      if (call === null) continue;
      const isAnswered = call.at === "sent" && random.chance(0.7);
      call.end(isAnswered);
      model.open.splice(model.open.indexOf(call), 1);
      if (isAnswered && model.open.length === 0) model.isSent = false;
      await Promise.resolve();
    } else {
      const ids = random.chance(0.5) ? [id] : IDS;
      // what has no open call may be there since before: it is released
      const expected = ids.map((one) => {
        const { isSent, open } = modelOf(one);
        return isSent || open.length === 0;
      });
      seen.withdrawn += expected.filter((isReleased) => !isReleased).length;
      seen.released += expected.filter((isReleased) => isReleased).length;
      const unsent = ids.flatMap((one) => modelOf(one).open.filter(({ at }) => at === "unsent"));
      for (const one of ids) models.delete(one);
      expect(await release(claims, ids)).toEqual(expected);
      expect(unsent.map(({ at }) => at)).toEqual(unsent.map(() => "over"));
    }
  }
  expect(Math.min(...Object.values(seen))).toBeGreaterThan(50);
});
