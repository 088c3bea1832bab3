/** What an operator, and the checker at the end, see of a lock table. */

import type { Clock } from "../../src/clock.ts";
import type { Table } from "../../src/core/table.ts";
import type { SeededRandom } from "../support/seeded-random.ts";
import type { Watch } from "./watch.ts";

const DAY_MICROS = 86_400_000_000;

/** Asks some holder to go; gives "key token" for every token it may have handed on. */
export function revokeOne(table: Table, random: SeededRandom, clock: Clock, watch: Watch): string[] {
  const held = [...table.entries.values()].filter((entry) => entry.held && !entry.revoked);
  if (held.length === 0) return [];
  const { claim, token, tokens } = random.pick(held);
  watch.world.note("operator", `revokes ${watch.name(claim.id)}`);
  table.revoke(claim.holds[0].key, token, false, clock.now(), Math.floor(clock.wall() * 1_000));
  const run = Array.from({ length: tokens }, (_, index) => token + index);
  return claim.holds.flatMap(({ key }) => run.map((one) => `${key} ${one}`));
}

/** What the table keeps although every lease has ended, `laterMs` later and a day of tokens later; empty: nothing. */
export function tableLeftOvers(table: Table, clock: Clock, laterMs: number): string {
  const now = clock.now();
  const micros = Math.floor(clock.wall() * 1_000);
  table.advance(now, micros);
  const { entries, endings, mint } = table;
  const left: string[] = [];
  if (entries.size > 0) left.push(`${entries.size} claims`);
  table.advance(now + laterMs, micros + DAY_MICROS);
  if (endings.size > 0) left.push(`${endings.size} endings`);
  if (mint.lines.size > 0 || mint.lingers) left.push(`${mint.lines.size} lines, notes: ${mint.lingers}`);
  if (table.nextDue() !== null) left.push("something due");
  return left.join(", ");
}
