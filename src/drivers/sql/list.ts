/** Lists claims for `holdfast ls` and similar tools, in pages by key and arrival. */

import type { Answer, ClaimView, ListOptions, ListQuery, Page } from "../../spi/driver.ts";
import { toPage } from "../../util/chunk.ts";
import { publicTag } from "../../util/ids.ts";
import type { DialectSession, ListedRow, ListRequest } from "./dialect.ts";

/** Where a page ended. */
type Position = NonNullable<ListRequest["after"]>;

/** Rows read at once while a cursor is searched, and how often; beyond that the list starts again. */
const SEARCH_PAGE_SIZE = 512;
const MAX_SEARCH_PAGES = 10_000;
/** How many ends of pages are kept; a cursor without one is searched from the beginning. */
const MAX_POSITIONS = 256;

export class ClaimLister {
  /**
   * Where pages ended, by the tag of their last claim: a cursor of the SPI is a tag, but only a position is found
   * quickly.
   */
  readonly #positions = new Map<string, Position>();

  /**
   * A page of the live claims. If the claim of the cursor has ended and is not remembered, the list starts at the
   * beginning.
   */
  async list(
    session: DialectSession,
    query: ListQuery,
    { max, after: cursor, signal }: ListOptions,
  ): Promise<Page<ClaimView>> {
    signal?.throwIfAborted();
    const after = cursor === undefined ? null : await this.#findPosition(session, query, cursor, signal);
    const rows = await session.list({ ...query, max: max + 1, ...(after !== null && { after }) });
    const last = rows[max - 1];
    if (rows.length > max && last !== undefined) this.#keepPosition(last);
    return toPage(rows.map(toClaimView), max);
  }

  async #findPosition(
    session: DialectSession,
    query: ListQuery,
    cursor: string,
    signal: AbortSignal | undefined,
  ): Promise<Position | null> {
    let after = this.#positions.get(cursor) ?? null;
    if (after !== null) return after;
    for (let pageCount = 0; pageCount < MAX_SEARCH_PAGES; pageCount++) {
      signal?.throwIfAborted();
      const rows = await session.list({ ...query, max: SEARCH_PAGE_SIZE, ...(after !== null && { after }) });
      const found = rows.find(({ id }) => publicTag(id) === cursor);
      if (found !== undefined) return toPosition(found);
      const last = rows.at(-1);
      if (last === undefined) return null;
      after = toPosition(last);
    }
    return null;
  }

  #keepPosition(row: ListedRow): void {
    const tag = publicTag(row.id);
    this.#positions.delete(tag);
    this.#positions.set(tag, toPosition(row));
    const [oldest] = this.#positions.keys();
    if (this.#positions.size > MAX_POSITIONS) this.#positions.delete(oldest as string);
  }
}

function toPosition({ key, arrival }: ListedRow): Position {
  return { key, arrival: BigInt(arrival) };
}

function toClaimView(row: ListedRow): ClaimView {
  const { id, key, wait, label } = row;
  return {
    tag: publicTag(id),
    locks: [{ key, permits: Number(row.permits), limit: Number(row.limit) }],
    ttlMs: Number(row.ttlMs),
    tokenCount: Number(row.tokenCount),
    floor: BigInt(row.floor),
    wait,
    label,
    answer: toAnswer(row),
    ageMs: Number(row.ageMs),
    ...(row.heldMs !== "" && { heldMs: Number(row.heldMs) }),
  };
}

/** A revoked claim is shown as the holder that it may still be. */
function toAnswer({ token, tokenCount, remainingMs }: ListedRow): Answer {
  const leaseMs = Number(remainingMs);
  if (token === "0") return { state: "waiting", remainingMs: leaseMs, recheckMs: Math.max(leaseMs, 1) };
  return { state: "held", token: BigInt(token), tokenCount: Number(tokenCount), remainingMs: leaseMs };
}
