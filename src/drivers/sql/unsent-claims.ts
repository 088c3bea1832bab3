/**
 * The `claim` calls of a session that were not sent yet: a program may make hundreds at once, and give them up.
 *
 * - A claim has at most one of them: a call that repeats it gets the same answer. Without this a database that is too
 *   slow would be given more calls the slower it is.
 * - A release withdraws it: sent later than a tombstone lives, it would queue a claim that is over. If no earlier call
 *   of the claim was sent, there is nothing to release, and nothing is sent.
 * - A call that was sent makes the claim one that the database may have, until it is released or its last open call is
 *   answered: what the core knows of it then is what the database has. After a call that failed it may have it.
 */

import type { ClaimId } from "../../spi/driver.ts";
import type { ReleaseReply, ReleaseRow } from "./dialect.ts";

/** A `claim` call that may still be withdrawn. */
export interface UnsentCall<T> {
  readonly result: Promise<T>;
  /** It is not sent any more. Its result says that the claim is not there, now or later. */
  withdraw(): void;
}

/** The calls of one claim. */
interface ClaimCalls<T> {
  unsent: UnsentCall<T> | null;
  /** How many are not answered and have not failed, sent or not. */
  openCount: number;
  /** The database may have the claim. */
  isSent: boolean;
}

export class UnsentClaims<T> {
  readonly #claims = new Map<ClaimId, ClaimCalls<T>>();

  /**
   * The result of the unsent call of this claim; of a new one, if there is none.
   * @param start makes a call, which tells when it is sent, perhaps several times, but not before this function returns
   */
  claim(id: ClaimId, start: (onSent: () => void) => UnsentCall<T>): Promise<T> {
    const calls = this.#claims.get(id) ?? { unsent: null, openCount: 0, isSent: false };
    if (calls.unsent !== null) return calls.unsent.result;
    const leave = (): void => {
      if (calls.unsent === call) calls.unsent = null;
    };
    const call = start(() => {
      leave();
      calls.isSent = true;
    });
    const end = (isAnswered: boolean): void => {
      leave();
      calls.openCount--;
      const isKnown = calls.openCount === 0 && (isAnswered || !calls.isSent);
      if (isKnown && this.#claims.get(id) === calls) this.#claims.delete(id);
    };
    calls.unsent = call;
    calls.openCount++;
    this.#claims.set(id, calls);
    call.result.then(
      () => end(true),
      () => end(false),
    );
    return call.result;
  }

  /** Releases those of these claims that the database may have. The others were not there. */
  async release(
    rows: readonly ReleaseRow[],
    release: (sentRows: readonly ReleaseRow[]) => Promise<ReleaseReply>,
  ): Promise<ReleaseReply> {
    const sentRows = rows.filter(({ id }) => !this.#withdraw(id));
    if (sentRows.length === rows.length) return release(rows);
    if (sentRows.length === 0) return { flags: rows.map(() => false), pushes: [] };
    const { flags, pushes } = await release(sentRows);
    const flagById = new Map(sentRows.map(({ id }, index) => [id, flags[index] as boolean]));
    return { flags: rows.map(({ id }) => flagById.get(id) ?? false), pushes };
  }

  /** Withdraws the unsent call of the claim, if there is one. Was the claim never sent? */
  #withdraw(id: ClaimId): boolean {
    const calls = this.#claims.get(id);
    if (calls === undefined) return false; // made by an earlier session, or answered
    this.#claims.delete(id);
    calls.unsent?.withdraw();
    return !calls.isSent;
  }
}
