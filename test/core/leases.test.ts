import { array, assert, constant, integer, oneof, property, record } from "fast-check";
import { expect, test } from "vitest";
import { Entry } from "../../src/core/entry.ts";
import { Leases } from "../../src/core/leases.ts";
import { ALL_PERMITS } from "../../src/core/line.ts";

function entryOf(ttlMs: number | "session", now: number): Entry {
  const holds = [{ key: "k", permits: ALL_PERMITS, limit: ALL_PERMITS }] as const;
  const claim = { id: "i", holds, ttlMs, tokens: 1, floor: 0n, wait: true, label: "" };
  return new Entry(claim, null, now, ttlMs === "session" ? Number.POSITIVE_INFINITY : now + ttlMs, 1);
}

/** Takes all that has run out. */
function taken(leases: Leases, now: number): Set<Entry> {
  const all = new Set<Entry>();
  for (let entry = leases.takeExpired(now); entry !== null; entry = leases.takeExpired(now)) all.add(entry);
  return all;
}

const command = oneof(
  record({ verb: constant("add" as const), ttlMs: integer({ min: 1, max: 20 }) }),
  record({ verb: constant("remove" as const), which: integer({ min: 0, max: 9 }) }),
  record({ verb: constant("extend" as const), which: integer({ min: 0, max: 9 }) }),
  record({ verb: constant("wait" as const), ms: integer({ min: 1, max: 12 }) }),
);

test("what runs out is taken then and not before, whatever was added, extended and removed; next() is never late, nor does it wait for nobody", () => {
  assert(
    property(array(command, { maxLength: 80 }), (commands) => {
      const leases = new Leases();
      const live: Entry[] = [];
      let now = 0;
      for (const step of commands) {
        const chosen = "which" in step ? live[step.which] : undefined;
        if (step.verb === "add") {
          const entry = entryOf(step.ttlMs, now);
          leases.add(entry);
          live.push(entry);
        } else if (step.verb === "wait") {
          now += step.ms;
          const due = live.filter(({ expiresAt }) => expiresAt <= now);
          expect(taken(leases, now)).toEqual(new Set(due));
          for (const entry of due) live.splice(live.indexOf(entry), 1);
        } else if (chosen !== undefined && step.verb === "extend") {
          leases.extend(chosen, now);
        } else if (chosen !== undefined) {
          leases.remove(chosen);
          live.splice(live.indexOf(chosen), 1);
        }
        const soonest = Math.min(...live.map(({ expiresAt }) => expiresAt));
        expect(leases.next() ?? Number.POSITIVE_INFINITY).toBeLessThanOrEqual(soonest);
        if (live.length === 0) expect(leases.next()).toBeNull();
      }
    }),
  );
});

test("a claim of a session never runs out and is nothing to wait for", () => {
  const leases = new Leases();
  const entry = entryOf("session", 0);
  leases.add(entry);
  leases.extend(entry, 5);
  expect(leases.next()).toBeNull();
  expect(leases.takeExpired(1e15)).toBeNull();
  leases.remove(entry);
});

test("of a crowd that came together each runs out in its time, and none that was removed", () => {
  const leases = new Leases();
  const all = Array.from({ length: 10_000 }, (_, index) => entryOf(1_000 + (index % 7), 0));
  for (const entry of all) leases.add(entry);
  const removed = new Set(all.filter((_, index) => index % 3 === 0));
  for (const entry of removed) leases.remove(entry);
  for (let now = 999; now < 1_008; now++) {
    const due = all.filter((entry) => entry.expiresAt === now && !removed.has(entry));
    const got = taken(leases, now);
    expect(got.size).toBe(due.length);
    expect(due.every((entry) => got.has(entry))).toBe(true);
  }
  expect(leases.next()).toBeNull();
});
